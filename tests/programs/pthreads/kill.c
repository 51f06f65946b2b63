// Signals to a thread that waits: with a handler without SA_RESTART the call fails with EINTR, with it, it goes on where
// that is so; the handler runs in the thread that is meant.
#include "common.h"
#include <semaphore.h>
#include <signal.h>

static int ends[2], inside;
static sem_t semaphore, done;
static pthread_t meant;
static volatile sig_atomic_t handled, elsewhere;
static __thread int mine;

static void handler(int number) {
    (void)number;
    int kept = errno;
    handled += 1;
    if (!pthread_equal(pthread_self(), meant) || !mine) elsewhere += 1;
    errno = kept;
}

static void enters(void) { __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST); }

static void *in_read(void *argument) {
    char byte;
    mine = 1;
    enters();
    FAILS(EINTR, read(ends[0], &byte, 1));
    return argument;
}

static void *in_nanosleep(void *argument) {
    struct timespec long_time = {1000, 0}, left = {0, 0};
    mine = 1;
    enters();
    FAILS(EINTR, nanosleep(&long_time, &left));
    CHECK(left.tv_sec > 900 && left.tv_sec < 1000);
    return argument;
}

static void *in_sem_wait(void *argument) {
    mine = 1;
    enters();
    FAILS(EINTR, sem_wait(&semaphore));
    return argument;
}

static void *in_pause(void *argument) {
    mine = 1;
    enters();
    FAILS(EINTR, pause());
    return argument;
}

static void *in_restarted_read(void *argument) {
    char byte = 0;
    mine = 1;
    enters();
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    return argument;
}

static void *in_loop(void *argument) {
    mine = 1;
    enters();
    while (!handled) {}
    return argument;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *in_lock(void *argument) {
    mine = 1;
    enters();
    // A mutex goes on waiting.
    OK(pthread_mutex_lock(&lock));
    CHECK(handled == 1);
    OK(pthread_mutex_unlock(&lock));
    return argument;
}

static void install(int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    OK(sigaction(SIGUSR1, &action, NULL));
}

static void scene(const char *name, void *(*function)(void *)) {
    handled = elsewhere = inside = 0;
    OK(pthread_create(&meant, NULL, function, (void *)4));
    while (!__atomic_load_n(&inside, __ATOMIC_SEQ_CST)) milliseconds(1);
    milliseconds(20);
    OK(pthread_kill(meant, 0));
    OK(pthread_kill(meant, SIGUSR1));
    if (function == in_restarted_read || function == in_lock) {
        while (!handled) milliseconds(1);
        milliseconds(10);
        if (function == in_lock) OK(pthread_mutex_unlock(&lock));
        else CHECK(write(ends[1], "x", 1) == 1);
    }
    void *value;
    OK(pthread_join(meant, &value));
    CHECK(value == (void *)4 && handled == 1 && elsewhere == 0);
    puts(name);
}

int main(void) {
    OK(pipe(ends));
    OK(sem_init(&semaphore, 0, 0));
    OK(sem_init(&done, 0, 0));
    install(0);
    scene("read: EINTR", in_read);
    scene("nanosleep: EINTR", in_nanosleep);
    scene("sem_wait: EINTR", in_sem_wait);
    scene("pause: EINTR", in_pause);
    scene("a loop", in_loop);
    OK(pthread_mutex_lock(&lock));
    scene("a mutex goes on", in_lock);
    install(SA_RESTART);
    scene("nanosleep: EINTR even with SA_RESTART", in_nanosleep);
    scene("read goes on with SA_RESTART", in_restarted_read);

    // To oneself, before pthread_kill returns.
    handled = elsewhere = 0;
    meant = pthread_self();
    mine = 1;
    OK(pthread_kill(pthread_self(), SIGUSR1));
    CHECK(handled == 1 && elsewhere == 0);
    OK(raise(SIGUSR1));
    CHECK(handled == 2 && elsewhere == 0);
    ANSWERS(EINVAL, pthread_kill(pthread_self(), 12345));
    puts("oneself");
    return 0;
}
