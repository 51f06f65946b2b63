// A program of C and C++ whose threads are cancelled in libc's calls, and whose exceptions leave `call_once`. `start` is
// called by a Rust program with panic = "abort", which is what there is of Rust. (tests/libc/cpp.rs)
#include <cstdio>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

extern "C" ssize_t __read_chk(int, void *, size_t, size_t);
extern "C" int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern "C" ssize_t __recv_chk(int, void *, size_t, size_t, int);

static int ends[2], sockets[2], listener, ring;
static pthread_t idle;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static char byte;
static struct iovec buffers = {&byte, 1};
static struct timespec hour = {3600, 0}, late = {1L << 40, 0};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static once_flag once_of_c11 = ONCE_FLAG_INIT;

static void cancelled_inside(void) { pthread_cancel(pthread_self()); pthread_testcancel(); }

static void unlock(void *) { pthread_mutex_unlock(&lock); }
template <class F> static void holding(F wait) {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, nullptr);
    pthread_cancel(pthread_self());
    wait();
    pthread_cleanup_pop(1);
}

struct Case { const char *name; void (*call)(); };
#define CALL(name, ...) {#name, [] { pthread_cancel(pthread_self()); name(__VA_ARGS__); }}
static struct pollfd nobody = {-1, 0, 0};
static struct epoll_event event;
static struct msghdr message = {nullptr, 0, &buffers, 1, nullptr, 0, 0};
static void *joined;
static siginfo_t info;
static const Case CASES[] = {
    CALL(read, ends[0], &byte, 1),
    CALL(readv, ends[0], &buffers, 1),
    CALL(write, ends[1], &byte, 1),
    CALL(writev, ends[1], &buffers, 1),
    CALL(__read_chk, ends[0], &byte, 1, 1),
    CALL(recv, sockets[0], &byte, 1, 0),
    CALL(__recv_chk, sockets[0], &byte, 1, 1, 0),
    CALL(recvfrom, sockets[0], &byte, 1, 0, nullptr, nullptr),
    CALL(recvmsg, sockets[0], &message, 0),
    CALL(send, sockets[0], &byte, 1, 0),
    CALL(sendto, sockets[0], &byte, 1, 0, nullptr, 0),
    CALL(sendmsg, sockets[0], &message, 0),
    CALL(accept, listener, nullptr, nullptr),
    CALL(accept4, listener, nullptr, nullptr, 0),
    CALL(connect, -1, nullptr, 0),
    CALL(poll, &nobody, 1, -1),
    CALL(__poll_chk, &nobody, 1, -1, sizeof nobody),
    CALL(ppoll, &nobody, 1, nullptr, nullptr),
    CALL(select, 0, nullptr, nullptr, nullptr, nullptr),
    CALL(pselect, 0, nullptr, nullptr, nullptr, nullptr, nullptr),
    CALL(epoll_wait, ring, &event, 1, -1),
    CALL(epoll_pwait, ring, &event, 1, -1, nullptr),
    CALL(nanosleep, &hour, nullptr),
    CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, &hour, nullptr),
    CALL(usleep, 3600000000U),
    CALL(sleep, 3600),
    CALL(waitpid, getppid(), nullptr, 0),
    CALL(waitid, P_PID, (id_t)getppid(), &info, WEXITED),
    CALL(fsync, -1),
    CALL(fdatasync, -1),
    CALL(fcntl, -1, F_SETLKW, nullptr),
    CALL(close, -1),
    CALL(sem_wait, &semaphore),
    CALL(sem_timedwait, &semaphore, &late),
    CALL(pthread_join, idle, &joined),
    {"pthread_cond_wait", [] { holding([] { pthread_cond_wait(&condition, &lock); }); }},
    {"pthread_cond_timedwait", [] { holding([] { pthread_cond_timedwait(&condition, &lock, &late); }); }},
    {"pthread_cond_clockwait",
     [] { holding([] { pthread_cond_clockwait(&condition, &lock, CLOCK_MONOTONIC, &late); }); }},
    {"cnd_wait", [] { holding([] { cnd_wait((cnd_t *)&condition, (mtx_t *)&lock); }); }},
    {"cnd_timedwait", [] { holding([] { cnd_timedwait((cnd_t *)&condition, (mtx_t *)&lock, &late); }); }},
    {"pthread_once", [] { pthread_once(&once, cancelled_inside); }},
    {"call_once", [] { call_once(&once_of_c11, cancelled_inside); }},
};

static void *run(void *call) {
    ((const Case *)call)->call();
    return nullptr;
}

static void *wait_for_ever(void *) {
    for (;;) pause();
}

static int tries;
static void throws_at_first(void) {
    if (++tries < 4) throw std::runtime_error("not yet");
}

extern "C" int start(void) {
    int wrong = 0;
    pipe(ends);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 1);
    ring = epoll_create1(0);
    sem_init(&semaphore, 0, 0);
    pthread_create(&idle, nullptr, wait_for_ever, nullptr);
    for (const Case &one : CASES) {
        fprintf(stderr, "%s\n", one.name);
        pthread_t thread;
        void *result = nullptr;
        pthread_create(&thread, nullptr, run, (void *)&one);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) {
            fprintf(stderr, "not cancelled in %s\n", one.name);
            wrong = 1;
        }
    }
    for (pthread_once_t once = PTHREAD_ONCE_INIT; tries < 4;) {
        try {
            pthread_once(&once, throws_at_first);
        } catch (std::runtime_error &) {
            continue;
        }
        wrong |= tries != 4;
    }
    // The cancelled ones have not been done, and hold nothing.
    pthread_once(&once, [] { tries++; });
    call_once(&once_of_c11, [] { tries++; });
    return wrong | (tries != 6) | (pthread_mutex_trylock(&lock) != 0);
}
