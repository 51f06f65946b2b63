// What the programs of this folder share. They know nothing of green threads: each prints the same lines every time, and
// ends with 0 when all is right. `.ci/posix` runs them plain, and with the library preloaded.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : wrong(__FILE__, __LINE__, #condition, 0))
// A call that answers with an error's number, or 0.
#define OK(call) ANSWERS(0, call)
#define ANSWERS(wanted, call)                                    \
    do {                                                         \
        int answer_ = (call);                                    \
        if (answer_ != (wanted)) wrong(__FILE__, __LINE__, #call, answer_); \
    } while (0)
// A call that fails with -1 and this errno.
#define FAILS(wanted, call)                                      \
    do {                                                         \
        errno = 0;                                               \
        long answer_ = (long)(call);                             \
        int errno_ = errno;                                      \
        if (answer_ != -1 || errno_ != (wanted)) wrong(__FILE__, __LINE__, #call, errno_); \
    } while (0)

static inline void wrong(const char *file, int line, const char *what, int answer) {
    const char *name = strrchr(file, '/');
    printf("WRONG: %s:%d: %s (%d)\n", name ? name + 1 : file, line, what, answer);
    fflush(stdout);
    _exit(1);
}

// What was said before it hangs is in the output.
__attribute__((constructor)) static void line_by_line(void) { setvbuf(stdout, NULL, _IOLBF, 0); }

static inline void milliseconds(long count) {
    struct timespec left = {count / 1000, count % 1000 * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {}
}

static inline struct timespec in_milliseconds(clockid_t clock, long count) {
    struct timespec then;
    clock_gettime(clock, &then);
    then.tv_sec += count / 1000;
    then.tv_nsec += count % 1000 * 1000000;
    if (then.tv_nsec >= 1000000000) {
        then.tv_nsec -= 1000000000;
        then.tv_sec += 1;
    }
    return then;
}

static inline long now_in_milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
