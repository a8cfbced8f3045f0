/* Peeking from an offset (SO_PEEK_OFF), which reads move. */
#include "common.h"

static int offset_of(int fd) {
    int offset = -100;
    socklen_t length = sizeof offset;
    return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &length) < 0 ? -errno : offset;
}

static void set(int fd, int offset) {
    say("set %d: %s", offset, result(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset)));
}

static void get(int fd, int length, int flags) {
    char buffer[100] = "";
    struct iovec part = {buffer, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long count = recvmsg(fd, &message, flags);
    int shown = count < 0 ? 0 : count < length ? (int)count : length;
    say("%s %d with %x: %s \"%.*s\" flags %x, offset %d", flags & MSG_PEEK ? "peek" : "take", length, flags, result(count),
        flags & MSG_TRUNC && count >= 0 && buffer[0] == 0 ? 0 : shown, buffer, count < 0 ? 0 : message.msg_flags, offset_of(fd));
}

static void peek(int fd, int length) { get(fd, length, MSG_PEEK | MSG_DONTWAIT); }

static void take(int fd, int length) { get(fd, length, MSG_DONTWAIT); }

/* Until so many bytes of a stream can be read. */
static void have(int fd, int bytes) {
    int waiting = 0;
    for (int tries = 0; tries < 5000 && waiting < bytes; tries++) {
        ioctl(fd, FIONREAD, &waiting);
        pause_ms(1);
    }
}

static void streams(void) {
    int fd = call_peer("echo");
    say("off %d", offset_of(fd));
    write_all(fd, "abcdefghijklmnop", 16);
    have(fd, 16);
    peek(fd, 4);
    set(fd, 0);
    peek(fd, 4);
    peek(fd, 4);
    take(fd, 3);
    peek(fd, 2);
    take(fd, 12);
    peek(fd, 5);
    peek(fd, 5);
    set_timeout(fd, SO_RCVTIMEO, 50);
    get(fd, 5, MSG_PEEK);
    set_timeout(fd, SO_RCVTIMEO, 5000);
    write_all(fd, "qrst", 4);
    get(fd, 4, MSG_PEEK | MSG_WAITALL);
    set(fd, 2);
    get(fd, 3, MSG_PEEK | MSG_WAITALL);
    get(fd, 3, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
    set(fd, 3);
    get(fd, 1, MSG_DONTWAIT | MSG_TRUNC);
    take(fd, 0);
    peek(fd, 0);
    set(fd, -1);
    peek(fd, 2);
    set(fd, 1000);
    peek(fd, 2);
    take(fd, 1);
    set(fd, INT32_MAX);
    peek(fd, 2);
    set(fd, -7);
    peek(fd, 10);
    set(fd, 1);
    int level = 3;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &level, sizeof level);
    write_all(fd, "uv", 2);
    get(fd, 10, MSG_PEEK);
    set(fd, 0);
    shutdown(fd, SHUT_WR);
    while (!(wait_for(fd, POLLRDHUP) & POLLRDHUP))
        pause_ms(1);
    get(fd, 100, MSG_PEEK);
    get(fd, 100, MSG_PEEK);
    set(fd, 100);
    get(fd, 100, MSG_PEEK);
    take(fd, 100);
    take(fd, 100);
    get(fd, 100, MSG_PEEK);
    close(fd);
}

/* What a read calls of its own kind move, and what does not. */
static void other_calls(void) {
    int fd = call_peer("echo"), pipes[2], other;
    long count;
    char buffer[20];
    struct iovec parts[2] = {{buffer, 2}, {buffer + 2, 3}};
    write_all(fd, "abcdefghijklmnop", 16);
    have(fd, 16);
    set(fd, 3);
    other = dup(fd);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    count = recvmsg(fd, &message, MSG_PEEK);
    say("in parts %s \"%.5s\", offset %d", result(count), buffer, offset_of(other));
    count = recv(other, buffer, 2, MSG_PEEK);
    say("recv %s \"%.2s\", offset %d", result(count), buffer, offset_of(fd));
    count = readv(fd, parts, 2);
    say("readv %s \"%.5s\", offset %d", result(count), buffer, offset_of(fd));
    count = read(fd, buffer, 2);
    say("read %s \"%.2s\", offset %d", result(count), buffer, offset_of(fd));
    pipe(pipes);
    count = splice(fd, NULL, pipes[1], NULL, 1, 0);
    say("splice %s, offset %d", result(count), offset_of(fd));
    peek(fd, 3);
    close(pipes[0]);
    close(pipes[1]);
    close(other);
    close(fd);
}

static void inherited(void) {
    int port = 0, listener = listen_on(own_address, &port);
    set(listener, 2);
    say("listener %d", offset_of(listener));
    int fd = call_peer("call-hello %d", port), accepted = accept(listener, NULL, NULL);
    have(accepted, 5);
    say("accepted %d", offset_of(accepted));
    peek(accepted, 2);
    say("listener %d", offset_of(listener));
    set(accepted, -1);
    peek(accepted, 2);
    close(accepted);
    close(listener);
    close(fd);
    fd = tcp_socket();
    set(fd, 4);
    connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address);
    write_all(fd, "echo\nabcdefgh", 13);
    have(fd, 8);
    peek(fd, 2);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("disconnect %s", result(connect(fd, &none, sizeof none)));
    say("then %d", offset_of(fd));
    close(fd);
    fd = call_peer("reset-on-byte");
    set(fd, 4);
    write_all(fd, "x", 1);
    wait_for(fd, POLLRDHUP);
    peek(fd, 2);
    peek(fd, 2);
    close(fd);
}

