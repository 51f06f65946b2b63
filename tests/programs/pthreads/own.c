// What each thread has of its own: errno, thread-locals, keys' values, the mask of cancellation; and what all share: the
// directory, descriptors, streams and their locks.
#include "common.h"
#include <fcntl.h>

static __thread int number;
static __thread char block[5000];
static pthread_key_t keys[64];
static FILE *stream;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int made;

static void makes(void) {
    milliseconds(5);
    made += 1;
}

static void *keeps(void *argument) {
    int mine = (int)(long)argument;
    OK(pthread_once(&once, makes));
    CHECK(made == 1);
    CHECK(number == 0 && block[4999] == 0);
    for (int i = 0; i < 64; i++) {
        CHECK(pthread_getspecific(keys[i]) == NULL);
        OK(pthread_setspecific(keys[i], (void *)(long)(mine * 64 + i + 1)));
    }
    for (int round = 0; round < 5; round++) {
        number = mine;
        block[4999] = (char)mine;
        errno = 1000 + mine;
        milliseconds(mine % 3);
        CHECK(errno == 1000 + mine);
        CHECK(close(-1) == -1 && errno == EBADF);
        errno = mine;
        sched_yield();
        CHECK(errno == mine && number == mine && block[4999] == (char)mine);
    }
    for (int i = 0; i < 64; i++) CHECK(pthread_getspecific(keys[i]) == (void *)(long)(mine * 64 + i + 1));
    // A line in three parts stays one.
    for (int i = 0; i < 20; i++) {
        flockfile(stream);
        fprintf(stream, "one ");
        sched_yield();
        fprintf(stream, "line ");
        fputs("whole\n", stream);
        funlockfile(stream);
    }
    return argument;
}

int main(void) {
    static pthread_t threads[50];
    stream = tmpfile();
    CHECK(stream != NULL);
    for (int i = 0; i < 64; i++) OK(pthread_key_create(&keys[i], NULL));
    for (long i = 0; i < 50; i++) OK(pthread_create(&threads[i], NULL, keeps, (void *)(i + 1)));
    for (int i = 0; i < 50; i++) OK(pthread_join(threads[i], NULL));
    CHECK(number == 0 && made == 1);
    rewind(stream);
    char line[100];
    int lines = 0;
    while (fgets(line, sizeof line, stream)) {
        CHECK(strcmp(line, "one line whole\n") == 0);
        lines += 1;
    }
    CHECK(lines == 1000);
    fclose(stream);
    // A key that was used before is empty for all.
    OK(pthread_setspecific(keys[0], "x"));
    OK(pthread_key_delete(keys[0]));
    OK(pthread_key_create(&keys[0], NULL));
    CHECK(pthread_getspecific(keys[0]) == NULL);
    ANSWERS(EINVAL, pthread_setspecific(12345, NULL));
    puts("each its own");
    return 0;
}
