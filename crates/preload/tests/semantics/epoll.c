/* epoll: level and edge, one-shot, changes, closed descriptors, mixtures, nesting, threads. */
#include "common.h"
#include <sys/resource.h>

static int control(int epoll, int operation, int fd, unsigned events, unsigned data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(epoll, operation, fd, &event);
}

/* Waits and says what came, sorted by data. */
static void await(const char *what, int epoll, int timeout) {
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, timeout);
    char text[300] = "";
    for (unsigned data = 0; data < 100; data++)
        for (int i = 0; i < count; i++)
            if (events[i].data.u64 == data)
                snprintf(text + strlen(text), sizeof text - strlen(text), " %u:%s", data, pollbits(events[i].events));
    say("%s %s%s", what, result(count), text);
}

static void pong(int fd, char size) {
    write(fd, &size, 1);
    wait_for(fd, POLLIN);
}

static void drain(int fd) {
    char buffer[1000];
    while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
    }
}

static void levels(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int fd = call_peer("pong");
    say("add %s", result(control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    say("add again %s", result(control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1)));
    await("quiet", epoll, 0);
    await("quiet in time", epoll, 20);
    pong(fd, 5);
    await("level", epoll, -1);
    await("level again", epoll, 0);
    char buffer[10];
    read(fd, buffer, 2);
    await("level while some is left", epoll, 0);
    read(fd, buffer, 3);
    await("level after all was read", epoll, 0);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT, 2);
    await("writable too", epoll, -1);
    await("still", epoll, 0);
    pong(fd, 1);
    await("both", epoll, -1);
    drain(fd);
    control(epoll, EPOLL_CTL_MOD, fd, 0, 3);
    pong(fd, 1);
    await("interest in nothing", epoll, 0);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN, 3);
    await("interest again", epoll, 0);
    say("delete %s", result(control(epoll, EPOLL_CTL_DEL, fd, 0, 0)));
    say("delete again %s", result(control(epoll, EPOLL_CTL_DEL, fd, 0, 0)));
    say("modify %s", result(control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN, 0)));
    say("operation %s", result(control(epoll, 17, fd, EPOLLIN, 0)));
    await("deleted", epoll, 0);
    say("no room %s", result(epoll_wait(epoll, (struct epoll_event[1]){}, 0, 0)));
    close(fd);
    close(epoll);
}

static void edges(void) {
    int epoll = epoll_create1(0);
    int fd = call_peer("pong");
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET | EPOLLRDHUP, 1);
    await("edge quiet", epoll, 0);
    pong(fd, 5);
    await("edge", epoll, -1);
    await("edge only once", epoll, 30);
    char buffer[10];
    read(fd, buffer, 2);
    await("edge not for what is left", epoll, 30);
    write(fd, "\003", 1);
    await("edge for more", epoll, 10000);
    drain(fd);
    await("edge drained", epoll, 30);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 2);
    await("edge armed anew", epoll, -1);
    await("edge once", epoll, 30);
    pong(fd, 2);
    await("edge says all", epoll, -1);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 2);
    await("edge after modify", epoll, 0);
    shutdown(fd, SHUT_WR);
    drain(fd);
    wait_for(fd, POLLRDHUP);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 3);
    await("edge of the end", epoll, 10000);
    await("edge of the end once", epoll, 30);
    close(fd);
    close(epoll);
}

static void one_shots(void) {
    int epoll = epoll_create1(0);
    int fd = call_peer("pong");
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, 1);
    pong(fd, 5);
    await("one shot", epoll, -1);
    await("one shot is over", epoll, 20);
    pong(fd, 5);
    await("one shot is still over", epoll, 20);
    control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 2);
    await("one shot anew", epoll, -1);
    close(fd);
    close(epoll);
}

