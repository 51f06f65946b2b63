// A library that makes pthreads and joins them; they share a lock, and one makes another one.
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *inner(void *nothing) {
    usleep(1000);
    return nothing;
}

static void *count(void *nothing) {
    pthread_t made;
    pthread_mutex_lock(&lock);
    counted++;
    usleep(10);
    pthread_mutex_unlock(&lock);
    if (pthread_create(&made, NULL, inner, NULL) || pthread_join(made, NULL)) counted = -10000;
    return pthread_equal(pthread_self(), **(pthread_t **)nothing) ? nothing : NULL;
}

int library_threads(int all) {
    pthread_t made[1000], *places[1000];
    counted = 0;
    for (int at = 0; at < all; at++) places[at] = &made[at];
    for (int at = 0; at < all; at++)
        if (pthread_create(&made[at], NULL, count, &places[at])) return -1;
    for (int at = 0; at < all; at++) {
        void *value;
        if (pthread_join(made[at], &value)) return -2;
        if (value != &places[at]) return -3;
    }
    return counted;
}
