// Answers of mutexes of each kind, of read-write locks, spin locks, barriers, and of condition variables with a limit.
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

static pthread_mutex_t mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static pthread_cond_t condition;
static int serial, counted;

static void *answer_of(void *(*function)(void *)) {
    pthread_t thread;
    void *value;
    OK(pthread_create(&thread, NULL, function, NULL));
    OK(pthread_join(thread, &value));
    return value;
}

static void *tries(void *unused) {
    (void)unused;
    return (void *)(long)pthread_mutex_trylock(&mutex);
}

static void *unlocks(void *unused) {
    (void)unused;
    return (void *)(long)pthread_mutex_unlock(&mutex);
}

static void *times_out(void *unused) {
    (void)unused;
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 20);
    ANSWERS(ETIMEDOUT, pthread_mutex_timedlock(&mutex, &then));
    then = in_milliseconds(CLOCK_MONOTONIC, 20);
    return (void *)(long)pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &then);
}

static void *locks_and_ends(void *unused) {
    OK(pthread_mutex_lock(&mutex));
    return unused;
}

static void make(int kind, int robust, int shared) {
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_settype(&attributes, kind));
    if (robust) OK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    if (shared) OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(&mutex, &attributes));
    OK(pthread_mutexattr_destroy(&attributes));
}

static void *tries_to_read(void *unused) {
    (void)unused;
    int answer = pthread_rwlock_tryrdlock(&rwlock);
    if (answer == 0) OK(pthread_rwlock_unlock(&rwlock));
    return (void *)(long)answer;
}

static void *tries_to_write(void *unused) {
    (void)unused;
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 20);
    if (pthread_rwlock_trywrlock(&rwlock) == 0) return 0;
    return (void *)(long)pthread_rwlock_timedwrlock(&rwlock, &then);
}

static void *counts(void *unused) {
    for (int i = 0; i < 1000; i++) {
        OK(pthread_spin_lock(&spin));
        counted += 1;
        OK(pthread_spin_unlock(&spin));
    }
    return unused;
}

static void *meets(void *unused) {
    for (int i = 0; i < 50; i++) {
        int answer = pthread_barrier_wait(&barrier);
        if (answer == PTHREAD_BARRIER_SERIAL_THREAD) __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
        else OK(answer);
    }
    return unused;
}

int main(void) {
    make(PTHREAD_MUTEX_NORMAL, 0, 0);
    OK(pthread_mutex_lock(&mutex));
    CHECK(answer_of(tries) == (void *)EBUSY);
    CHECK(answer_of(times_out) == (void *)ETIMEDOUT);
    ANSWERS(EBUSY, pthread_mutex_trylock(&mutex));
    ANSWERS(EBUSY, pthread_mutex_destroy(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_destroy(&mutex));
    puts("normal");

    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    ANSWERS(EPERM, pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_lock(&mutex));
    ANSWERS(EDEADLK, pthread_mutex_lock(&mutex));
    CHECK(answer_of(unlocks) == (void *)EPERM);
    CHECK(answer_of(tries) == (void *)EBUSY);
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_destroy(&mutex));
    puts("errorcheck");

    make(PTHREAD_MUTEX_RECURSIVE, 0, 0);
    for (int i = 0; i < 10; i++) OK(i % 2 ? pthread_mutex_lock(&mutex) : pthread_mutex_trylock(&mutex));
    for (int i = 0; i < 10; i++) {
        CHECK(answer_of(tries) == (void *)EBUSY);
        CHECK(answer_of(unlocks) == (void *)EPERM);
        OK(pthread_mutex_unlock(&mutex));
    }
    ANSWERS(EPERM, pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_destroy(&mutex));
    puts("recursive");

    for (int shared = 0; shared < 2; shared++) {
        make(PTHREAD_MUTEX_NORMAL, 1, shared);
        answer_of(locks_and_ends);
        ANSWERS(EOWNERDEAD, pthread_mutex_lock(&mutex));
        OK(pthread_mutex_consistent(&mutex));
        OK(pthread_mutex_unlock(&mutex));
        answer_of(locks_and_ends);
        ANSWERS(EOWNERDEAD, pthread_mutex_trylock(&mutex));
        OK(pthread_mutex_unlock(&mutex));
        ANSWERS(ENOTRECOVERABLE, pthread_mutex_lock(&mutex));
        OK(pthread_mutex_destroy(&mutex));
    }
    puts("robust");

    pthread_mutex_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(shared, &attributes));
    int *number = (int *)(shared + 1);
    fflush(stdout);
    pid_t child = fork();
    for (int i = 0; i < 10000; i++) {
        OK(pthread_mutex_lock(shared));
        *number += 1;
        OK(pthread_mutex_unlock(shared));
    }
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(*number == 20000);
    puts("between processes");

    OK(pthread_rwlock_rdlock(&rwlock));
    CHECK(answer_of(tries_to_read) == 0);
    CHECK(answer_of(tries_to_write) == (void *)ETIMEDOUT);
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_wrlock(&rwlock));
    ANSWERS(EDEADLK, pthread_rwlock_wrlock(&rwlock));
    ANSWERS(EDEADLK, pthread_rwlock_rdlock(&rwlock));
    CHECK(answer_of(tries_to_read) == (void *)EBUSY);
    CHECK(answer_of(tries_to_write) == (void *)ETIMEDOUT);
    OK(pthread_rwlock_unlock(&rwlock));
    puts("read-write locks");

    pthread_t threads[8];
    OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    for (int i = 0; i < 8; i++) OK(pthread_create(&threads[i], NULL, counts, NULL));
    for (int i = 0; i < 8; i++) OK(pthread_join(threads[i], NULL));
    OK(pthread_spin_trylock(&spin));
    ANSWERS(EBUSY, pthread_spin_trylock(&spin));
    OK(pthread_spin_unlock(&spin));
    CHECK(counted == 8000);
    puts("spin locks");

    ANSWERS(EINVAL, pthread_barrier_init(&barrier, NULL, 0));
    OK(pthread_barrier_init(&barrier, NULL, 8));
    for (int i = 0; i < 8; i++) OK(pthread_create(&threads[i], NULL, meets, NULL));
    for (int i = 0; i < 8; i++) OK(pthread_join(threads[i], NULL));
    OK(pthread_barrier_destroy(&barrier));
    CHECK(serial == 50);
    puts("barriers");

    pthread_condattr_t of_condition;
    OK(pthread_condattr_init(&of_condition));
    OK(pthread_condattr_setclock(&of_condition, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&condition, &of_condition));
    make(PTHREAD_MUTEX_NORMAL, 0, 0);
    OK(pthread_mutex_lock(&mutex));
    struct timespec then = in_milliseconds(CLOCK_MONOTONIC, 20);
    int answer;
    do answer = pthread_cond_timedwait(&condition, &mutex, &then);
    while (answer == 0);
    CHECK(answer == ETIMEDOUT);
    then = in_milliseconds(CLOCK_REALTIME, 20);
    do answer = pthread_cond_clockwait(&condition, &mutex, CLOCK_REALTIME, &then);
    while (answer == 0);
    CHECK(answer == ETIMEDOUT);
    CHECK(answer_of(tries) == (void *)EBUSY);
    OK(pthread_mutex_unlock(&mutex));
    then.tv_nsec = -1;
    ANSWERS(EINVAL, pthread_cond_timedwait(&condition, &mutex, &then));
    OK(pthread_cond_destroy(&condition));
    puts("condition variables");
    return 0;
}
