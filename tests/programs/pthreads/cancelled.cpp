// Cancellation and pthread_exit in C++: destructors run, catch (...) sees it and must let it go on.
#include "common.h"
#include <atomic>
#include <condition_variable>
#include <cxxabi.h>
#include <mutex>
#include <semaphore.h>
#include <string>

static std::atomic<int> destroyed, caught, inside;
static sem_t never;
static std::mutex mutex;
static std::condition_variable condition;

struct Counted {
    std::string text = "a string that is longer than what is kept inside of it";
    ~Counted() { destroyed++; }
};

static thread_local Counted local;

__attribute__((noinline)) static void waits(int depth, bool exits) {
    Counted here;
    if (depth > 0) {
        waits(depth - 1, exits);
        return;
    }
    inside++;
    if (exits) pthread_exit((void *)12);
    while (inside) sem_wait(&never);
}

static void *runs(void *exits) {
    CHECK(local.text.size() == 54);
    try {
        waits(4, exits);
    } catch (abi::__forced_unwind &) {
        caught++;
        throw;
    } catch (...) {
        CHECK(false);
    }
    return nullptr;
}

static void *holds(void *) {
    std::unique_lock lock(mutex);
    Counted here;
    inside++;
    // Cancelled, it has the lock again, and its guard gives it back.
    for (;;) pthread_cond_wait(condition.native_handle(), mutex.native_handle());
}

static void *end(void *(*function)(void *), void *argument) {
    pthread_t thread;
    void *value;
    destroyed = caught = inside = 0;
    OK(pthread_create(&thread, nullptr, function, argument));
    while (!inside) milliseconds(1);
    milliseconds(5);
    if (!argument) OK(pthread_cancel(thread));
    OK(pthread_join(thread, &value));
    return value;
}

int main() {
    OK(sem_init(&never, 0, 0));
    for (int i = 0; i < 20; i++) {
        CHECK(end(runs, nullptr) == PTHREAD_CANCELED);
        CHECK(destroyed == 6 && caught == 1);
    }
    puts("cancelled");
    for (int i = 0; i < 20; i++) {
        CHECK(end(runs, (void *)1) == (void *)12);
        CHECK(destroyed == 6 && caught == 1);
    }
    puts("pthread_exit");
    for (int i = 0; i < 20; i++) {
        CHECK(end(holds, nullptr) == PTHREAD_CANCELED);
        CHECK(destroyed == 1);
        std::unique_lock lock(mutex, std::try_to_lock);
        CHECK(lock.owns_lock());
    }
    puts("with a lock");
    return 0;
}
