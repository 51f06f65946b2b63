// exit in a thread, while others wait in all kinds of calls, and main in a join: the process ends at once, with that status.
#include "common.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int ends[2], begun;

static void *waits(void *argument) {
    __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    char byte;
    switch ((long)argument % 5) {
    case 0: read(ends[0], &byte, 1); break;
    case 1: sem_wait(&semaphore); break;
    case 2: milliseconds(1000000); break;
    case 3: poll(NULL, 0, -1); break;
    case 4:
        pthread_mutex_lock(&lock);
        for (;;) pthread_cond_wait(&never, &lock);
    }
    wrong(__FILE__, __LINE__, "nobody ends this wait", 0);
    return NULL;
}

static void at_exit(void) { puts("atexit"); }

static void *ends_all(void *argument) {
    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < 25) milliseconds(1);
    milliseconds(20);
    exit((int)(long)argument);
}

static void scene(long status, int returns) {
    OK(pipe(ends));
    OK(sem_init(&semaphore, 0, 0));
    pthread_t thread;
    for (long i = 0; i < 25; i++) OK(pthread_create(&thread, NULL, waits, (void *)i));
    if (returns) {
        milliseconds(50);
        return;
    }
    OK(pthread_create(&thread, NULL, ends_all, (void *)status));
    pthread_join(thread, NULL);
}

int main(void) {
    atexit(at_exit);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        scene(3, 0);
        _exit(99);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    puts("the child ended with 3");
    scene(0, 1);
    puts("main returns, and nobody else has ended");
    return 0;
}
