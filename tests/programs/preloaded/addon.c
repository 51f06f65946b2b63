// An addon of node's that makes pthreads, and says how many were counted.
#include <node_api.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *count(void *nothing) {
    pthread_mutex_lock(&lock);
    counted++;
    pthread_mutex_unlock(&lock);
    return nothing;
}

static napi_value threads(napi_env env, napi_callback_info info) {
    size_t words = 1;
    napi_value word, number;
    int32_t all = 0;
    pthread_t made[1000];
    napi_get_cb_info(env, info, &words, &word, NULL, NULL);
    napi_get_value_int32(env, word, &all);
    if (all > 1000) all = 1000;
    for (int at = 0; at < all; at++) pthread_create(&made[at], NULL, count, NULL);
    for (int at = 0; at < all; at++) pthread_join(made[at], NULL);
    napi_create_int32(env, counted, &number);
    return number;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "threads", NAPI_AUTO_LENGTH, threads, NULL, &function);
    napi_set_named_property(env, exports, "threads", function);
    return exports;
}
