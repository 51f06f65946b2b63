// Names of threads: of oneself and of others, too long ones, and by prctl.
#include "common.h"
#include <semaphore.h>
#include <sys/prctl.h>

static sem_t named, go;

static void *sleeper(void *argument) {
    char name[16];
    OK(sem_post(&named));
    while (sem_wait(&go)) {}
    OK(pthread_getname_np(pthread_self(), name, sizeof name));
    CHECK(strcmp(name, "by another") == 0);
    OK(pthread_setname_np(pthread_self(), "by itself"));
    OK(pthread_getname_np(pthread_self(), name, sizeof name));
    CHECK(strcmp(name, "by itself") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "by itself") == 0);
    OK(sem_post(&named));
    while (sem_wait(&go)) {}
    return argument;
}

int main(void) {
    char name[16], before[16];
    pthread_t thread;
    OK(sem_init(&named, 0, 0));
    OK(sem_init(&go, 0, 0));
    OK(pthread_getname_np(pthread_self(), before, sizeof before));
    OK(pthread_create(&thread, NULL, sleeper, NULL));
    OK(sem_wait(&named));
    OK(pthread_getname_np(thread, name, sizeof name));
    CHECK(strcmp(name, before) == 0);
    OK(pthread_setname_np(thread, "by another"));
    OK(pthread_getname_np(thread, name, sizeof name));
    CHECK(strcmp(name, "by another") == 0);
    OK(sem_post(&go));
    OK(sem_wait(&named));
    OK(pthread_getname_np(thread, name, sizeof name));
    CHECK(strcmp(name, "by itself") == 0);
    ANSWERS(ERANGE, pthread_setname_np(thread, "sixteen and more"));
    ANSWERS(ERANGE, pthread_getname_np(thread, name, 3));
    OK(pthread_setname_np(thread, "fifteen letters"));
    OK(pthread_getname_np(thread, name, sizeof name));
    CHECK(strcmp(name, "fifteen letters") == 0);
    OK(sem_post(&go));
    OK(pthread_join(thread, NULL));
    OK(pthread_getname_np(pthread_self(), name, sizeof name));
    CHECK(strcmp(name, before) == 0);
    puts("names");
    return 0;
}
