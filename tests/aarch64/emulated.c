// What an emulated kernel has of the things that a few tests need. Prints the name of each one that is there; Linux
// itself has all. An emulator hands on the system calls that it knows, and these are often not among them, or are
// the wrong side's:
//
// seccomp         a filter refuses a system call
// address-space   RLIMIT_AS refuses a mapping
// copies          process_vm_readv reads a word of this process
// call-numbers    /proc says in which system call a thread sleeps, by this machine's number
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int seccomp(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           syscall(SYS_getpriority, PRIO_PROCESS, 0) == -1 && errno == EXDEV;
}

static int address_space(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    return setrlimit(RLIMIT_AS, &limit) == 0 &&
           mmap(0, 1 << 26, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM;
}

static int copies(void) {
    int word = 0, other = 7;
    struct iovec to = {&word, sizeof word}, from = {&other, sizeof other};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof word && word == 7;
}

static int sleeper;

static void *sleep_long(void *path) {
    struct timespec time = {60, 0};
    sprintf(path, "/proc/self/task/%ld/syscall", syscall(SYS_gettid));
    __atomic_store_n(&sleeper, 1, __ATOMIC_RELEASE);
    syscall(SYS_nanosleep, &time, 0);
    return 0;
}

static int call_numbers(void) {
    static char path[64], text[64];
    pthread_t thread;
    if (pthread_create(&thread, 0, sleep_long, path) != 0)
        return 0;
    while (!__atomic_load_n(&sleeper, __ATOMIC_ACQUIRE))
        usleep(1000);
    usleep(200000); // until it sleeps
    int file = open(path, O_RDONLY);
    return file >= 0 && read(file, text, sizeof text - 1) > 0 && atoi(text) == SYS_nanosleep;
}

// In a child: some of this cannot be taken back.
static void look(const char *name, int (*is_there)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(is_there() ? 0 : 1);
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
        puts(name);
}

int main(void) {
    look("seccomp", seccomp);
    look("address-space", address_space);
    look("copies", copies);
    look("call-numbers", call_numbers);
}
