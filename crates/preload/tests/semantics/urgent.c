/* Urgent data: out of the line and in it, the mark, readiness, both directions. */
#include "common.h"

static const char *mark(int fd) {
    int at = -1;
    if (ioctl(fd, SIOCATMARK, &at) != 0)
        return errname(errno);
    return at != sockatmark(fd) ? "unsure" : at ? "at the mark" : "not at the mark";
}

static int waiting(int fd) {
    int count = -1;
    ioctl(fd, FIONREAD, &count);
    return count;
}

static int now(int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    poll(&entry, 1, 0);
    return entry.revents;
}

/* The peer's word that a line has been sent comes behind what was sent, on this connection. */
static int told;

static int call_urgent_sender(void) {
    int port = 0, listener = listen_on(own_address, &port);
    int fd = call_peer("urgent-sender %d", port);
    told = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

static void hang_up(int fd) {
    close(fd);
    close(told);
}

/* Has the peer send text (d) or urgent text (u), several lines at once, and waits for it. */
static void have(int fd, const char *lines) {
    char byte;
    write_all(fd, lines, strlen(lines));
    for (const char *end = lines; (end = strchr(end, '\n')); end++)
        read_all(told, &byte, 1);
    pause_ms(5);
}

static void show(int fd, const char *what) {
    char buffer[100];
    long count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    say("%s read %s \"%.*s\"", what, result(count), count > 0 ? (int)count : 0, buffer);
}

static void show_urgent(int fd, const char *what, int flags) {
    char byte = '-';
    long count = recv(fd, &byte, 1, MSG_OOB | flags);
    say("%s urgent %s '%c'", what, result(count), byte);
}

static void out_of_line(void) {
    int fd = call_urgent_sender();
    show_urgent(fd, "nothing", 0);
    say("nothing %s", mark(fd));
    have(fd, "d abc\n");
    show_urgent(fd, "plain", 0);
    have(fd, "u xyz\n");
    say("polls %s", pollbits(wait_for(fd, POLLIN | POLLPRI)));
    say("waiting %d, %s", waiting(fd), mark(fd));
    show_urgent(fd, "peek", MSG_PEEK);
    show_urgent(fd, "take", 0);
    show_urgent(fd, "take again", 0);
    say("taken polls %s", pollbits(now(fd, POLLIN | POLLPRI)));
    char buffer[100];
    long peeked = recv(fd, buffer, sizeof buffer, MSG_PEEK);
    say("peek %ld \"%.*s\"", peeked, (int)peeked, buffer);
    show(fd, "before the mark");
    say("then %s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show(fd, "at the mark");
    say("then %s, waiting %d", mark(fd), waiting(fd));
    have(fd, "d more\n");
    show(fd, "behind it");
    /* Not taken, and passed. */
    have(fd, "d 12\nu 3\nd 45\n");
    say("waiting %d, polls %s", waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show(fd, "before");
    say("%s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    peeked = recv(fd, buffer, sizeof buffer, MSG_PEEK);
    say("peek at the mark %ld \"%.*s\", %s", peeked, (int)peeked, buffer, mark(fd));
    show(fd, "after");
    say("%s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show_urgent(fd, "passed", 0);
    hang_up(fd);
}

static void several(void) {
    int fd = call_urgent_sender();
    have(fd, "u A\nu B\n");
    say("two: %s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show_urgent(fd, "two", 0);
    show(fd, "two");
    have(fd, "u C\nd de\nu F\nd g\n");
    say("apart: %s, waiting %d", mark(fd), waiting(fd));
    show_urgent(fd, "apart", 0);
    show(fd, "apart");
    say("apart: %s, waiting %d", mark(fd), waiting(fd));
    show(fd, "apart");
    have(fd, "d h\nu I\nu J\nd k\n");
    show(fd, "not read up to it");
    show(fd, "not read up to it");
    show(fd, "not read up to it");
    have(fd, "u L\n");
    say("alone: %s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show(fd, "alone");
    say("alone: %s, polls %s", mark(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show_urgent(fd, "alone", 0);
    hang_up(fd);
}

static void in_line(void) {
    int fd = call_urgent_sender();
    int on = 1;
    socklen_t length = sizeof on;
    say("set %s", result(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on)));
    on = 0;
    getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, &length);
    say("is %d", on);
    have(fd, "d ab\nu c\nd de\n");
    say("polls %s, waiting %d", pollbits(now(fd, POLLIN | POLLPRI)), waiting(fd));
    show_urgent(fd, "in line", 0);
    show(fd, "before");
    say("%s, waiting %d, polls %s", mark(fd), waiting(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    show(fd, "on");
    say("%s, polls %s", mark(fd), pollbits(now(fd, POLLIN | POLLPRI)));
    have(fd, "u X\nu Y\n");
    show(fd, "two");
    show(fd, "two");
    on = 0;
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    have(fd, "u Z\n");
    show_urgent(fd, "out of line again", 0);
    hang_up(fd);
}

static void calls(void) {
    char buffer[100] = "";
    int fd = call_urgent_sender();
    have(fd, "d abcd\nu e\nd fghijk\n");
    say("waitall %s", result(recv(fd, buffer, 8, MSG_WAITALL)));
    say("waitall gave %.4s", buffer);
    say("cut away %s", result(recv(fd, buffer, 3, MSG_TRUNC)));
    show(fd, "rest");
    have(fd, "d lm\nu n\nd op\n");
    say("cut away to the mark %s", result(recv(fd, buffer, 50, MSG_TRUNC)));
    struct iovec into[2] = {{buffer, 0}, {buffer, 10}};
    struct msghdr message = {.msg_iov = into, .msg_iovlen = 2};
    say("recvmsg %s, out of band %d, %c", result(recvmsg(fd, &message, MSG_OOB)),
        (message.msg_flags & MSG_OOB) != 0, buffer[0]);
    show(fd, "rest");
    have(fd, "u q\n");
    message.msg_iovlen = 1;
    say("no room %s", result(recvmsg(fd, &message, MSG_OOB)));
    say("no room: out of band %d, cut %d", (message.msg_flags & MSG_OOB) != 0, (message.msg_flags & MSG_TRUNC) != 0);
    show_urgent(fd, "no room", 0);
    hang_up(fd);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    connect(udp, (struct sockaddr *)&peer_address, sizeof peer_address);
    say("datagram %s", result(send(udp, "x", 1, MSG_OOB)));
    close(udp);
}

static void readiness(void) {
    int fd = call_urgent_sender();
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLPRI}, got;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    have(fd, "d abc\n");
    say("epoll without %d", epoll_wait(epoll, &got, 1, 0));
    fd_set except;
    FD_ZERO(&except);
    FD_SET(fd, &except);
    struct timeval time = {0, 0};
    say("select without %d", select(fd + 1, NULL, NULL, &except, &time));
    write_all(fd, "u d\n", 4);
    say("epoll %d", epoll_wait(epoll, &got, 1, 10000));
    say("epoll says %s", pollbits(got.events));
    FD_SET(fd, &except);
    time.tv_sec = 10;
    say("select %d", select(fd + 1, NULL, NULL, &except, &time));
    show_urgent(fd, "taken", 0);
    say("epoll after %d", epoll_wait(epoll, &got, 1, 0));
    show(fd, "line");
    event.events = EPOLLPRI | EPOLLET;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    write_all(fd, "u e\n", 4);
    say("edge %d", epoll_wait(epoll, &got, 1, 10000));
    say("edge again %d", epoll_wait(epoll, &got, 1, 0));
    write_all(fd, "u f\n", 4);
    say("next edge %d", epoll_wait(epoll, &got, 1, 10000));
    /* A poll that waits for nothing else, and one that waits for room too. */
    show_urgent(fd, "taken", 0);
    show(fd, "line");
    write_all(fd, "u g\n", 4);
    say("poll %s", pollbits(wait_for(fd, POLLPRI)));
    /* A read that is asked to wait is ended by what comes behind the mark, not by the urgent byte. */
    show(fd, "line");
    set_timeout(fd, SO_RCVTIMEO, 100);
    write_all(fd, "u h\n", 4);
    char byte;
    say("blocking read %s", result(recv(fd, &byte, 1, 0)));
    close(epoll);
    hang_up(fd);
}

static void sending(void) {
    char text[200] = "";
    int fd = call_peer("urgent-reader");
    int on = 1;
    setsockopt(fd, SOL_TCP, TCP_CORK, &on, sizeof on); /* urgent data goes all the same */
    say("nothing %s", result(send(fd, "", 0, MSG_OOB)));
    say("plain %s", result(send(fd, "abc", 3, 0)));
    say("urgent %s", result(send(fd, "def", 3, MSG_OOB)));
    pause_ms(150);
    say("plain %s", result(send(fd, "gh", 2, 0)));
    struct iovec parts[2] = {{"ij", 2}, {"k", 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    say("parts %s", result(sendmsg(fd, &message, MSG_OOB)));
    pause_ms(150);
    shutdown(fd, SHUT_WR);
    read_all(fd, text, sizeof text - 1);
    say("the peer got %s", text);
    close(fd);
    fd = call_peer("close");
    wait_for(fd, POLLIN);
    pause_ms(20);
    say("to an end %s", result(send(fd, "x", 1, MSG_OOB | MSG_NOSIGNAL)));
    close(fd);
    fd = tcp_socket();
    say("not connected %s", result(send(fd, "x", 1, MSG_OOB | MSG_NOSIGNAL)));
    say("not connected %s", result(recv(fd, text, 1, MSG_OOB)));
    close(fd);
}

static void inherited(void) {
    int port = 0, on = 1;
    int listener = listen_on(own_address, &port);
    setsockopt(listener, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    int fd = call_peer("call-urgent %d", port);
    int accepted = accept(listener, NULL, NULL);
    on = 0;
    socklen_t length = sizeof on;
    getsockopt(accepted, SOL_SOCKET, SO_OOBINLINE, &on, &length);
    say("inherited %d", on);
    wait_for(accepted, POLLPRI);
    show_urgent(accepted, "inherited", 0);
    show(accepted, "inherited");
    show(accepted, "inherited");
    close(accepted);
    close(listener);
    close(fd);
}

/* Into a pipe goes what is before the urgent byte; where only that is left, nothing does, and nobody waits. */
static void spliced(void) {
    int pipes[2];
    pipe(pipes);
    int fd = call_urgent_sender();
    have(fd, "d ab\nu c\n");
    say("splice before the mark %s", result(splice(fd, NULL, pipes[1], NULL, 2, 0)));
    say("splice at the mark %s, %s", result(splice(fd, NULL, pipes[1], NULL, 10, 0)), mark(fd));
    show_urgent(fd, "spliced", 0);
    close(pipes[0]);
    close(pipes[1]);
    hang_up(fd);
}

void urgent_cases(void) {
    out_of_line();
    several();
    in_line();
    calls();
    readiness();
    sending();
    inherited();
    spliced();
}
