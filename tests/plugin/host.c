/* A program that knows nothing of Rust, for tests/shared_libraries.rs.

     host local|global|deep LIBRARY...   loads each, uses each, unloads each, stays a while, and ends
     host linked                         uses the library that it is linked with, or that was preloaded */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint32_t word;

static void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *wake(void *nothing) {
    rest(50);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    return nothing;
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) exit(printf("no %s: %s\n", name, dlerror()));
    return found;
}

static int call(void *library, const char *name) {
    int (*function)(void) = (int (*)(void))find(library, name);
    return function();
}

static void use(void *library) {
    pthread_t waker;
    int (*waits)(uint32_t *) = (int (*)(uint32_t *))find(library, "plugin_waits_at");
    printf("green %d\n", call(library, "plugin_is_green"));
    printf("sum %d\n", call(library, "plugin_use"));
    printf("computes %d\n", call(library, "plugin_computes_beside"));
    word = 0;
    pthread_create(&waker, NULL, wake, NULL);
    printf("woken %d\n", waits(&word));
    pthread_join(waker, NULL);
    printf("left %d\n", call(library, "plugin_leaves_threads") >= 3);
    fflush(stdout);
}

static void *is_known(void *library) {
    call(library, "plugin_knows_me");
    dlclose(library);
    return NULL; /* and its destructors run */
}

int main(int count, char **arguments) {
    void *libraries[8];
    int flags = RTLD_NOW;
    pthread_t thread;
    if (!strcmp(arguments[1], "linked")) {
        use(RTLD_DEFAULT);
        return puts("end") < 0;
    }
    if (!strcmp(arguments[1], "global")) flags |= RTLD_GLOBAL;
    if (!strcmp(arguments[1], "deep")) flags |= RTLD_DEEPBIND;
    for (int i = 2; i < count; i++) {
        /* Used by a thread, unloaded before that ends, and loaded again. */
        libraries[i] = dlopen(arguments[i], flags);
        if (!libraries[i]) return puts(dlerror());
        pthread_create(&thread, NULL, is_known, libraries[i]);
        pthread_join(thread, NULL);
        libraries[i] = dlopen(arguments[i], flags);
        if (!libraries[i]) return puts(dlerror());
    }
    for (int i = 2; i < count; i++) use(libraries[i]);
    for (int i = 2; i < count; i++) dlclose(libraries[i]);
    rest(50);
    return puts("end") < 0;
}
