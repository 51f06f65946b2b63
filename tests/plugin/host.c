/* A program that knows nothing of Rust, for tests/process/shared_libraries.rs.

     host local|global|deep LIBRARY...   loads each, uses each, unloads each, stays a while, and ends
     host linked                         uses the library that it is linked with, or that was preloaded
     host interrupted ROUNDS             the same, and says how many signals for the process its first thread has not got */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t word;

static void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *wake(void *nothing) {
    rest(50);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    return nothing;
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) exit(printf("no %s: %s\n", name, dlerror()));
    return found;
}

static int call(void *library, const char *name) {
    int (*function)(void) = (int (*)(void))find(library, name);
    return function();
}

static void use(void *library) {
    pthread_t waker;
    int (*waits)(uint32_t *) = (int (*)(uint32_t *))find(library, "plugin_waits_at");
    printf("green %d\n", call(library, "plugin_is_green"));
    printf("sum %d\n", call(library, "plugin_use"));
    printf("computes %d\n", call(library, "plugin_computes_beside"));
    word = 0;
    pthread_create(&waker, NULL, wake, NULL);
    printf("woken %d\n", waits(&word));
    pthread_join(waker, NULL);
    printf("left %d\n", call(library, "plugin_leaves_threads") >= 3);
    fflush(stdout);
}

static void *is_known(void *library) {
    call(library, "plugin_knows_me");
    dlclose(library);
    return NULL; /* and its destructors run */
}

static volatile sig_atomic_t elsewhere;

static void on_signal(int signal) {
    (void)signal;
    elsewhere |= syscall(SYS_gettid) != getpid();
}

static void *compute(void *function) {
    ((int (*)(void))function)();
    return NULL;
}

/* Threads of the library compute, and signals come to the process. The first thread, which is to have them, comes late to the only CPU. */
static int interrupted(int rounds) {
    struct sigaction action = {.sa_handler = on_signal};
    struct sched_param none = {0};
    cpu_set_t all, one;
    int lost = 0;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    printf("green %d\n", call(RTLD_DEFAULT, "plugin_is_green"));
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < rounds; i++) {
        pthread_t hogs;
        pthread_create(&hogs, NULL, compute, find(RTLD_DEFAULT, "plugin_computes_beside"));
        rest(20);
        pid_t child = fork();
        if (!child) {
            rest(5 + i % 7);
            _exit(kill(getppid(), SIGUSR1));
        }
        elsewhere = 0;
        sched_setscheduler(0, SCHED_IDLE, &none);
        rest(500);
        sched_setscheduler(0, SCHED_OTHER, &none);
        lost += elsewhere;
        pthread_join(hogs, NULL);
        while (waitpid(child, NULL, 0) != child) {}
    }
    return printf("lost %d\n", lost) < 0;
}

int main(int count, char **arguments) {
    void *libraries[8];
    int flags = RTLD_NOW;
    pthread_t thread;
    if (!strcmp(arguments[1], "linked")) {
        use(RTLD_DEFAULT);
        return puts("end") < 0;
    }
    if (!strcmp(arguments[1], "interrupted")) return interrupted(atoi(arguments[2]));
    if (!strcmp(arguments[1], "global")) flags |= RTLD_GLOBAL;
    if (!strcmp(arguments[1], "deep")) flags |= RTLD_DEEPBIND;
    for (int i = 2; i < count; i++) {
        /* Used by a thread, unloaded before that ends, and loaded again. */
        libraries[i] = dlopen(arguments[i], flags);
        if (!libraries[i]) return puts(dlerror());
        pthread_create(&thread, NULL, is_known, libraries[i]);
        pthread_join(thread, NULL);
        libraries[i] = dlopen(arguments[i], flags);
        if (!libraries[i]) return puts(dlerror());
    }
    for (int i = 2; i < count; i++) use(libraries[i]);
    for (int i = 2; i < count; i++) dlclose(libraries[i]);
    rest(50);
    return puts("end") < 0;
}
