// Cancellation in the calls that wait: handlers run, those of pthread_cond_wait with the mutex locked again.
#include "common.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int ends[2], sockets[2], cleaned, inside;
static sem_t semaphore;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_t sleeper;
static char byte;

static void count(void *argument) {
    (void)argument;
    cleaned += 1;
}

static void unlock(void *argument) {
    (void)argument;
    // The mutex is this thread's: nobody else can have it, and unlocking succeeds.
    CHECK(pthread_mutex_trylock(&lock) == EBUSY);
    OK(pthread_mutex_unlock(&lock));
    cleaned += 10;
}

static void in_testcancel(void) { for (;;) pthread_testcancel(); }
static void in_pause(void) { pause(); }
static void in_read(void) { read(ends[0], &byte, 1); }
static void in_recv(void) { recv(sockets[0], &byte, 1, 0); }
static void in_poll(void) { poll(NULL, 0, -1); }
static void in_select(void) { select(0, NULL, NULL, NULL, NULL); }
static void in_sleep(void) { sleep(1000); }
static void in_join(void) { pthread_join(sleeper, NULL); }
static void in_sem_wait(void) { sem_wait(&semaphore); }

static void in_nanosleep(void) {
    struct timespec long_time = {1000, 0};
    nanosleep(&long_time, NULL);
}

static void in_clock_nanosleep(void) {
    struct timespec then = in_milliseconds(CLOCK_MONOTONIC, 1000000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
}

static void in_sem_timedwait(void) {
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 1000000);
    sem_timedwait(&semaphore, &then);
}

static void in_cond_wait(void) {
    OK(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, NULL);
    for (;;) pthread_cond_wait(&condition, &lock);
    pthread_cleanup_pop(0);
}

static void in_cond_timedwait(void) {
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 1000000);
    OK(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, NULL);
    for (;;) pthread_cond_timedwait(&condition, &lock, &then);
    pthread_cleanup_pop(0);
}

static void in_sigwait(void) {
    sigset_t set;
    int got;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigwait(&set, &got);
}

static const struct {
    const char *name;
    void (*wait)(void);
    int cleans;
} CASES[] = {
    {"pthread_testcancel", in_testcancel, 1}, {"pause", in_pause, 1}, {"read", in_read, 1}, {"recv", in_recv, 1},
    {"poll", in_poll, 1}, {"select", in_select, 1}, {"sleep", in_sleep, 1}, {"nanosleep", in_nanosleep, 1},
    {"clock_nanosleep", in_clock_nanosleep, 1}, {"sem_wait", in_sem_wait, 1}, {"sem_timedwait", in_sem_timedwait, 1},
    {"pthread_join", in_join, 1}, {"pthread_cond_wait", in_cond_wait, 11},
    {"pthread_cond_timedwait", in_cond_timedwait, 11}, {"sigwait", in_sigwait, 1},
};

static void *runs(void *argument) {
    pthread_cleanup_push(count, NULL);
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    CASES[(long)argument].wait();
    pthread_cleanup_pop(0);
    wrong(__FILE__, __LINE__, CASES[(long)argument].name, 0);
    return NULL;
}

static void *cancelled_before(void *argument) {
    // It arrives at the call with the request pending.
    while (!__atomic_load_n(&inside, __ATOMIC_SEQ_CST)) {}
    return runs(argument);
}

static void *sleeps(void *argument) {
    in_nanosleep();
    return argument;
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    OK(pipe(ends));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    OK(sem_init(&semaphore, 0, 0));
    OK(pthread_create(&sleeper, NULL, sleeps, NULL));
    for (long i = 0; i < (long)(sizeof CASES / sizeof *CASES); i++) {
        for (int before = 0; before < 2; before++) {
            pthread_t thread;
            void *value = NULL;
            cleaned = inside = 0;
            OK(pthread_create(&thread, NULL, before ? cancelled_before : runs, (void *)i));
            if (before) {
                OK(pthread_cancel(thread));
                __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
            } else {
                while (!__atomic_load_n(&inside, __ATOMIC_SEQ_CST)) milliseconds(1);
                milliseconds(10);
                OK(pthread_cancel(thread));
            }
            OK(pthread_join(thread, &value));
            CHECK(value == PTHREAD_CANCELED);
            if (cleaned != CASES[i].cleans) wrong(__FILE__, __LINE__, CASES[i].name, cleaned);
            // The lock is free again.
            OK(pthread_mutex_lock(&lock));
            OK(pthread_mutex_unlock(&lock));
        }
        printf("cancelled in %s\n", CASES[i].name);
    }
    // A cancelled join leaves the thread joinable.
    void *value;
    OK(pthread_cancel(sleeper));
    OK(pthread_join(sleeper, &value));
    CHECK(value == PTHREAD_CANCELED);
    // Nothing of the cancelled is left in the semaphore or the pipe.
    OK(sem_post(&semaphore));
    OK(sem_trywait(&semaphore));
    FAILS(EAGAIN, sem_trywait(&semaphore));
    return 0;
}
