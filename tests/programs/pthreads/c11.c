// C11's threads: thrd_*, tss_*, mtx_*, cnd_*, call_once.
#include "common.h"
#include <threads.h>

static mtx_t lock;
static cnd_t changed;
static tss_t key;
static once_flag flag = ONCE_FLAG_INIT;
static int turn, ended, calls, destroyed;

static void destroys(void *value) {
    mtx_lock(&lock);
    destroyed += (int)(long)value;
    mtx_unlock(&lock);
}

static void once(void) {
    thrd_yield();
    calls += 1;
}

static int returns(void *argument) { return (int)(long)argument; }

__attribute__((noinline)) static void leaves(int with) { thrd_exit(with); }

static int exits(void *argument) {
    tss_set(key, (void *)1);
    leaves((int)(long)argument);
    return -1;
}

static int takes_turns(void *argument) {
    int mine = (int)(long)argument;
    call_once(&flag, once);
    CHECK(calls == 1);
    for (int i = 0; i < 100; i++) {
        CHECK(mtx_lock(&lock) == thrd_success);
        while (turn % 4 != mine) CHECK(cnd_wait(&changed, &lock) == thrd_success);
        turn += 1;
        CHECK(cnd_broadcast(&changed) == thrd_success);
        CHECK(mtx_unlock(&lock) == thrd_success);
    }
    return mine;
}

static int detached(void *argument) {
    (void)argument;
    CHECK(mtx_lock(&lock) == thrd_success);
    ended += 1;
    CHECK(cnd_signal(&changed) == thrd_success);
    CHECK(mtx_unlock(&lock) == thrd_success);
    return 0;
}

static int finds_it_locked(void *argument) {
    mtx_t *mutex = argument;
    CHECK(mtx_trylock(mutex) == thrd_busy);
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 20);
    CHECK(mtx_timedlock(mutex, &then) == thrd_timedout);
    return 0;
}

static int knows_itself(void *argument) {
    thrd_t *self = argument;
    *self = thrd_current();
    CHECK(tss_get(key) == NULL);
    CHECK(tss_set(key, (void *)1) == thrd_success);
    thrd_yield();
    CHECK(tss_get(key) == (void *)1);
    return 0;
}

int main(void) {
    CHECK(mtx_init(&lock, mtx_plain) == thrd_success);
    CHECK(cnd_init(&changed) == thrd_success);
    CHECK(tss_create(&key, destroys) == thrd_success);
    thrd_t thread, self, many[4];
    int result;

    CHECK(thrd_create(&thread, returns, (void *)-5) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == -5);
    CHECK(thrd_create(&thread, exits, (void *)77) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == 77);
    CHECK(destroyed == 1);
    CHECK(thrd_create(&thread, returns, NULL) == thrd_success);
    CHECK(thrd_join(thread, NULL) == thrd_success);
    puts("results");

    CHECK(thrd_create(&thread, knows_itself, &self) == thrd_success);
    thrd_t kept = thread;
    CHECK(!thrd_equal(thrd_current(), thread));
    CHECK(thrd_join(thread, NULL) == thrd_success);
    CHECK(thrd_equal(self, kept) && thrd_equal(thrd_current(), thrd_current()));
    CHECK(destroyed == 2);
    puts("identity");

    for (long i = 0; i < 4; i++) CHECK(thrd_create(&many[i], takes_turns, (void *)i) == thrd_success);
    for (int i = 0; i < 4; i++) CHECK(thrd_join(many[i], &result) == thrd_success && result == i);
    CHECK(turn == 400 && calls == 1);
    puts("turns");

    for (int i = 0; i < 200; i++) {
        CHECK(thrd_create(&thread, detached, NULL) == thrd_success);
        CHECK(thrd_detach(thread) == thrd_success);
    }
    CHECK(mtx_lock(&lock) == thrd_success);
    while (ended < 200) CHECK(cnd_wait(&changed, &lock) == thrd_success);
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 20);
    CHECK(cnd_timedwait(&changed, &lock, &then) == thrd_timedout);
    CHECK(mtx_unlock(&lock) == thrd_success);
    puts("detached");

    mtx_t other;
    CHECK(mtx_init(&other, mtx_timed | mtx_recursive) == thrd_success);
    CHECK(mtx_lock(&other) == thrd_success && mtx_trylock(&other) == thrd_success);
    CHECK(thrd_create(&thread, finds_it_locked, &other) == thrd_success);
    CHECK(thrd_join(thread, NULL) == thrd_success);
    CHECK(mtx_unlock(&other) == thrd_success && mtx_unlock(&other) == thrd_success);
    mtx_destroy(&other);
    puts("mutexes");

    struct timespec brief = {0, 20000000};
    long before = now_in_milliseconds();
    CHECK(thrd_sleep(&brief, NULL) == 0);
    CHECK(now_in_milliseconds() - before >= 19);
    brief.tv_nsec = -1;
    CHECK(thrd_sleep(&brief, NULL) < 0);
    tss_delete(key);
    cnd_destroy(&changed);
    mtx_destroy(&lock);
    puts("sleep");
    return 0;
}
