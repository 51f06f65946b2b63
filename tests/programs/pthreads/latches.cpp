// C++20: latches, barriers, semaphores, and waits for atomics.
#include "common.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main() {
    std::vector<std::jthread> threads;
    std::atomic<int> before = 0, after = 0;
    std::latch begun(50), go(1);
    for (int i = 0; i < 50; i++) {
        threads.emplace_back([&] {
            before++;
            begun.count_down();
            go.wait();
            after++;
        });
    }
    begun.wait();
    CHECK(before == 50 && after == 0);
    go.count_down();
    threads.clear();
    CHECK(after == 50 && begun.try_wait());
    puts("latches");

    int phases = 0;
    std::atomic<int> arrived = 0;
    auto completed = [&]() noexcept {
        phases++;
        CHECK(arrived == phases * 10);
    };
    std::barrier barrier(10, completed);
    for (int i = 0; i < 10; i++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 50; round++) {
                arrived++;
                barrier.arrive_and_wait();
                CHECK(phases >= round + 1);
            }
        });
    }
    threads.clear();
    CHECK(phases == 50);
    puts("barriers");

    std::counting_semaphore<100> places(3);
    std::atomic<int> inside = 0;
    for (int i = 0; i < 30; i++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 10; round++) {
                places.acquire();
                CHECK(++inside <= 3);
                std::this_thread::yield();
                inside--;
                places.release();
            }
        });
    }
    threads.clear();
    std::binary_semaphore none(0);
    CHECK(!none.try_acquire() && !none.try_acquire_for(10ms));
    CHECK(!none.try_acquire_until(std::chrono::system_clock::now() + 10ms));
    threads.emplace_back([&] { CHECK(none.try_acquire_for(20s)); });
    std::this_thread::sleep_for(5ms);
    none.release();
    threads.clear();
    puts("semaphores");

    std::atomic<int> number = 0;
    std::atomic_flag flag;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 100; round++) {
                for (int seen; (seen = number) % 4 != i;) number.wait(seen);
                number++;
                number.notify_all();
            }
        });
    }
    for (int i = 0; i < 10; i++) threads.emplace_back([&] { flag.wait(false); });
    while (number < 400) std::this_thread::sleep_for(1ms);
    flag.test_and_set();
    flag.notify_all();
    threads.clear();
    CHECK(number == 400);
    puts("atomics");
    return 0;
}
