/* poll and select, alone and mixed with kernel descriptors; signals; threads. */
#include "common.h"

static void polls(void) {
    int pipes[2];
    pipe(pipes);
    int fd = call_peer("pong");
    struct pollfd entries[4] = {{fd, POLLIN, 0}, {pipes[0], POLLIN, 0}, {-1, POLLIN, 99}, {fd, POLLOUT, 0}};
    say("nothing readable %s", result(poll(entries, 2, 0)));
    say("nothing readable in time %s", result(poll(entries, 2, 20)));
    say("writable %s", result(poll(entries, 4, -1)));
    say("bits %s %s %s %s", pollbits(entries[0].revents), pollbits(entries[1].revents),
        pollbits(entries[2].revents), pollbits(entries[3].revents));
    write(pipes[1], "x", 1);
    say("pipe %s", result(poll(entries, 2, -1)));
    say("bits %s %s", pollbits(entries[0].revents), pollbits(entries[1].revents));
    write(fd, "\003", 1);
    wait_for(fd, POLLIN);
    say("both %s", result(poll(entries, 2, -1)));
    say("bits %s %s", pollbits(entries[0].revents), pollbits(entries[1].revents));
    char buffer[10];
    read(fd, buffer, 10);
    read(pipes[0], buffer, 10);
    write(fd, "\005", 1);
    say("socket wakes %s", result(poll(entries, 2, 10000)));
    say("bits %s %s", pollbits(entries[0].revents), pollbits(entries[1].revents));
    read(fd, buffer, 10);
    struct timespec time = {0, 20000000};
    say("ppoll %s", result(ppoll(entries, 2, &time, NULL)));
    close(fd);
    say("closed %s", result(poll(entries, 1, 0)));
    say("bits %s", pollbits(entries[0].revents));
    close(pipes[0]);
    close(pipes[1]);
}

static void selects(void) {
    int pipes[2];
    pipe(pipes);
    int fd = call_peer("pong");
    int top = (fd > pipes[0] ? fd : pipes[0]) + 1;
    fd_set read_set, write_set, except_set;
    struct timeval time = {0, 20000};
    FD_ZERO(&read_set);
    FD_SET(fd, &read_set);
    FD_SET(pipes[0], &read_set);
    say("select in time %s", result(select(top, &read_set, NULL, NULL, &time)));
    say("sets %d %d left %ld", FD_ISSET(fd, &read_set), FD_ISSET(pipes[0], &read_set), (long)time.tv_usec);
    FD_ZERO(&read_set);
    FD_ZERO(&write_set);
    FD_ZERO(&except_set);
    FD_SET(fd, &read_set);
    FD_SET(fd, &write_set);
    FD_SET(fd, &except_set);
    say("select writable %s", result(select(top, &read_set, &write_set, &except_set, NULL)));
    say("sets %d %d %d", FD_ISSET(fd, &read_set), FD_ISSET(fd, &write_set), FD_ISSET(fd, &except_set));
    write(fd, "\007", 1);
    FD_ZERO(&read_set);
    FD_SET(fd, &read_set);
    FD_SET(pipes[0], &read_set);
    say("select readable %s", result(select(top, &read_set, NULL, NULL, NULL)));
    say("sets %d %d", FD_ISSET(fd, &read_set), FD_ISSET(pipes[0], &read_set));
    write(pipes[1], "x", 1);
    FD_SET(pipes[0], &read_set);
    struct timespec span = {10, 0};
    say("pselect %s", result(pselect(top, &read_set, NULL, NULL, &span, NULL)));
    say("sets %d %d", FD_ISSET(fd, &read_set), FD_ISSET(pipes[0], &read_set));
    int closed = dup(fd);
    close(closed);
    FD_ZERO(&read_set);
    FD_SET(fd, &read_set);
    FD_SET(closed, &read_set);
    say("select with a closed one %s", result(select(closed + 1 > top ? closed + 1 : top, &read_set, NULL, NULL, NULL)));
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static void signals(void) {
    char buffer[10];
    int fd = call_peer("echo"); /* it has nothing to say */
    ring(0);
    const char *what = result(recv(fd, buffer, 5, 0));
    say("recv interrupted %s by a signal %d", what, ring_off());
    ring(SA_RESTART);
    what = result(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 10000));
    say("poll interrupted %s by a signal %d", what, ring_off());
    set_timeout(fd, SO_RCVTIMEO, 10000);
    ring(SA_RESTART);
    what = result(recv(fd, buffer, 5, 0));
    say("recv with a timeout interrupted %s by a signal %d", what, ring_off());
    close(fd);
    /* Eight rings come before the bytes do. */
    fd = call_peer("hello-after 400");
    ring(SA_RESTART);
    what = result(recv(fd, buffer, 5, 0));
    ring_off();
    say("recv restarted %s", what);
    close(fd);
}

static void *receive_one(void *argument) {
    char byte;
    long count = recv(*(int *)argument, &byte, 1, 0);
    return (void *)count;
}