static void closings(void) {
    int epoll = epoll_create1(0);
    int fd = call_peer("close");
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, 1);
    wait_for(fd, POLLRDHUP);
    await("peer closed", epoll, 10000);
    shutdown(fd, SHUT_WR);
    wait_for(fd, POLLHUP);
    await("both closed", epoll, -1);
    close(fd);
    await("closed here", epoll, 20);
    fd = call_peer("reset-on-byte");
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT, 2);
    write(fd, "x", 1);
    wait_for(fd, POLLERR);
    await("reset", epoll, 10000);
    int copy = dup(fd);
    close(fd);
    await("a copy keeps the registration", epoll, 20);
    close(copy);
    await("until it is closed", epoll, 20);
    close(epoll);
}

static void mixtures(void) {
    int epoll = epoll_create1(0), outer = epoll_create1(0);
    int pipes[2];
    pipe(pipes);
    int fd = call_peer("pong");
    say("add early %s", result(control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2)));
    int late = tcp_socket();
    say("add unconnected %s", result(control(epoll, EPOLL_CTL_ADD, late, EPOLLIN | EPOLLOUT | EPOLLET, 3)));
    await("unconnected", epoll, 0);
    set_nonblocking(late, 1);
    connect(late, (struct sockaddr *)&peer_address, sizeof peer_address);
    wait_for(late, POLLOUT);
    await("connected meanwhile", epoll, 10000);
    control(epoll, EPOLL_CTL_DEL, late, 0, 0);
    close(late);
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    write(pipes[1], "x", 1);
    await("pipe", epoll, -1);
    pong(fd, 3);
    await("pipe and socket", epoll, -1);
    char buffer[10];
    read(pipes[0], buffer, 10);
    await("socket", epoll, -1);
    say("nest %s", result(control(outer, EPOLL_CTL_ADD, epoll, EPOLLIN, 9)));
    await("nested", outer, -1);
    say("polled %s", pollbits(wait_for(epoll, POLLIN)));
    drain(fd);
    await("socket drained", epoll, 0);
    await("nested drained", outer, 20);
    write(fd, "\002", 1);
    await("nested wakes", outer, 10000);
    await("inner", epoll, 0);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
    close(epoll);
    close(outer);
}

/* Whatever is ready at the moment of the call is told, however often one asks, and with little room all in turn. */
static void fairness(void) {
    int epoll = epoll_create1(0), pipes[2];
    pipe(pipes);
    int fd = call_peer("pong");
    control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2);
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    pong(fd, 5);
    struct epoll_event events[8];
    char byte;
    int good = 0;
    for (int i = 0; i < 500; i++) {
        int alone = epoll_wait(epoll, events, 8, 0);
        write(pipes[1], "x", 1);
        good += alone == 1 && epoll_wait(epoll, events, 8, 0) == 2;
        read(pipes[0], &byte, 1);
    }
    say("pipe and socket both told %d", good);
    write(pipes[1], "x", 1);
    int seen[3] = {0};
    for (int i = 0; i < 6; i++)
        if (epoll_wait(epoll, events, 1, 0) == 1)
            seen[events[0].data.u64]++;
    say("one at a time: socket %d pipe %d", seen[1], seen[2]);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
    close(epoll);
}

static int ready_now(int epoll) {
    struct epoll_event events[8];
    return epoll_wait(epoll, events, 8, 0);
}

/* A pipe's registration comes and goes beside a socket that is ready all the time. */
static void comings_and_goings(void) {
    int epoll = epoll_create1(0), pipes[2];
    pipe(pipes);
    write(pipes[1], "x", 1);
    int fd = call_peer("pong");
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    pong(fd, 5);
    say("socket alone %d", ready_now(epoll));
    control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2);
    say("pipe added %d", ready_now(epoll));
    say("added again %s", result(control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2)));
    say("still there %d", ready_now(epoll));
    control(epoll, EPOLL_CTL_DEL, pipes[0], 0, 0);
    say("deleted %d", ready_now(epoll));
    say("deleted again %s", result(control(epoll, EPOLL_CTL_DEL, pipes[0], 0, 0)));
    control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2);
    say("added anew %d", ready_now(epoll));
    int late = tcp_socket();
    control(epoll, EPOLL_CTL_ADD, late, EPOLLIN, 3);
    close(late);
    say("a socket came and went %d", ready_now(epoll));
    late = tcp_socket();
    control(epoll, EPOLL_CTL_ADD, late, EPOLLIN, 3);
    connect(late, (struct sockaddr *)&peer_address, sizeof peer_address);
    say("a socket connected %d", ready_now(epoll));
    int copy = dup(pipes[0]);
    close(pipes[0]);
    say("a copy keeps the pipe %d", ready_now(epoll));
    close(copy);
    say("until it is closed %d", ready_now(epoll));
    close(late);
    close(fd);
    close(pipes[1]);
    close(epoll);
}

