// pthread_exit in main: its handlers and keys' destructors run, the others go on, and the process ends with 0 when the last
// of them ends, after the handlers of atexit.
#include "common.h"

static pthread_key_t key;
static pthread_t first;
static int ended_main;

static void of_main(void *argument) { printf("%s of main\n", (const char *)argument); }

static void at_exit(void) {
    CHECK(ended_main);
    puts("atexit");
}

static void *last(void *argument) {
    (void)argument;
    void *value;
    OK(pthread_join(first, &value));
    CHECK(value == (void *)7);
    milliseconds(100);
    ended_main = 1;
    puts("the last one ends");
    return (void *)9;
}

int main(void) {
    atexit(at_exit);
    OK(pthread_key_create(&key, of_main));
    OK(pthread_setspecific(key, "destructor"));
    first = pthread_self();
    pthread_t thread;
    OK(pthread_create(&thread, NULL, last, NULL));
    OK(pthread_detach(thread));
    pthread_cleanup_push(of_main, (void *)"handler");
    pthread_exit((void *)7);
    pthread_cleanup_pop(0);
}
