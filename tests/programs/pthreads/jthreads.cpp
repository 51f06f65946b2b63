// std::jthread: it asks its thread to stop and joins it; stop tokens, their callbacks, and waits that end with them.
#include "common.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main() {
    std::atomic<int> stopped = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 50; i++) {
            threads.emplace_back([&](std::stop_token token) {
                while (!token.stop_requested()) std::this_thread::sleep_for(1ms);
                stopped++;
            });
        }
        std::this_thread::sleep_for(5ms);
        CHECK(stopped == 0);
    }
    CHECK(stopped == 50);
    puts("the end of the scope stops them");

    std::mutex mutex;
    std::condition_variable_any changed;
    int answers = 0, events = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 50; i++) {
            threads.emplace_back([&](std::stop_token token) {
                std::unique_lock lock(mutex);
                bool event = changed.wait(lock, token, [&] { return events > 0; });
                if (event) events--;
                answers += event ? 1 : 1000;
            });
        }
        std::this_thread::sleep_for(5ms);
        {
            std::lock_guard lock(mutex);
            events = 20;
        }
        changed.notify_all();
        for (;;) {
            std::lock_guard lock(mutex);
            if (answers == 20) break;
        }
    }
    CHECK(answers == 20 + 30 * 1000);
    puts("waits end with the token");

    std::stop_source source;
    std::atomic<int> called = 0;
    std::stop_callback one(source.get_token(), [&] { called += 1; });
    {
        std::stop_callback gone(source.get_token(), [&] { called += 100; });
    }
    std::jthread other([&] { CHECK(source.request_stop()); });
    other.join();
    CHECK(called == 1 && !source.request_stop());
    std::stop_callback late(source.get_token(), [&] { called += 10; });
    CHECK(called == 11);
    // The end of a callback's scope waits until it has returned.
    std::stop_source again;
    std::atomic<bool> inside = false, returned = false;
    std::jthread requests;
    {
        std::stop_callback slow(again.get_token(), [&] {
            inside = true;
            std::this_thread::sleep_for(20ms);
            returned = true;
        });
        requests = std::jthread([&] { again.request_stop(); });
        while (!inside) std::this_thread::yield();
    }
    CHECK(returned);
    puts("callbacks");

    std::jthread moved([](std::stop_token token, int number) {
        CHECK(number == 3);
        while (!token.stop_requested()) std::this_thread::yield();
    }, 3);
    std::jthread taken = std::move(moved);
    CHECK(!moved.joinable() && taken.get_stop_source().stop_possible());
    taken = std::jthread();
    puts("assignment stops the one before");
    return 0;
}