struct watch {
    int epoll;
    int count;
};

static void *watch_one(void *argument) {
    struct watch *watch = argument;
    struct epoll_event event;
    watch->count = epoll_wait(watch->epoll, &event, 1, 10000);
    return NULL;
}

static void threads(void) {
    struct watch watch = {.epoll = epoll_create1(0)};
    pthread_t thread;
    pthread_create(&thread, NULL, watch_one, &watch);
    pause_ms(50);
    int fd = call_peer("pong");
    write(fd, "\001", 1);
    control(watch.epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    pthread_join(thread, NULL);
    say("a waiting thread learns of an added socket %d", watch.count);
    drain(fd);
    pthread_create(&thread, NULL, watch_one, &watch);
    pause_ms(50);
    write(fd, "\001", 1);
    pthread_join(thread, NULL);
    say("a waiting thread wakes %d", watch.count);
    close(fd);
    close(watch.epoll);
}

static void full(void) {
    static char buffer[1 << 20];
    int epoll = epoll_create1(0), count;
    int gate, fd = call_gated_sink(&gate);
    struct epoll_event event;
    set_nonblocking(fd, 1);
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLET, 1);
    await("edge writable", epoll, -1);
    /* What the peer's buffer takes makes room once more, for a while. */
    do {
        while (send(fd, buffer, sizeof buffer, 0) > 0) {
        }
        count = epoll_wait(epoll, &event, 1, 500);
    } while (count > 0);
    say("edge full %s", result(count));
    write(gate, "x", 1);
    await("edge drained", epoll, 20000);
    await("edge drained once", epoll, 30);
    close(fd);
    close(gate);
    close(epoll);
}

/* A program that has no descriptor left when it first waits: libuv's test "emfile" is such a one. */
void exhausted_cases(void) {
    struct rlimit limit = {40, 40};
    setrlimit(RLIMIT_NOFILE, &limit);
    int epoll = epoll_create1(0), port = 0, listener = listen_on(own_address, &port), spare = dup(0), last;
    struct sockaddr_in to = address_of(own_address, port);
    set_nonblocking(listener, 1);
    while ((last = dup(0)) >= 0)
        spare = last;
    say("no descriptor %s", result(dup(0)));
    close(spare);
    int caller = tcp_socket();
    set_nonblocking(caller, 1);
    say("connect %s", result(connect(caller, (struct sockaddr *)&to, sizeof to)));
    struct epoll_event event = {.events = EPOLLIN}, events[4];
    say("watch the listener %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event)));
    event.events = EPOLLOUT;
    say("watch the caller %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, caller, &event)));
    int told = 0;
    for (int tries = 0; told < 2 && tries < 100; tries++)
        told = epoll_wait(epoll, events, 4, 100);
    say("both tell %d", told);
    say("accept %s", result(accept(listener, NULL, NULL)));
    close(spare - 1);
    int fd = accept(listener, NULL, NULL);
    say("then accept %d", fd >= 0);
    close(spare - 2);
    say("and no more %s", result(accept(listener, NULL, NULL)));
    say("send %s", result(send(fd, "x", 1, 0)));
    event.events = EPOLLIN;
    say("watch for it %s", result(epoll_ctl(epoll, EPOLL_CTL_MOD, caller, &event)));
    say("it comes %s", result(epoll_wait(epoll, events, 4, 10000)));
}

void epoll_cases(void) {
    levels();
    edges();
    one_shots();
    closings();
    mixtures();
    fairness();
    comings_and_goings();
    threads();
    full();
}
