// Cancellation and signals where a thread is in a call that blocks its kernel thread, or in a signal handler.
#include "common.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static int ends[2], locked, inside, in_handler, read_in_handler, cleaned;
static pid_t child;

static void count(void *argument) {
    (void)argument;
    cleaned += 1;
}

// Has the lock on the file, and lives, until it is killed.
static void have_a_child(void) {
    int ready[2];
    char byte;
    OK(pipe(ready));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(lockf(locked, F_LOCK, 0));
        CHECK(write(ready[1], "", 1) == 1);
        for (;;) pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
}

static void in_lockf(void) { lockf(locked, F_LOCK, 0); }
static void in_waitpid(void) { waitpid(child, NULL, 0); }

static void in_a_handler(void) {
    OK(pthread_kill(pthread_self(), SIGUSR1));
}

static void pending(void) {
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) == 1) milliseconds(1);
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
}

static const struct {
    const char *name;
    void (*wait)(void);
} CASES[] = {{"lockf", in_lockf}, {"waitpid", in_waitpid}, {"a handler", in_a_handler}, {"pthread_setcanceltype", pending}};

static void *runs(void *argument) {
    pthread_cleanup_push(count, NULL);
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    CASES[(long)argument].wait();
    pthread_cleanup_pop(0);
    wrong(__FILE__, __LINE__, CASES[(long)argument].name, 0);
    return NULL;
}

// Waits for a byte. Nothing interrupts it but its own cancellation.
static void reads(int signal) {
    char byte;
    (void)signal;
    __atomic_store_n(&in_handler, 1, __ATOMIC_SEQ_CST);
    if (read(ends[0], &byte, 1) == 1) __atomic_add_fetch(&read_in_handler, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&in_handler, 0, __ATOMIC_SEQ_CST);
}

static void handled(int signal) {
    (void)signal;
    __atomic_store_n(&in_handler, 1, __ATOMIC_SEQ_CST);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(number, &action, NULL));
}

static void *parks(void *argument) {
    int other[2];
    char byte;
    OK(pipe(other));
    while (!__atomic_load_n(&inside, __ATOMIC_SEQ_CST)) FAILS(EINTR, read(other[0], &byte, 1));
    return argument;
}

// Waits for the lock: it gets it if no handler ends the call.
static void *locks(void *fails) {
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    if (fails) {
        FAILS(EINTR, lockf(locked, F_LOCK, 0));
    } else {
        OK(lockf(locked, F_LOCK, 0));
        OK(lockf(locked, F_ULOCK, 0));
    }
    return NULL;
}

static void until(int *flag, int value) {
    while (__atomic_load_n(flag, __ATOMIC_SEQ_CST) != value) milliseconds(1);
}

int main(void) {
    char name[] = "lockXXXXXX";
    locked = mkstemp(name);
    CHECK(locked >= 0);
    OK(unlink(name));
    OK(pipe(ends));
    have_a_child();
    handle(SIGUSR1, reads, 0);

    pthread_t thread;
    void *value = NULL;
    for (long i = 0; i < (long)(sizeof CASES / sizeof *CASES); i++) {
        cleaned = inside = in_handler = 0;
        OK(pthread_create(&thread, NULL, runs, (void *)i));
        until(CASES[i].wait == in_a_handler ? &in_handler : &inside, 1);
        milliseconds(20);
        OK(pthread_cancel(thread));
        __atomic_store_n(&inside, 2, __ATOMIC_SEQ_CST);
        OK(pthread_join(thread, &value));
        CHECK(value == PTHREAD_CANCELED);
        CHECK(cleaned == 1);
        printf("cancelled in %s\n", CASES[i].name);
    }

    // A handler that waits is not interrupted by what has called it.
    inside = in_handler = 0;
    OK(pthread_create(&thread, NULL, parks, NULL));
    milliseconds(20);
    for (int round = 1; round <= 100; round++) {
        OK(pthread_kill(thread, SIGUSR1));
        until(&in_handler, 1);
        milliseconds(round % 10 ? 0 : 25);
        CHECK(write(ends[1], "", 1) == 1);
        until(&in_handler, 0);
        if (read_in_handler != round) wrong(__FILE__, __LINE__, "a read in a handler was interrupted", round);
    }
    printf("100 handlers have waited\n");
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    OK(pthread_kill(thread, SIGUSR1));
    CHECK(write(ends[1], "", 1) == 1);
    OK(pthread_join(thread, NULL));

    // A call that blocks its kernel thread is made again, or not, as the handler says.
    for (long fails = 0; fails < 2; fails++) {
        handle(SIGUSR2, handled, fails ? 0 : SA_RESTART);
        inside = in_handler = 0;
        OK(pthread_create(&thread, NULL, locks, (void *)fails));
        until(&inside, 1);
        milliseconds(20);
        OK(pthread_kill(thread, SIGUSR2));
        until(&in_handler, 1);
        milliseconds(20);
        if (!fails) {
            OK(kill(child, SIGKILL));
            CHECK(waitpid(child, NULL, 0) == child);
        }
        OK(pthread_join(thread, NULL));
        if (!fails) have_a_child();
    }
    OK(kill(child, SIGKILL));
    printf("restarts, and does not\n");
    return 0;
}
