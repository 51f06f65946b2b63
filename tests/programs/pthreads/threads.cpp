// std::thread: joins, moves, identities, exceptions within and through threads, thread_local objects with destructors.
#include "common.h"
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> made, destroyed;

struct Local {
    std::string text = "a string that is longer than what is kept inside of it";
    int value = 1;
    Local() { made++; }
    ~Local() { destroyed += value; }
};

static thread_local Local local;
static thread_local std::vector<int> numbers{1, 2, 3};

static int nested(int depth) {
    struct Counts {
        std::atomic<int> &count;
        ~Counts() { count++; }
    };
    static std::atomic<int> unwound;
    Counts counts{unwound};
    if (depth == 0) throw std::out_of_range("the bottom");
    std::this_thread::yield();
    return nested(depth - 1) + 1;
}

static void throws_often(int mine) {
    for (int i = 0; i < 100; i++) {
        try {
            try {
                nested(i % 10);
                CHECK(false);
            } catch (const std::out_of_range &error) {
                // The exception that is handled is this thread's, also after it has waited.
                std::this_thread::sleep_for(std::chrono::microseconds(mine % 3 * 100));
                CHECK(std::string(error.what()) == "the bottom");
                CHECK(std::current_exception());
                throw std::runtime_error(std::to_string(mine));
            }
        } catch (const std::runtime_error &error) {
            std::this_thread::yield();
            CHECK(error.what() == std::to_string(mine));
            CHECK(std::uncaught_exceptions() == 0);
        }
        CHECK(!std::current_exception());
    }
}

struct Uncaught {
    int &seen;
    ~Uncaught() {
        seen = std::uncaught_exceptions();
        // It waits while an exception is under way, and others throw theirs.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(std::uncaught_exceptions() == seen);
        try {
            throw 5;
        } catch (int five) {
            CHECK(five == 5);
        }
    }
};

int main() {
    int result = 0;
    std::thread first([&](int a, const std::string &b) { result = a + (int)b.size(); }, 3, "four");
    CHECK(first.joinable() && first.get_id() != std::this_thread::get_id());
    std::thread second = std::move(first);
    CHECK(!first.joinable() && first.get_id() == std::thread::id());
    second.join();
    CHECK(result == 7 && !second.joinable());
    try {
        second.join();
        CHECK(false);
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::invalid_argument);
    }
    CHECK(std::thread::hardware_concurrency() > 0);
    puts("joins");

    std::vector<std::thread> threads;
    std::vector<std::thread::id> ids(100);
    for (int i = 0; i < 100; i++) threads.emplace_back([&ids, i] { ids[i] = std::this_thread::get_id(); });
    std::set<std::thread::id> known;
    for (auto &thread : threads) known.insert(thread.get_id());
    CHECK(known.size() == 100);
    for (int i = 0; i < 100; i++) {
        auto id = threads[i].get_id();
        threads[i].join();
        CHECK(ids[i] == id);
    }
    threads.clear();
    puts("identities");

    for (int i = 0; i < 50; i++) {
        threads.emplace_back([i] {
            if (i % 2) {
                local.value = 2;
                CHECK(local.text.size() == 54);
                numbers.push_back(i);
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                CHECK(numbers.size() == 4 && numbers[3] == i);
            }
        });
    }
    for (auto &thread : threads) thread.join();
    threads.clear();
    CHECK(made == 25 && destroyed == 50);
    puts("thread_local");

    for (int i = 0; i < 20; i++) threads.emplace_back(throws_often, i);
    for (auto &thread : threads) thread.join();
    threads.clear();
    puts("exceptions in threads");

    std::exception_ptr carried;
    std::thread([&] {
        try {
            nested(5);
        } catch (...) {
            carried = std::current_exception();
        }
    }).join();
    try {
        std::rethrow_exception(carried);
    } catch (const std::out_of_range &error) {
        CHECK(std::string(error.what()) == "the bottom");
    }
    std::promise<int> promise;
    auto future = promise.get_future();
    std::thread([&] {
        try {
            nested(3);
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    }).detach();
    try {
        future.get();
        CHECK(false);
    } catch (const std::out_of_range &) {
    }
    puts("exceptions through threads");

    std::vector<int> seen(20);
    for (int i = 0; i < 20; i++) {
        threads.emplace_back([&seen, i] {
            try {
                Uncaught here{seen[i]};
                throw i;
            } catch (int caught) {
                CHECK(caught == i);
            }
        });
    }
    for (auto &thread : threads) thread.join();
    CHECK(std::all_of(seen.begin(), seen.end(), [](int each) { return each == 1; }));
    puts("destructors that wait");
    return 0;
}
