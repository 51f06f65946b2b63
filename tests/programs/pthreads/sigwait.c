// A thread of its own for signals, which all others block; signals to one thread, and who has which mask.
#include "common.h"
#include <semaphore.h>
#include <signal.h>

static sigset_t all;
static sem_t got, go;
static int counts[65];

static void *takes(void *argument) {
    for (;;) {
        int number;
        OK(sigwait(&all, &number));
        counts[number] += 1;
        sem_post(&got);
        if (number == SIGTERM) return argument;
    }
}

static void *takes_own(void *argument) {
    siginfo_t info;
    struct timespec limit = {0, 10000000};
    FAILS(EAGAIN, sigtimedwait(&all, &info, &limit));
    sem_post(&got);
    int number;
    while ((number = sigwaitinfo(&all, &info)) == -1 && errno == EINTR) {}
    CHECK(number == SIGUSR2 && info.si_signo == SIGUSR2);
    CHECK(info.si_pid == getpid());
    return argument;
}

static void *takes_queued(void *argument) {
    sem_post(&got);
    while (sem_wait(&go)) {}
    for (int i = 0; i < 5; i++) {
        siginfo_t info;
        CHECK(sigwaitinfo(&all, &info) == SIGRTMIN);
        CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == i);
    }
    sigset_t pending;
    OK(sigpending(&pending));
    CHECK(!sigismember(&pending, SIGRTMIN));
    return argument;
}

static void *inherits(void *argument) {
    sigset_t mask;
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1) == (argument != NULL));
    // Of this thread alone.
    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    OK(pthread_sigmask(SIG_SETMASK, &mask, NULL));
    milliseconds(5);
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    CHECK(sigismember(&mask, SIGWINCH) && !sigismember(&mask, SIGUSR1));
    return argument;
}

int main(void) {
    sigemptyset(&all);
    sigaddset(&all, SIGUSR1);
    sigaddset(&all, SIGUSR2);
    sigaddset(&all, SIGHUP);
    sigaddset(&all, SIGTERM);
    sigaddset(&all, SIGRTMIN);
    pthread_t thread;
    OK(sem_init(&got, 0, 0));
    OK(sem_init(&go, 0, 0));

    OK(pthread_create(&thread, NULL, inherits, NULL));
    OK(pthread_join(thread, NULL));
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    OK(pthread_create(&thread, NULL, inherits, (void *)1));
    OK(pthread_join(thread, NULL));
    sigset_t mask;
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGWINCH));
    puts("masks");

    OK(pthread_create(&thread, NULL, takes, NULL));
    int numbers[] = {SIGUSR1, SIGHUP, SIGUSR2, SIGUSR1, SIGTERM};
    for (int i = 0; i < 5; i++) {
        OK(kill(getpid(), numbers[i]));
        while (sem_wait(&got)) {}
    }
    OK(pthread_join(thread, NULL));
    CHECK(counts[SIGUSR1] == 2 && counts[SIGHUP] == 1 && counts[SIGUSR2] == 1 && counts[SIGTERM] == 1);
    puts("a thread for signals");

    pthread_t other;
    OK(pthread_create(&thread, NULL, takes_own, (void *)1));
    while (sem_wait(&got)) {}
    OK(pthread_create(&other, NULL, takes, NULL));
    milliseconds(10);
    OK(pthread_kill(thread, SIGUSR2));
    OK(pthread_join(thread, NULL));
    OK(pthread_kill(other, SIGTERM));
    while (sem_wait(&got)) {}
    OK(pthread_join(other, NULL));
    CHECK(counts[SIGUSR2] == 1);
    puts("to one thread");

    OK(pthread_create(&thread, NULL, takes_queued, NULL));
    while (sem_wait(&got)) {}
    for (int i = 0; i < 5; i++) {
        union sigval value;
        memset(&value, 0, sizeof value);
        value.sival_int = i;
        OK(pthread_sigqueue(thread, SIGRTMIN, value));
    }
    sigset_t pending;
    OK(sigpending(&pending));
    CHECK(!sigismember(&pending, SIGRTMIN));
    OK(sem_post(&go));
    OK(pthread_join(thread, NULL));
    puts("queued ones, in order");
    return 0;
}
