// std::async, futures, promises and packaged tasks.
#include "common.h"
#include <chrono>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static long sum(const std::vector<int> &numbers, size_t from, size_t to) {
    if (to - from < 500) return std::accumulate(numbers.begin() + from, numbers.begin() + to, 0L);
    size_t middle = (from + to) / 2;
    auto upper = std::async(std::launch::async, sum, std::cref(numbers), middle, to);
    return sum(numbers, from, middle) + upper.get();
}

int main() {
    std::vector<int> numbers(20000, 2);
    CHECK(sum(numbers, 0, numbers.size()) == 40000);
    puts("async in async");

    auto self = std::this_thread::get_id();
    CHECK(std::async(std::launch::deferred, [] { return std::this_thread::get_id(); }).get() == self);
    CHECK(std::async(std::launch::async, [] { return std::this_thread::get_id(); }).get() != self);
    auto fails = std::async(std::launch::async, []() -> int { throw std::logic_error("in async"); });
    try {
        fails.get();
        CHECK(false);
    } catch (const std::logic_error &error) {
        CHECK(std::string(error.what()) == "in async");
    }
    puts("policies");

    std::promise<int> promise;
    std::shared_future<int> shared = promise.get_future().share();
    CHECK(shared.wait_for(10ms) == std::future_status::timeout);
    CHECK(shared.wait_until(std::chrono::system_clock::now() + 10ms) == std::future_status::timeout);
    CHECK(shared.wait_until(std::chrono::steady_clock::now() + 10ms) == std::future_status::timeout);
    std::vector<std::future<int>> readers;
    for (int i = 0; i < 50; i++) readers.push_back(std::async(std::launch::async, [shared, i] { return shared.get() + i; }));
    std::this_thread::sleep_for(5ms);
    promise.set_value(100);
    for (int i = 0; i < 50; i++) CHECK(readers[i].get() == 100 + i);
    puts("fifty wait for one");

    std::packaged_task<int(int)> task([](int number) { return number * 2; });
    auto doubled = task.get_future();
    std::thread(std::move(task), 21).join();
    CHECK(doubled.get() == 42);

    std::promise<void> at_exit;
    auto ended = at_exit.get_future();
    std::thread([&] { at_exit.set_value_at_thread_exit(); }).detach();
    ended.get();

    std::future<int> broken;
    std::thread([&] { broken = std::promise<int>().get_future(); }).join();
    try {
        broken.get();
        CHECK(false);
    } catch (const std::future_error &error) {
        CHECK(error.code() == std::future_errc::broken_promise);
    }
    puts("tasks and broken promises");
    return 0;
}
