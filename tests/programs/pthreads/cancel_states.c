// When a request counts: states and types, requests that stay pending, calls that are no points of cancellation, keys'
// destructors of the cancelled, and a cancelled thread that waits in a handler.
#include "common.h"
#include <semaphore.h>

static sem_t ready, go;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static int destroyed, cleaned;

static void destroys(void *value) {
    (void)value;
    destroyed += 1;
}

static void *disabled(void *argument) {
    int before;
    OK(pthread_setspecific(key, "x"));
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
    CHECK(before == PTHREAD_CANCEL_ENABLE);
    sem_post(&ready);
    while (sem_wait(&go)) {}
    // The request is there.
    pthread_testcancel();
    milliseconds(5);
    cleaned = 1;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before));
    CHECK(before == PTHREAD_CANCEL_DISABLE);
    if (argument) pthread_exit(argument);
    pthread_testcancel();
    wrong(__FILE__, __LINE__, "the request is pending", 0);
    return NULL;
}

static void *no_point(void *argument) {
    sem_post(&ready);
    // Waiting for a mutex is no point of cancellation.
    OK(pthread_mutex_lock(&lock));
    OK(pthread_mutex_unlock(&lock));
    cleaned = 2;
    return argument;
}

static void *asynchronous(void *argument) {
    int before;
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before));
    CHECK(before == PTHREAD_CANCEL_DEFERRED);
    sem_post(&ready);
    // Green threads are cancelled in calls only.
    for (volatile unsigned long turns = 0;; turns++) {
        if (turns % 100000 == 0) milliseconds(0);
    }
    return argument;
}

static void waits_in_handler(void *argument) {
    (void)argument;
    milliseconds(20);
    OK(pthread_mutex_lock(&lock));
    cleaned = 3;
    OK(pthread_mutex_unlock(&lock));
}

static void *with_handler(void *argument) {
    pthread_cleanup_push(waits_in_handler, NULL);
    sem_post(&ready);
    while (sem_wait(&go)) {}
    pthread_cleanup_pop(0);
    return argument;
}

static void *cancels_itself(void *argument) {
    OK(pthread_cancel(pthread_self()));
    cleaned = 4;
    pthread_testcancel();
    return argument;
}

static void *ends(void *argument) {
    sem_post(&ready);
    return argument;
}

static void *cancelled(pthread_t thread) {
    void *value;
    OK(pthread_cancel(thread));
    OK(pthread_join(thread, &value));
    return value;
}

static pthread_t begin(void *(*function)(void *), void *argument) {
    pthread_t thread;
    cleaned = 0;
    OK(pthread_create(&thread, NULL, function, argument));
    return thread;
}

int main(void) {
    OK(sem_init(&ready, 0, 0));
    OK(sem_init(&go, 0, 0));
    OK(pthread_key_create(&key, destroys));
    ANSWERS(EINVAL, pthread_setcancelstate(12345, NULL));
    ANSWERS(EINVAL, pthread_setcanceltype(12345, NULL));

    void *value;
    for (long exits = 0; exits < 2; exits++) {
        pthread_t thread = begin(disabled, (void *)exits);
        OK(sem_wait(&ready));
        OK(pthread_cancel(thread));
        OK(pthread_cancel(thread));
        OK(sem_post(&go));
        OK(pthread_join(thread, &value));
        CHECK(value == (exits ? (void *)1 : PTHREAD_CANCELED));
        CHECK(cleaned == 1 && destroyed == exits + 1);
    }
    puts("a request waits until cancellation is enabled");

    OK(pthread_mutex_lock(&lock));
    pthread_t thread = begin(no_point, (void *)2);
    OK(sem_wait(&ready));
    milliseconds(10);
    OK(pthread_cancel(thread));
    milliseconds(10);
    CHECK(cleaned == 0);
    OK(pthread_mutex_unlock(&lock));
    OK(pthread_join(thread, &value));
    CHECK(value == (void *)2 && cleaned == 2);
    puts("a mutex is no point of cancellation");

    thread = begin(asynchronous, NULL);
    OK(sem_wait(&ready));
    milliseconds(5);
    CHECK(cancelled(thread) == PTHREAD_CANCELED);
    puts("asynchronous");

    thread = begin(with_handler, NULL);
    OK(sem_wait(&ready));
    CHECK(cancelled(thread) == PTHREAD_CANCELED);
    CHECK(cleaned == 3);
    puts("a handler that waits");

    thread = begin(cancels_itself, NULL);
    OK(pthread_join(thread, &value));
    CHECK(value == PTHREAD_CANCELED && cleaned == 4);
    puts("itself");

    thread = begin(ends, (void *)6);
    OK(sem_wait(&ready));
    milliseconds(20);
    CHECK(cancelled(thread) == (void *)6);
    puts("one that has ended");

    static pthread_t many[300];
    for (int i = 0; i < 300; i++) many[i] = begin(with_handler, NULL);
    for (int i = 0; i < 300; i++) OK(sem_wait(&ready));
    for (int i = 0; i < 300; i++) OK(pthread_cancel(many[i]));
    for (int i = 0; i < 300; i++) {
        OK(pthread_join(many[i], &value));
        CHECK(value == PTHREAD_CANCELED);
    }
    puts("three hundred");
    return 0;
}
