// Joins with and without a limit, of threads that run, that have ended, of oneself; detached threads.
#include "common.h"
#include <semaphore.h>

static sem_t go, detached_ended;

static void *waits(void *argument) {
    while (sem_wait(&go)) {}
    return argument;
}

static void *joins_itself(void *argument) {
    (void)argument;
    ANSWERS(EDEADLK, pthread_join(pthread_self(), NULL));
    return (void *)1;
}

static void *detaches_itself(void *argument) {
    OK(pthread_detach(pthread_self()));
    sem_post(&detached_ended);
    return argument;
}

static void *posts(void *argument) {
    sem_post(&detached_ended);
    return argument;
}

int main(void) {
    OK(sem_init(&go, 0, 0));
    OK(sem_init(&detached_ended, 0, 0));
    pthread_t thread;
    void *value = NULL;

    OK(pthread_create(&thread, NULL, waits, (void *)5));
    ANSWERS(EBUSY, pthread_tryjoin_np(thread, &value));
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 30);
    ANSWERS(ETIMEDOUT, pthread_timedjoin_np(thread, &value, &then));
    ANSWERS(ETIMEDOUT, pthread_timedjoin_np(thread, &value, &then));
    long before = now_in_milliseconds();
    then = in_milliseconds(CLOCK_MONOTONIC, 30);
    ANSWERS(ETIMEDOUT, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &then));
    CHECK(now_in_milliseconds() - before >= 29);
    ANSWERS(EINVAL, pthread_clockjoin_np(thread, &value, CLOCK_PROCESS_CPUTIME_ID, &then));
    sem_post(&go);
    then = in_milliseconds(CLOCK_MONOTONIC, 20000);
    OK(pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &then));
    CHECK(value == (void *)5);
    puts("clockjoin");

    OK(pthread_create(&thread, NULL, waits, (void *)6));
    sem_post(&go);
    then = in_milliseconds(CLOCK_REALTIME, 20000);
    OK(pthread_timedjoin_np(thread, &value, &then));
    CHECK(value == (void *)6);
    puts("timedjoin");

    OK(pthread_create(&thread, NULL, waits, (void *)7));
    sem_post(&go);
    int answer;
    while ((answer = pthread_tryjoin_np(thread, &value)) == EBUSY) milliseconds(1);
    CHECK(answer == 0 && value == (void *)7);
    puts("tryjoin");

    OK(pthread_create(&thread, NULL, waits, (void *)8));
    sem_post(&go);
    milliseconds(20);
    OK(pthread_timedjoin_np(thread, &value, NULL));
    CHECK(value == (void *)8);
    puts("join of one that has ended");

    OK(pthread_create(&thread, NULL, joins_itself, NULL));
    OK(pthread_join(thread, &value));
    CHECK(value == (void *)1);
    ANSWERS(EDEADLK, pthread_join(pthread_self(), NULL));
    puts("join of oneself");

    OK(pthread_create(&thread, NULL, waits, NULL));
    OK(pthread_detach(thread));
    ANSWERS(EINVAL, pthread_join(thread, NULL));
    ANSWERS(EINVAL, pthread_detach(thread));
    sem_post(&go);
    for (int i = 0; i < 200; i++) {
        OK(pthread_create(&thread, NULL, i % 2 ? detaches_itself : posts, NULL));
        if (i % 2 == 0) OK(pthread_detach(thread));
    }
    for (int i = 0; i < 200; i++) OK(sem_wait(&detached_ended));
    puts("detached ones");

    CHECK(pthread_equal(pthread_self(), pthread_self()));
    return 0;
}
