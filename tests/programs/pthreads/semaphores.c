// Semaphores: of a process, between processes, and with a name.
#include "common.h"
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

static sem_t items, places, mutex;
static int ring[4], head, tail, sum;

static void *produces(void *argument) {
    for (int i = 1; i <= 500; i++) {
        while (sem_wait(&places)) {}
        while (sem_wait(&mutex)) {}
        ring[head++ % 4] = i;
        OK(sem_post(&mutex));
        OK(sem_post(&items));
    }
    return argument;
}

static void *consumes(void *argument) {
    for (int i = 1; i <= 500; i++) {
        while (sem_wait(&items)) {}
        while (sem_wait(&mutex)) {}
        sum += ring[tail++ % 4];
        OK(sem_post(&mutex));
        OK(sem_post(&places));
    }
    return argument;
}

int main(void) {
    FAILS(EINVAL, sem_init(&items, 0, (unsigned)SEM_VALUE_MAX + 1));
    OK(sem_init(&items, 0, 0));
    OK(sem_init(&places, 0, 4));
    OK(sem_init(&mutex, 0, 1));
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) OK(pthread_create(&threads[i], NULL, i % 2 ? produces : consumes, NULL));
    for (int i = 0; i < 10; i++) OK(pthread_join(threads[i], NULL));
    CHECK(sum == 5 * 500 * 501 / 2);
    int value;
    OK(sem_getvalue(&places, &value));
    CHECK(value == 4);
    OK(sem_getvalue(&items, &value));
    CHECK(value == 0);
    puts("a ring");

    FAILS(EAGAIN, sem_trywait(&items));
    struct timespec then = in_milliseconds(CLOCK_REALTIME, 20);
    FAILS(ETIMEDOUT, sem_timedwait(&items, &then));
    then = in_milliseconds(CLOCK_MONOTONIC, 20);
    FAILS(ETIMEDOUT, sem_clockwait(&items, CLOCK_MONOTONIC, &then));
    then.tv_nsec = 1000000000;
    FAILS(EINVAL, sem_timedwait(&items, &then));
    puts("limits");

    sem_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    OK(sem_init(&shared[0], 1, 0));
    OK(sem_init(&shared[1], 1, 0));
    fflush(stdout);
    pid_t child = fork();
    for (int i = 0; i < 1000; i++) {
        OK(sem_post(&shared[child == 0]));
        while (sem_wait(&shared[child != 0])) {}
    }
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("between processes");

    char name[64];
    snprintf(name, sizeof name, "/greenthread-%d", (int)getpid());
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    CHECK(named != SEM_FAILED);
    CHECK(sem_open(name, O_CREAT | O_EXCL, 0600, 1) == SEM_FAILED && errno == EEXIST);
    CHECK(sem_open(name, 0) == named);
    OK(sem_wait(named));
    FAILS(EAGAIN, sem_trywait(named));
    OK(sem_close(named));
    OK(sem_close(named));
    OK(sem_unlink(name));
    CHECK(sem_open(name, 0) == SEM_FAILED && errno == ENOENT);
    puts("with a name");
    return 0;
}