static void threads(void) {
    int quiet = call_peer("echo"), busy = call_peer("echo");
    pthread_t thread;
    pthread_create(&thread, NULL, receive_one, &quiet);
    char buffer[10];
    int good = 0;
    for (int i = 0; i < 100; i++) {
        write(busy, "ping", 4);
        good += recv(busy, buffer, 4, MSG_WAITALL) == 4;
    }
    say("exchanges beside a blocked thread %d", good);
    shutdown(quiet, SHUT_RD);
    void *value;
    pthread_join(thread, &value);
    say("blocked recv ends by shutdown %ld", (long)value);
    close(quiet);
    quiet = call_peer("echo");
    pthread_create(&thread, NULL, receive_one, &quiet);
    pause_ms(50);
    write(quiet, "x", 1);
    pthread_join(thread, &value);
    say("blocked recv gets what another thread's write brings %ld", (long)value);
    close(quiet);
    close(busy);
}

/* Sends the pattern until no more is taken; how much was. What the last send came to, and poll behind it. */
static long fill_up(int fd, char *buffer, size_t size, const char **what, int *room) {
    struct pollfd entry = {fd, POLLOUT, 0};
    long sent = 0, before, count;
    /* What the peer's buffer takes makes room once more, for a while. */
    do {
        before = sent;
        for (;;) {
            fill_pattern(buffer, size, sent);
            if ((count = send(fd, buffer, size, 0)) <= 0)
                break;
            sent += count;
        }
        *what = result(count);
        *room = poll(&entry, 1, 500);
    } while (*room > 0 && sent > before);
    return sent;
}

static void full(void) {
    static char buffer[1 << 20];
    int gate, fd = call_gated_sink(&gate);
    set_nonblocking(fd, 1);
    struct pollfd entry = {fd, POLLOUT, 0};
    const char *what;
    int room;
    long count, sent = fill_up(fd, buffer, sizeof buffer, &what, &room);
    say("filled %d then %s", sent > 0, what);
    say("full polls %s", result(room));
    write(gate, "x", 1);
    entry.revents = 0;
    say("drained polls %s", result(poll(&entry, 1, 20000)));
    say("bits %s", pollbits(entry.revents));
    fill_pattern(buffer, 1000, sent);
    long more = write_all(fd, buffer, 1000);
    shutdown(fd, SHUT_WR);
    char text[100], expected[100];
    count = read_all(fd, text, sizeof text);
    snprintf(expected, sizeof expected, "%ld good\n", sent + more);
    say("sink got all %d", count == (long)strlen(expected) && memcmp(text, expected, count) == 0);
    close(fd);
    close(gate);

    fd = call_gated_sink(&gate);
    set_timeout(fd, SO_SNDTIMEO, 50);
    int shortened = 0;
    for (sent = 0; sent < (1 << 30); sent += count) {
        fill_pattern(buffer, sizeof buffer, sent);
        count = send(fd, buffer, sizeof buffer, 0);
        if (count != (long)sizeof buffer) {
            shortened = 1;
            break;
        }
    }
    say("send timeout came %d", shortened);
    while ((count = send(fd, buffer, sizeof buffer, 0)) > 0) {
    }
    say("send timeout again %s", result(count));
    close(fd);
    close(gate);
}

static int low_water_of(int fd) {
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(fd, SOL_TCP, TCP_NOTSENT_LOWAT, &value, &length);
    return value;
}

/* TCP_NOTSENT_LOWAT: nothing is queued on top of what waits to be sent. */
static void unsent(void) {
    static char buffer[1 << 20];
    int gate, fd = call_gated_sink(&gate), one = 1, waiting = -1, room;
    say("low water %s", result(setsockopt(fd, SOL_TCP, TCP_NOTSENT_LOWAT, &one, sizeof one)));
    say("is %d", low_water_of(fd));
    set_nonblocking(fd, 1);
    struct pollfd entry = {fd, POLLOUT, 0};
    const char *what;
    long count, sent = fill_up(fd, buffer, sizeof buffer, &what, &room);
    say("then %s, polls %s", what, result(room));
    ioctl(fd, SIOCOUTQNSD, &waiting);
    say("few wait to be sent %d", waiting > 0 && waiting < 65536);
    write(gate, "x", 1);
    entry.revents = 0;
    say("drained polls %s", result(poll(&entry, 1, 20000)));
    say("bits %s", pollbits(entry.revents));
    set_nonblocking(fd, 0);
    fill_pattern(buffer, sizeof buffer, sent);
    say("blocking send %s", result(send(fd, buffer, sizeof buffer, 0)));
    shutdown(fd, SHUT_WR);
    char text[100], expected[100];
    count = read_all(fd, text, sizeof text);
    snprintf(expected, sizeof expected, "%ld good\n", sent + (long)sizeof buffer);
    say("sink got all %d", count == (long)strlen(expected) && memcmp(text, expected, count) == 0);
    ioctl(fd, SIOCOUTQNSD, &waiting);
    say("waiting at the end %d", waiting);
    close(fd);
    close(gate);

    int port, listener = listen_on(own_address, &port), much = 5000;
    setsockopt(listener, SOL_TCP, TCP_NOTSENT_LOWAT, &much, sizeof much);
    struct sockaddr_in here = address_of(own_address, port);
    int caller = tcp_socket();
    connect(caller, (struct sockaddr *)&here, sizeof here);
    fd = accept(listener, NULL, NULL);
    say("accepted %d, caller %d", low_water_of(fd), low_water_of(caller));
    say("send to myself %s", result(send(fd, buffer, 20000, 0)));
    say("receive %s", result(recv(caller, buffer, 20000, MSG_WAITALL)));
    close(fd);
    close(caller);
    close(listener);
}

void ready_cases(void) {
    polls();
    selects();
    signals();
    threads();
    full();
    unsent();
}
