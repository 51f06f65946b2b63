// A program that loads the library late, or libraries around it, and makes pthreads before and after.
//
//     late dlopen LIBRARY   opens it, for all to see
//     late local LIBRARY    opens it, for itself
//     late other LIBRARY    opens it in another namespace
//     late deep LIBRARY     opens it so that it prefers its own symbols
//     late close LIBRARY    opens it and closes it again, three times
//
// If the library has a function that makes threads (deep.c), calls it, from a thread, too.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER, go = PTHREAD_COND_INITIALIZER;
static int here, may_go;
static __thread int own = 5;

static void *wait_with_others(void *argument) {
    own += (int)(long)argument;
    pthread_mutex_lock(&lock);
    here++;
    pthread_cond_signal(&all_here);
    while (!may_go) pthread_cond_wait(&go, &lock);
    pthread_mutex_unlock(&lock);
    return (void *)(long)(own - 5);
}

static int kernel_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = -2;
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

// That many threads at once; prints whether they are fewer than kernel threads.
static void threads(const char *when, int count) {
    pthread_t made[1000];
    long sum = 0;
    here = may_go = 0;
    for (long at = 0; at < count; at++)
        if (pthread_create(&made[at], NULL, wait_with_others, (void *)at)) exit(printf("no thread\n"));
    pthread_mutex_lock(&lock);
    while (here < count) pthread_cond_wait(&all_here, &lock);
    int are_green = kernel_threads() < count;
    may_go = 1;
    pthread_cond_broadcast(&go);
    pthread_mutex_unlock(&lock);
    for (int at = 0; at < count; at++) {
        void *value;
        if (pthread_join(made[at], &value)) exit(printf("not joined\n"));
        sum += (long)value;
    }
    printf("%s: %s, sum %ld\n", when, are_green ? "green" : "kernel threads", sum);
    fflush(stdout);
}

static void *open_it(const char *how, const char *name) {
    int deep = !strcmp(how, "deep") ? RTLD_DEEPBIND : 0, global = strcmp(how, "local") ? RTLD_GLOBAL : 0;
    void *library = !strcmp(how, "other") ? dlmopen(LM_ID_NEWLM, name, RTLD_NOW) : dlopen(name, RTLD_NOW | global | deep);
    if (!library) exit(printf("not opened: %s\n", dlerror()));
    return library;
}

static void *call_it(void *function) {
    return (void *)(long)((int (*)(int))function)(100);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    threads("before", 100);
    void *library = open_it(words[1], words[2]);
    threads("after", 100);
    void *function = dlsym(library, "library_threads");
    if (function) {
        pthread_t made;
        void *value;
        printf("the library's threads: %ld\n", (long)call_it(function));
        pthread_create(&made, NULL, call_it, function);
        pthread_join(made, &value);
        printf("from a thread: %ld\n", (long)value);
    }
    if (!strcmp(words[1], "close")) {
        for (int turn = 0; turn < 3; turn++) {
            if (dlclose(library)) exit(printf("not closed: %s\n", dlerror()));
            threads("closed", 100);
            library = open_it(words[1], words[2]);
            threads("again", 100);
        }
    }
    return 0;
}
