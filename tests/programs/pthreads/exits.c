// pthread_exit from a nested function: cleanup handlers from the inside out, then the keys' destructors, which may set keys
// again; values for joiners, returned and by pthread_exit.
#include "common.h"

static pthread_key_t first, second;
static int rounds, order;

static void handler(void *argument) { printf("handler %s\n", (const char *)argument); }

static void first_ends(void *value) {
    CHECK(pthread_getspecific(first) == NULL);
    printf("destructor of the first key, round %d\n", ++rounds);
    if (rounds < 3) OK(pthread_setspecific(first, value));
}

static void second_ends(void *value) {
    CHECK(strcmp((const char *)value, "second") == 0);
    order += 1;
}

__attribute__((noinline)) static int innermost(int depth) {
    int below = 0;
    pthread_cleanup_push(handler, depth % 2 ? (void *)"odd" : (void *)"even");
    if (depth == 0) pthread_exit((void *)42);
    if (depth > 0) below = innermost(depth - 1);
    pthread_cleanup_pop(0);
    return below + 1;
}

static void *leaves(void *argument) {
    OK(pthread_setspecific(first, "first"));
    OK(pthread_setspecific(second, "second"));
    pthread_cleanup_push(handler, (void *)"popped without a call");
    pthread_cleanup_pop(0);
    pthread_cleanup_push(handler, (void *)"popped with a call");
    pthread_cleanup_pop(1);
    innermost(3);
    return argument;
}

static void *returns(void *argument) {
    OK(pthread_setspecific(second, "second"));
    return (char *)argument + 1;
}

static void *exits_in_destructor(void *argument) {
    OK(pthread_setspecific(second, "second"));
    pthread_exit(argument);
}

int main(void) {
    OK(pthread_key_create(&first, first_ends));
    OK(pthread_key_create(&second, second_ends));
    pthread_t thread;
    void *value;
    OK(pthread_create(&thread, NULL, leaves, NULL));
    OK(pthread_join(thread, &value));
    CHECK(value == (void *)42);
    CHECK(order == 1);
    CHECK(rounds == 3);

    for (long i = 0; i < 100; i++) {
        OK(pthread_create(&thread, NULL, i % 2 ? returns : exits_in_destructor, (void *)i));
        OK(pthread_join(thread, &value));
        CHECK((long)value == i + i % 2);
    }
    CHECK(order == 101);
    // Many at once, joined the other way around.
    static pthread_t many[300];
    for (long i = 0; i < 300; i++) OK(pthread_create(&many[i], NULL, returns, (void *)i));
    for (long i = 299; i >= 0; i--) {
        OK(pthread_join(many[i], &value));
        CHECK((long)value == i + 1);
    }
    CHECK(order == 401);
    OK(pthread_key_delete(first));
    OK(pthread_key_delete(second));
    puts("values arrive");
    return 0;
}
