// fork among threads: the handlers of pthread_atfork in their order, and a child that has one thread and makes more.
#include "common.h"
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char order[64];
static __thread int mine;

static void prepare_1(void) { strcat(order, "p1 "); OK(pthread_mutex_lock(&lock)); }
static void parent_1(void) { OK(pthread_mutex_unlock(&lock)); strcat(order, "a1 "); }
static void child_1(void) { OK(pthread_mutex_unlock(&lock)); strcat(order, "c1 "); }
static void prepare_2(void) { strcat(order, "p2 "); }
static void parent_2(void) { strcat(order, "a2 "); }
static void child_2(void) { strcat(order, "c2 "); }

static void *sleeps(void *argument) {
    for (;;) milliseconds(1000);
    return argument;
}

static void *adds(void *argument) {
    OK(pthread_mutex_lock(&lock));
    *(int *)argument += 1;
    OK(pthread_mutex_unlock(&lock));
    return argument;
}

static void child_works(void) {
    CHECK(strcmp(order, "p2 p1 c1 c2 ") == 0);
    CHECK(mine == 5);
    int sum = 0;
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) OK(pthread_create(&threads[i], NULL, adds, &sum));
    for (int i = 0; i < 20; i++) OK(pthread_join(threads[i], NULL));
    CHECK(sum == 20);
    pid_t grandchild = fork();
    if (grandchild == 0) _exit(4);
    int status;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && WEXITSTATUS(status) == 4);
}

static void *forks(void *argument) {
    mine = 5;
    fflush(stdout);
    order[0] = 0;
    pid_t child = fork();
    if (child == 0) {
        child_works();
        // The thread that has forked is the child's only one, and ends the process.
        if (argument) pthread_exit(NULL);
        _exit(0);
    }
    CHECK(child > 0 && strcmp(order, "p2 p1 a1 a2 ") == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return argument;
}

int main(void) {
    OK(pthread_atfork(prepare_1, parent_1, child_1));
    OK(pthread_atfork(prepare_2, parent_2, child_2));
    pthread_t thread;
    for (int i = 0; i < 10; i++) {
        OK(pthread_create(&thread, NULL, sleeps, NULL));
        OK(pthread_detach(thread));
    }
    forks(NULL);
    puts("from main");
    for (long exits = 0; exits < 2; exits++) {
        OK(pthread_create(&thread, NULL, forks, (void *)exits));
        OK(pthread_join(thread, NULL));
    }
    puts("from a thread");
    return 0;
}
