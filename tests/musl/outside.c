// Why there are no green threads on musl: what musl does with a thread-local block that is not its own.
//
// A thread of this program gets a second block, a copy of the one that musl has made for it, and the thread
// pointer is set to that: what the runtime does for a green thread on glibc. musl's functions find the other
// threads by a list that goes through their blocks, and take for granted that all blocks are in it:
//
// 1. `dlopen` lengthens the tables (dtv) by which the threads in the list find a library's thread-locals.
//    `__tls_get_addr` compares nothing: outside the list it reads behind the table's end.
// 2. `dlopen` on a block outside the list lengthens that table and no other: now all other threads read
//    behind their tables' ends.
// 3. `setuid` changes the user of the threads in the list. On a block outside the list it changes one
//    thread's, and reports success.
// 4. A block in the list needs a thread of the kernel's of its own: otherwise `setuid` fails, whoever calls it.
//
// The program says so by its status: 0 if musl does all that.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// How musl's control block begins on x86-64.
struct block {
    struct block *self;
    uintptr_t *dtv; // the number of libraries with thread-locals, and for each where its own begin
    struct block *prev, *next;
    uintptr_t sysinfo, canary;
    int tid;
};

enum { LIBRARIES = 8, CONTROL = 256, SPACE = 1 << 16, NOBODY = 65534 };

__thread int own = 1; // so that the program, too, has thread-locals
static char space[SPACE] __attribute__((aligned(64)));
static uintptr_t table[LIBRARIES];
static struct block *outside;
static pthread_barrier_t turns;

// As `pthread_self`, which the compiler may call once for all.
static struct block *current(void) {
    struct block *block;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(block));
    return block;
}

static void turn(void) { pthread_barrier_wait(&turns); }

static void *address_in(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    assert(handle);
    void *(*address)(void) = (void *(*)(void))dlsym(handle, "address");
    assert(address);
    return address();
}

// A copy of the calling thread's block, in a ring of its own.
static struct block *copy(void) {
    char *from = (char *)current()->dtv; // a block begins with the table, and ends with the control block
    size_t before = (char *)current() - from;
    assert(before + CONTROL < SPACE);
    memcpy(space, from, before + CONTROL);
    struct block *block = (struct block *)(space + before);
    uintptr_t count = table[0] = current()->dtv[0];
    for (uintptr_t i = 1; i <= count; i++)
        table[i] = current()->dtv[i] - (uintptr_t)from + (uintptr_t)space;
    block->self = block->prev = block->next = block;
    block->dtv = table;
    block->tid = 0x20000000; // as for green threads on glibc: no kernel thread has this number
    return block;
}

static void set_thread_pointer(struct block *block) {
    const int ARCH_SET_FS = 0x1002;
    assert(syscall(SYS_arch_prctl, ARCH_SET_FS, block) == 0);
}

static void *runs_outside(void *nothing) {
    struct block *kernels = current();
    outside = copy();
    set_thread_pointer(outside);
    assert(current() == outside && own == 1);
    turn(); // the main thread loads the first library
    turn();
    char mark;
    assert(table[0] == 1);
    table[2] = (uintptr_t)&mark; // behind the end
    assert(address_in("./first.so") == &mark); // 1
    address_in("./second.so");
    turn(); // the main thread looks at its own table
    turn();
    assert(setresuid(-1, NOBODY, -1) == 0 && geteuid() == NOBODY); // 3
    turn(); // the main thread puts the block into the list
    turn();
    set_thread_pointer(kernels);
    return nothing;
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&turns, 0, 2);
    assert(pthread_create(&thread, 0, runs_outside, 0) == 0);
    turn();
    address_in("./first.so");
    struct block *self = current();
    assert(self->dtv[0] == 2 && self->next->dtv[0] == 2);
    turn();
    turn();
    assert(outside->dtv[0] == 3 && self->dtv[0] == 2); // 2
    turn();
    turn();
    assert(geteuid() == 0); // 3
    struct block *other = self->next;
    *outside = (struct block){outside, table, self, other, self->sysinfo, self->canary, outside->tid};
    self->next = other->prev = outside;
    assert(setresuid(-1, NOBODY, -1) == -1 && errno == EAGAIN && geteuid() == 0); // 4
    self->next = other, other->prev = self;
    turn();
    return pthread_join(thread, 0);
}
