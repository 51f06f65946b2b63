// A client of MariaDB's that has many connections: user root, no password, TCP on 127.0.0.1.
//
//     mysql keep PORT CONNECTIONS         opens them, has an answer on each, says so, keeps them until its input ends
//     mysql one PORT CONNECTIONS SECONDS  one request at a time, on one connection after the other: requests per second
//     mysql busy PORT CONNECTIONS SECONDS a request at a time on each connection: requests per second
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what, int at) {
    printf("FAILED: %s on connection %d: %s\n", what, at, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void all(int fd, unsigned char *bytes, size_t left, int at) {
    while (left) {
        ssize_t got = recv(fd, bytes, left, 0);
        if (got <= 0) fail(got ? "recv" : "closed", at);
        bytes += got;
        left -= got;
    }
}

// One packet; its length.
static int packet(int fd, unsigned char *bytes, int at) {
    unsigned char head[4];
    all(fd, head, 4, at);
    int length = head[0] | head[1] << 8 | head[2] << 16;
    if (length > 4000) fail("a long packet", at);
    all(fd, bytes, length, at);
    bytes[length] = 0;
    if (length && bytes[0] == 0xff) {
        printf("FAILED: connection %d: %s\n", at, bytes + 3);
        exit(1);
    }
    return length;
}

static int open_one(int port, int at) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (void *)&address, sizeof address)) fail("connect", at);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    unsigned char bytes[4096];
    packet(fd, bytes, at);
    // 4.1, secure connection, plugins; 16 MiB; utf8; the user; no password; the plugin.
    static const char answer[] = "\x01\x82\x08\x00\x00\x00\x00\x01\x21"
                                 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                 "root\0" "\0" "mysql_native_password";
    unsigned char whole[4 + sizeof answer] = {sizeof answer, 0, 0, 1};
    memcpy(whole + 4, answer, sizeof answer);
    if (send(fd, whole, sizeof whole, 0) != sizeof whole) fail("send", at);
    packet(fd, bytes, at);
    if (bytes[0] == 0xfe) { // another plugin: no password there either
        unsigned char empty[4] = {0, 0, 0, 3};
        if (send(fd, empty, 4, 0) != 4) fail("send", at);
        packet(fd, bytes, at);
    }
    if (bytes[0]) fail("no OK", at);
    return fd;
}

static void ask(int fd, int number, int at) {
    unsigned char bytes[64];
    int length = 1 + sprintf((char *)bytes + 5, "SELECT %d", number);
    bytes[0] = length, bytes[1] = bytes[2] = bytes[3] = 0, bytes[4] = 3;
    if (send(fd, bytes, 4 + length, 0) != 4 + length) fail("send", at);
}

static void hear(int fd, int number, int at) {
    unsigned char bytes[4096];
    int ends = 0, rows = 0, length;
    packet(fd, bytes, at); // how many columns
    while (ends < 2) {
        length = packet(fd, bytes, at);
        if (bytes[0] == 0xfe && length < 9) {
            ends++;
        } else if (ends == 1) {
            rows++;
            if (atoi((char *)bytes + 1) != number) fail("a wrong answer", at);
        }
    }
    if (rows != 1) fail("not one row", at);
}

static void ping(int fd, int at) {
    unsigned char bytes[4096] = {1, 0, 0, 0, 14};
    if (send(fd, bytes, 5, 0) != 5) fail("send", at);
    packet(fd, bytes, at);
    if (bytes[0]) fail("no OK", at);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int port = atoi(words[2]), connections = atoi(words[3]), number = 0;
    double seconds = count > 4 ? atof(words[4]) : 0, began = now(), ended;
    int *fds = malloc(connections * sizeof *fds);
    for (int at = 0; at < connections; at++) fds[at] = open_one(port, at);
    double opened = now() - began;
    if (!strcmp(words[1], "keep")) {
        for (int at = 0; at < connections; at++) ask(fds[at], at, at), hear(fds[at], at, at);
        printf("kept %d, opened in %.2f s, with an answer each %.2f s\n", connections, opened, now() - began);
        while (getchar() != EOF) {}
        for (int at = 0; at < connections; at += 7) ping(fds[at], at);
    } else if (!strcmp(words[1], "one")) {
        int requests = 0;
        began = now();
        do {
            int at = requests++ % connections;
            ask(fds[at], requests, at), hear(fds[at], requests, at);
            ended = now();
        } while (ended - began < seconds);
        printf("%.0f\n", requests / (ended - began));
    } else {
        int epoll = epoll_create1(0), requests = 0, *asked = calloc(connections, sizeof *asked);
        for (int at = 0; at < connections; at++) {
            struct epoll_event event = {.events = EPOLLIN, .data.u32 = at};
            epoll_ctl(epoll, EPOLL_CTL_ADD, fds[at], &event);
        }
        began = now();
        for (int at = 0; at < connections; at++) ask(fds[at], asked[at] = number++, at);
        do {
            struct epoll_event events[64];
            int ready = epoll_wait(epoll, events, 64, 10000);
            if (ready <= 0) fail("no answer for 10 seconds", -1);
            for (int each = 0; each < ready; each++) {
                int at = events[each].data.u32;
                hear(fds[at], asked[at], at);
                ask(fds[at], asked[at] = number++, at);
            }
            requests += ready;
            ended = now();
        } while (ended - began < seconds);
        for (int at = 0; at < connections; at++) hear(fds[at], asked[at], at);
        printf("%.0f\n", requests / (ended - began));
    }
    // Said goodbye: the server need not find out.
    for (int at = 0; at < connections; at++) send(fds[at], "\x01\0\0\0\x01", 5, 0);
    return 0;
}
