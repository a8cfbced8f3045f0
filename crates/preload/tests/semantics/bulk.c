/* Much data in both directions, checked byte by byte, by blocking and by non-blocking calls. */
#include "common.h"

#define AMOUNT (24L << 20)

static void sending(int nonblocking, const char *name) {
    static char buffer[100003];
    int fd = call_peer("sink");
    set_nonblocking(fd, nonblocking);
    for (long sent = 0; sent < AMOUNT;) {
        long piece = AMOUNT - sent < (long)sizeof buffer ? AMOUNT - sent : (long)sizeof buffer;
        fill_pattern(buffer, piece, sent);
        if (write_all(fd, buffer, piece) != piece)
            break;
        sent += piece;
    }
    shutdown(fd, SHUT_WR);
    char text[100];
    long count = read_all(fd, text, sizeof text);
    say("%s send: %.*s", name, (int)(count > 0 ? count - 1 : 0), text);
    close(fd);
}

static void receiving(int nonblocking, const char *name) {
    static char buffer[100003];
    int fd = call_peer("source %ld", AMOUNT);
    set_nonblocking(fd, nonblocking);
    long got = 0, count;
    int good = 1;
    while ((count = read_all(fd, buffer, sizeof buffer)) > 0) {
        good &= matches_pattern(buffer, count, got);
        got += count;
    }
    say("%s receive: %ld %s", name, got, good ? "good" : "bad");
    close(fd);
}

static void *send_half(void *argument) {
    static char buffer[65536];
    int fd = *(int *)argument;
    for (long sent = 0; sent < AMOUNT; sent += sizeof buffer) {
        fill_pattern(buffer, sizeof buffer, sent);
        if (write_all(fd, buffer, sizeof buffer) != (long)sizeof buffer)
            break;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void both_ways(void) {
    static char buffer[65537];
    int fd = call_peer("echo");
    pthread_t thread;
    pthread_create(&thread, NULL, send_half, &fd);
    long got = 0, count;
    int good = 1;
    while ((count = read(fd, buffer, sizeof buffer)) > 0) {
        good &= matches_pattern(buffer, count, got);
        got += count;
    }
    pthread_join(thread, NULL);
    say("both ways at once: %ld %s", got, good ? "good" : "bad");
    close(fd);
}

void bulk_cases(void) {
    sending(0, "blocking");
    sending(1, "non-blocking");
    receiving(0, "blocking");
    receiving(1, "non-blocking");
    both_ways();
}
