// Two thousand threads wait for one condition variable.
#include "common.h"
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

enum { MANY = 2000 };

int main() {
    std::mutex mutex;
    std::condition_variable changed, counted;
    int waiting = 0, round = 0, passed = 0, tickets = 0;
    std::vector<std::thread> threads;
    threads.reserve(MANY);
    for (int i = 0; i < MANY; i++) {
        threads.emplace_back([&] {
            std::unique_lock lock(mutex);
            for (int mine = 0; mine < 3; mine++) {
                if (++waiting == MANY) counted.notify_one();
                changed.wait(lock, [&] { return round > mine; });
            }
            // Then one after the other.
            if (++waiting == MANY) counted.notify_one();
            changed.wait(lock, [&] { return tickets > 0; });
            tickets--;
            passed++;
            counted.notify_one();
        });
    }
    std::unique_lock lock(mutex);
    for (int i = 0; i < 3; i++) {
        counted.wait(lock, [&] { return waiting == MANY; });
        waiting = 0;
        round++;
        changed.notify_all();
    }
    counted.wait(lock, [&] { return waiting == MANY; });
    puts("all wait");
    for (int i = 0; i < MANY; i++) {
        tickets++;
        changed.notify_one();
        if (i % 100 == 0) counted.wait(lock, [&] { return passed == i + 1; });
    }
    lock.unlock();
    for (auto &thread : threads) thread.join();
    CHECK(passed == MANY && tickets == 0);
    puts("all have passed");
    return 0;
}
