// C++'s locks, call_once with exceptions, condition variables with limits.
#include "common.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

template <class F> static void at_once(int count, F function) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) threads.emplace_back(function, i);
    for (auto &thread : threads) thread.join();
}

template <class F> static bool elsewhere(F function) {
    bool answer = false;
    std::thread([&] { answer = function(); }).join();
    return answer;
}

int main() {
    std::mutex mutex;
    std::recursive_mutex recursive;
    int counted = 0;
    at_once(20, [&](int) {
        for (int i = 0; i < 500; i++) {
            std::scoped_lock both(mutex, recursive);
            std::lock_guard once_more(recursive);
            counted++;
        }
    });
    CHECK(counted == 10000);
    mutex.lock();
    CHECK(!elsewhere([&] { return mutex.try_lock(); }));
    mutex.unlock();
    puts("mutexes");

    std::timed_mutex timed;
    std::recursive_timed_mutex recursive_timed;
    timed.lock();
    recursive_timed.lock();
    CHECK(recursive_timed.try_lock_for(1ms));
    CHECK(!elsewhere([&] { return timed.try_lock_for(10ms); }));
    CHECK(!elsewhere([&] { return timed.try_lock_until(std::chrono::system_clock::now() + 10ms); }));
    CHECK(!elsewhere([&] { return timed.try_lock_until(std::chrono::steady_clock::now() + 10ms); }));
    CHECK(!elsewhere([&] { return recursive_timed.try_lock_for(10ms); }));
    std::thread waiter([&] {
        CHECK(timed.try_lock_for(20s));
        timed.unlock();
    });
    std::this_thread::sleep_for(10ms);
    timed.unlock();
    waiter.join();
    recursive_timed.unlock();
    recursive_timed.unlock();
    puts("timed ones");

    std::shared_timed_mutex shared;
    std::shared_mutex other;
    std::atomic<int> readers = 0, most = 0;
    int written = 0;
    at_once(20, [&](int mine) {
        for (int i = 0; i < 50; i++) {
            if (mine % 5 == 0) {
                std::unique_lock lock(other);
                CHECK(readers == 0);
                written++;
            } else {
                std::shared_lock lock(other);
                int now = ++readers;
                for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {}
                std::this_thread::sleep_for(100us);
                readers--;
            }
        }
    });
    CHECK(written == 200 && most > 1);
    shared.lock_shared();
    CHECK(elsewhere([&] { return shared.try_lock_shared_for(10ms) && (shared.unlock_shared(), true); }));
    CHECK(!elsewhere([&] { return shared.try_lock_for(10ms); }));
    shared.unlock_shared();
    shared.lock();
    CHECK(!elsewhere([&] { return shared.try_lock_shared_until(std::chrono::steady_clock::now() + 10ms); }));
    shared.unlock();
    puts("shared ones");

    std::once_flag flag;
    std::atomic<int> begun = 0, thrown = 0, done = 0;
    at_once(20, [&](int) {
        try {
            std::call_once(flag, [&] {
                if (begun++ < 3) {
                    std::this_thread::sleep_for(1ms);
                    throw std::runtime_error("once more");
                }
                done++;
            });
            CHECK(done == 1);
        } catch (const std::runtime_error &) {
            thrown++;
        }
    });
    CHECK(begun == 4 && thrown == 3 && done == 1);
    static std::atomic<int> statics;
    at_once(20, [](int) {
        static int slow = [] {
            std::this_thread::sleep_for(2ms);
            return ++statics;
        }();
        CHECK(slow == 1);
    });
    puts("once");

    std::condition_variable condition;
    bool ready = false;
    {
        std::unique_lock lock(mutex);
        CHECK(!condition.wait_for(lock, 10ms, [&] { return ready; }));
        CHECK(!condition.wait_until(lock, std::chrono::system_clock::now() + 10ms, [&] { return ready; }));
        CHECK(!condition.wait_until(lock, std::chrono::steady_clock::now() + 10ms, [&] { return ready; }));
        CHECK(lock.owns_lock());
    }
    std::thread sets([&] {
        std::unique_lock lock(mutex);
        ready = true;
        // The waiter hears of it when this thread has ended.
        std::notify_all_at_thread_exit(condition, std::move(lock));
    });
    {
        std::unique_lock lock(mutex);
        condition.wait(lock, [&] { return ready; });
    }
    sets.join();
    puts("condition variables");
    return 0;
}
