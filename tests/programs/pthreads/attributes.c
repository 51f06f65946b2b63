// Attributes: what is set can be read, and what a running thread has of it.
#include "common.h"
#include <limits.h>
#include <semaphore.h>
#include <sys/mman.h>

static sem_t ended;
static char *own_stack;
enum { OWN = 256 * 1024 };

static void *deep(void *argument) {
    pthread_attr_t attributes;
    void *lowest;
    size_t size, guard;
    int detached;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &lowest, &size));
    OK(pthread_attr_getguardsize(&attributes, &guard));
    OK(pthread_attr_getdetachstate(&attributes, &detached));
    OK(pthread_attr_destroy(&attributes));
    char here;
    CHECK(&here >= (char *)lowest && &here < (char *)lowest + size);
    size_t wanted = (size_t)argument;
    CHECK(size >= wanted - 64 * 1024);
    CHECK(detached == PTHREAD_CREATE_JOINABLE);
    // Most of it can be used.
    volatile char used[wanted * 3 / 4];
    for (size_t i = 0; i < sizeof used; i += 4096) used[i] = (char)i;
    used[sizeof used - 1] = 1;
    return (void *)(long)used[sizeof used - 1];
}

static void *detached(void *argument) {
    pthread_attr_t attributes;
    int state;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getdetachstate(&attributes, &state));
    CHECK(state == PTHREAD_CREATE_DETACHED);
    OK(pthread_attr_destroy(&attributes));
    sem_post(&ended);
    return argument;
}

static void *on_own_stack(void *argument) {
    char here;
    CHECK(&here >= own_stack && &here < own_stack + OWN);
    return argument;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    size_t size;
    int state;
    void *value;
    OK(sem_init(&ended, 0, 0));
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_getdetachstate(&attributes, &state));
    CHECK(state == PTHREAD_CREATE_JOINABLE);
    ANSWERS(EINVAL, pthread_attr_setdetachstate(&attributes, 12345));
    ANSWERS(EINVAL, pthread_attr_setstacksize(&attributes, 100));
    puts("wrong values");

    size_t sizes[] = {64 * 1024, 1 << 20, 8 << 20, 64 << 20};
    for (int i = 0; i < 4; i++) {
        OK(pthread_attr_setstacksize(&attributes, sizes[i]));
        OK(pthread_attr_getstacksize(&attributes, &size));
        CHECK(size == sizes[i]);
        OK(pthread_create(&thread, &attributes, deep, (void *)sizes[i]));
        OK(pthread_join(thread, &value));
        CHECK(value == (void *)1);
    }
    puts("sizes");

    OK(pthread_attr_setguardsize(&attributes, 3 * 4096));
    OK(pthread_attr_getguardsize(&attributes, &size));
    CHECK(size == 3 * 4096);
    OK(pthread_attr_setstacksize(&attributes, 1 << 20));
    OK(pthread_create(&thread, &attributes, deep, (void *)(1 << 20)));
    OK(pthread_join(thread, NULL));
    puts("guard");

    OK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    OK(pthread_create(&thread, &attributes, detached, NULL));
    OK(sem_wait(&ended));
    OK(pthread_attr_destroy(&attributes));
    puts("detached");

    own_stack = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own_stack != MAP_FAILED);
    for (int i = 0; i < 10; i++) {
        OK(pthread_attr_init(&attributes));
        OK(pthread_attr_setstack(&attributes, own_stack, OWN));
        OK(pthread_create(&thread, &attributes, on_own_stack, (void *)3));
        OK(pthread_join(thread, &value));
        CHECK(value == (void *)3);
        OK(pthread_attr_destroy(&attributes));
    }
    OK(munmap(own_stack, OWN));
    puts("a stack of the program's own");

    char here;
    void *lowest;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &lowest, &size));
    CHECK(&here >= (char *)lowest && &here < (char *)lowest + size);
    OK(pthread_attr_destroy(&attributes));
    puts("main's stack");
    return 0;
}