static void urgent(void) {
    int port = 0, listener = listen_on(own_address, &port);
    int fd = call_peer("urgent-sender %d", port), told = accept(listener, NULL, NULL);
    char byte;
    close(listener);
    write_all(fd, "d abc\nu xyz\nd more\n", 19);
    for (int lines = 0; lines < 3; lines++)
        read_all(told, &byte, 1);
    pause_ms(5);
    set(fd, 1);
    peek(fd, 20);
    peek(fd, 20);
    set(fd, 7);
    peek(fd, 20);
    set(fd, 5);
    peek(fd, 20);
    set(fd, 4);
    take(fd, 20);
    peek(fd, 20);
    take(fd, 20);
    close(fd);
    close(told);
}

/* Has these lengths of the alphabet waiting; ends with -1. The last is there when another socket's, sent later, is. */
static void queue(int fd, struct sockaddr_in to, const int *lengths) {
    const char *text = "abcdefghijklmnopqrstuvwxyz";
    int later = socket(AF_INET, SOCK_DGRAM, 0);
    for (; *lengths >= 0; text += *lengths++)
        send(fd, text, *lengths, 0);
    sendto(later, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
    wait_for(later, POLLIN);
    close(later);
    wait_for(fd, POLLIN);
}

static void drain(int fd) {
    char buffer[100];
    while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) >= 0) {
    }
}

static void datagrams(void) {
    int call = call_peer("datagrams"), fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address_of(peer_address.sin_addr, port_of(call));
    connect(fd, (struct sockaddr *)&to, sizeof to);
    say("off %d", offset_of(fd));
    set(fd, 0);
    peek(fd, 5);
    queue(fd, to, (int[]){5, 3, 4, -1});
    peek(fd, 2);
    peek(fd, 3);
    peek(fd, 2);
    peek(fd, 10);
    peek(fd, 10);
    peek(fd, 10);
    set_timeout(fd, SO_RCVTIMEO, 50);
    get(fd, 5, MSG_PEEK);
    take(fd, 10);
    peek(fd, 10);
    take(fd, 1);
    peek(fd, 10);
    set(fd, 0);
    get(fd, 1, MSG_PEEK | MSG_TRUNC);
    peek(fd, 10);
    get(fd, 1, MSG_TRUNC);
    peek(fd, 10);
    say("empty ones");
    queue(fd, to, (int[]){0, 4, 0, 0, 2, 0, -1});
    set(fd, 0);
    for (int i = 0; i < 8; i++)
        peek(fd, 10);
    set(fd, 0);
    for (int i = 0; i < 4; i++)
        peek(fd, 10);
    for (int i = 0; i < 3; i++)
        take(fd, 10);
    set(fd, -1);
    peek(fd, 10);
    set(fd, 0);
    peek(fd, 10);
    drain(fd);
    queue(fd, to, (int[]){5, 0, 5, 0, -1});
    set(fd, 10);
    peek(fd, 10);
    peek(fd, 10);
    set(fd, 5);
    peek(fd, 10);
    peek(fd, 10);
    set(fd, 5);
    peek(fd, 0);
    set(fd, INT32_MAX);
    peek(fd, 10);
    drain(fd);
    say("drained %d", offset_of(fd));
    set(fd, 2);
    set_timeout(fd, SO_RCVTIMEO, 5000);
    send(fd, "a", 1, 0);
    send(fd, "bcd", 3, 0);
    get(fd, 10, MSG_PEEK);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("disconnect %s", result(connect(fd, &none, sizeof none)));
    say("then %d", offset_of(fd));
    close(fd);
    close(call);
}

/* One that is not bound to an address of its own, and one that has heard of an error. */
static void anywhere(void) {
    int call = call_peer("datagrams"), fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address_of(peer_address.sin_addr, port_of(call)), any = {.sin_family = AF_INET};
    bind(fd, (struct sockaddr *)&any, sizeof any);
    set(fd, 0);
    set_timeout(fd, SO_RCVTIMEO, 50);
    sendto(fd, "abc", 3, 0, (struct sockaddr *)&to, sizeof to);
    wait_for(fd, POLLIN);
    get(fd, 2, MSG_PEEK);
    get(fd, 2, MSG_PEEK);
    get(fd, 2, MSG_PEEK);
    set_timeout(fd, SO_RCVTIMEO, 5000);
    sendto(fd, "def", 3, 0, (struct sockaddr *)&to, sizeof to);
    get(fd, 2, MSG_PEEK);
    get(fd, 3, 0);
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 9);
    connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
    set(fd, 0);
    send(fd, "x", 1, 0);
    wait_for(fd, POLLIN);
    peek(fd, 2);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    send(fd, "ghi", 3, 0);
    get(fd, 2, MSG_PEEK);
    get(fd, 2, MSG_PEEK);
    send(fd, "jkl", 3, 0);
    get(fd, 2, MSG_PEEK);
    close(fd);
    close(call);
}

void peeks_cases(void) {
    streams();
    other_calls();
    inherited();
    urgent();
    datagrams();
    anywhere();
}
