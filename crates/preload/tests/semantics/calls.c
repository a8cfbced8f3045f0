/* What every call says in every state: errors, names, conflicts, shutdowns, odd arguments. */
#include "common.h"

#define AS(address) (struct sockaddr *)&address, sizeof address

static struct sockaddr_in silent_address(void) {
    /* on the peer's link, where nobody is */
    struct in_addr ip = {htonl(ntohl(peer_address.sin_addr.s_addr) + 100)};
    return address_of(ip, 7000);
}

static const char *error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error ? errname(error) : "0";
}

static int bits(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&entry, 1, 0);
    return entry.revents;
}

/* The calls that tell a state, none of which changes it. */
static void look(const char *state, int fd) {
    char byte;
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    say("%s: polls %s", state, pollbits(bits(fd)));
    say("%s: recv %s", state, result(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK)));
    say("%s: send nothing %s", state, result(send(fd, &byte, 0, MSG_DONTWAIT | MSG_NOSIGNAL)));
    say("%s: getpeername %s", state, result(getpeername(fd, (struct sockaddr *)&name, &length)));
    length = sizeof name;
    int count = getsockname(fd, (struct sockaddr *)&name, &length);
    say("%s: getsockname %d port %d", state, count, name.sin_port != 0);
    say("%s: accept %s", state, result(accept4(fd, NULL, NULL, SOCK_NONBLOCK)));
    int waiting = -1;
    say("%s: FIONREAD %s", state, result(ioctl(fd, FIONREAD, &waiting)));
    waiting = -1;
    say("%s: error %s", state, error_of(fd));
}

static void states(void) {
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 1), silent = silent_address();
    struct sockaddr_in own = address_of(own_address, 0);
    int fd = tcp_socket();
    look("fresh", fd);
    bind(fd, AS(own));
    look("bound", fd);
    say("bound again %s", result(bind(fd, AS(own))));
    listen(fd, 5);
    set_nonblocking(fd, 1);
    look("listening", fd);
    say("listen again %s", result(listen(fd, 7)));
    say("listener connects %s", result(connect(fd, AS(peer_address))));
    say("listener shuts writing %s", result(shutdown(fd, SHUT_WR)));
    say("then polls %s", pollbits(bits(fd)));
    close(fd);

    fd = tcp_socket();
    set_nonblocking(fd, 1);
    say("connect to silence %s", result(connect(fd, AS(silent))));
    say("connect again %s", result(connect(fd, AS(silent))));
    look("connecting", fd);
    say("listen while connecting %s", result(listen(fd, 5)));
    close(fd);
    fd = tcp_socket();
    set_timeout(fd, SO_SNDTIMEO, 50);
    say("connect with a limit %s", result(connect(fd, AS(silent))));
    close(fd);

    fd = tcp_socket();
    char control[16] = "";
    socklen_t length = sizeof control;
    say("reno %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "reno", 4)));
    say("refused with an option %s", result(connect(fd, AS(nobody))));
    say("then connects %s", result(connect(fd, AS(peer_address))));
    getsockopt(fd, SOL_TCP, TCP_CONGESTION, control, &length);
    say("which still has it: %s", control);
    close(fd);

    fd = tcp_socket();
    say("refused %s", result(connect(fd, AS(nobody))));
    look("refused", fd);
    say("refused again %s", result(connect(fd, AS(nobody))));
    say("then connects %s", result(connect(fd, AS(peer_address))));
    say("and works %s", result(write(fd, "echo\n", 5)));
    look("connected", fd);
    say("connect connected %s", result(connect(fd, AS(peer_address))));
    say("listen connected %s", result(listen(fd, 5)));
    say("bind connected %s", result(bind(fd, AS(own))));
    close(fd);

    fd = call_peer("close");
    wait_for(fd, POLLRDHUP);
    look("half closed", fd);
    shutdown(fd, SHUT_WR);
    wait_for(fd, POLLHUP);
    /* It is closed once the peer has acknowledged the end, which takes a round trip. */
    for (int tries = 0; tries < 200; tries++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0)
            break;
        usleep(10000);
    }
    look("closed", fd);
    say("connect closed %s", result(connect(fd, AS(peer_address))));
    close(fd);

    fd = call_peer("reset-on-byte");
    write(fd, "x", 1);
    wait_for(fd, POLLERR);
    say("error of a reset %s", error_of(fd));
    look("reset", fd);
    say("reconnect %s", result(connect(fd, AS(peer_address))));
    close(fd);
}

static void arguments(void) {
    char buffer[20];
    struct sockaddr_in to = peer_address;
    int fd = tcp_socket();
    say("short address %s", result(connect(fd, (struct sockaddr *)&to, 7)));
    to.sin_family = AF_INET6;
    say("wrong family %s", result(connect(fd, AS(to))));
    to = peer_address;
    say("bind short %s", result(bind(fd, (struct sockaddr *)&to, 7)));
    to.sin_family = AF_UNIX;
    say("bind family %s", result(bind(fd, AS(to))));
    say("no such descriptor %s", result(connect(9999, AS(peer_address))));
    int pipes[2];
    pipe(pipes);
    say("not a socket %s", result(connect(pipes[0], AS(peer_address))));
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
    fd = call_peer("echo");
    struct iovec parts[3] = {{buffer, 0}, {"ab", 2}, {buffer, 0}};
    say("writev of none %s", result(writev(fd, parts, 0)));
    say("writev of empty ones %s", result(writev(fd, parts, 1)));
    say("writev with empty ones %s", result(writev(fd, parts, 3)));
    say("writev of minus one %s", result(writev(fd, parts, atoi("-1"))));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2000};
    say("sendmsg of too many %s", result(sendmsg(fd, &message, 0)));
    wait_for(fd, POLLIN);
    struct iovec into[3] = {{buffer, 0}, {buffer + 5, 1}, {buffer + 9, 9}};
    say("readv of none %s", result(readv(fd, into, 0)));
    say("readv into empty and full %s", result(readv(fd, into, 3)));
    say("it gave %c%c", buffer[5], buffer[9]);
    say("nothing there, recv of nothing %s", result(recv(fd, buffer, 0, MSG_DONTWAIT)));
    say("read of nothing %s", result(read(fd, buffer, 0)));
    say("errors only %s", result(recv(fd, buffer, 5, MSG_ERRQUEUE)));
    say("accept flags %s", result(accept4(fd, NULL, NULL, 12345)));
    socklen_t length = 0;
    int value = 1;
    say("getsockopt of no length %s %d", result(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length)), length);
    length = (socklen_t)-1;
    say("getsockopt of minus one %s", result(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length)));
    length = 1;
    say("getsockopt of one byte %s %d", result(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length)), length);
    say("setsockopt of a null %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, 4)));
    struct linger linger = {1, 3};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    linger.l_linger = 0;
    length = sizeof linger;
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length);
    say("linger %d %d", linger.l_onoff, linger.l_linger);
    length = sizeof value;
    getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &length);
    say("protocol %d", value == IPPROTO_TCP);
    close(fd);
}

static void conflicts(int type, const char *name) {
    int on = 1, first = socket(AF_INET, type, 0), second = socket(AF_INET, type, 0);
    struct sockaddr_in own = address_of(own_address, 0);
    bind(first, AS(own));
    socklen_t length = sizeof own;
    getsockname(first, (struct sockaddr *)&own, &length);
    say("%s: taken %s", name, result(bind(second, AS(own))));
    struct sockaddr_in any = address_of((struct in_addr){htonl(INADDR_ANY)}, ntohs(own.sin_port));
    say("%s: taken for any %s", name, result(bind(second, AS(any))));
    setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("%s: reused by one %s", name, result(bind(second, AS(own))));
    close(second);
    second = socket(AF_INET, type, 0);
    setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("%s: reused by both %s", name, result(bind(second, AS(own))));
    if (type == SOCK_STREAM) {
        say("%s: first listens %s", name, result(listen(first, 5)));
        say("%s: second listens %s", name, result(listen(second, 5)));
    }
    close(first);
    close(second);
    first = socket(AF_INET, type, 0);
    second = socket(AF_INET, type, 0);
    setsockopt(first, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    own.sin_port = 0;
    bind(first, AS(own));
    getsockname(first, (struct sockaddr *)&own, &length);
    say("%s: port shared by one %s", name, result(bind(second, AS(own))));
    close(second);
    second = socket(AF_INET, type, 0);
    setsockopt(second, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    say("%s: port shared %s", name, result(bind(second, AS(own))));
    if (type == SOCK_STREAM)
        say("%s: both listen %s %s", name, result(listen(first, 5)), result(listen(second, 5)));
    close(first);
    close(second);
    first = socket(AF_INET, type, 0);
    own.sin_port = 0;
    bind(first, AS(own));
    getsockname(first, (struct sockaddr *)&own, &length);
    close(first);
    second = socket(AF_INET, type, 0);
    say("%s: free again %s", name, result(bind(second, AS(own))));
    close(second);
}

static void peeking(void) {
    char buffer[20];
    int fd = call_peer("echo");
    write(fd, "0123456789", 10);
    wait_for(fd, POLLIN);
    say("peek and wait for all %s", result(recv(fd, buffer, 10, MSG_PEEK | MSG_WAITALL)));
    say("peek again %s", result(recv(fd, buffer, 20, MSG_PEEK)));
    say("read %s", result(recv(fd, buffer, 3, 0)));
    say("peek then %s %c", result(recv(fd, buffer, 20, MSG_PEEK)), buffer[0]);
    int waiting = 0;
    ioctl(fd, FIONREAD, &waiting);
    say("waiting %d", waiting);
    say("the rest %s", result(recv(fd, buffer, 20, MSG_DONTWAIT)));
    int low = 5;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    write(fd, "abc", 3);
    pause_ms(100);
    say("below the low-water mark polls %s", pollbits(bits(fd) & POLLIN));
    write(fd, "de", 2);
    say("at it %s", pollbits(wait_for(fd, POLLIN)));
    say("recv %s", result(recv(fd, buffer, 20, 0)));
    shutdown(fd, SHUT_WR);
    say("waitall to the end %s", result(recv(fd, buffer, 10, MSG_WAITALL)));
    say("outq %s", ioctl(fd, TIOCOUTQ, &waiting) == 0 && waiting == 0 ? "0" : "some");
    close(fd);
}

static void *shut_later(void *argument) {
    pause_ms(100);
    shutdown(*(int *)argument, SHUT_RDWR);
    return NULL;
}

static void interruptions(void) {
    int port = 0, listener = listen_on(own_address, &port);
    ring(0);
    const char *what = result(accept(listener, NULL, NULL));
    say("accept interrupted %s by a signal %d", what, ring_off());
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    ring(0);
    what = result(epoll_wait(epoll, &event, 1, 10000));
    say("epoll interrupted %s by a signal %d", what, ring_off());
    fd_set set;
    FD_ZERO(&set);
    FD_SET(listener, &set);
    ring(SA_RESTART);
    what = result(select(listener + 1, &set, NULL, NULL, NULL));
    say("select interrupted %s by a signal %d", what, ring_off());
    struct sockaddr_in silent = silent_address();
    int fd = tcp_socket();
    ring(0);
    what = result(connect(fd, AS(silent)));
    say("connect interrupted %s by a signal %d", what, ring_off());
    close(fd);
    pthread_t thread;
    pthread_create(&thread, NULL, shut_later, &listener);
    say("accept ends by shutdown %s", result(accept(listener, NULL, NULL)));
    pthread_join(thread, NULL);
    say("and says so again %s", result(accept(listener, NULL, NULL)));
    say("listener polls %s", pollbits(bits(listener)));
    say("it listens anew %s", result(listen(listener, 5)));
    close(listener);
    close(epoll);
}

static void datagrams(void) {
    char buffer[100];
    int call = call_peer("datagrams");
    char text[20] = "";
    for (int i = 0; i < 19 && read(call, text + i, 1) == 1 && text[i] != '\n'; i++) {
    }
    struct sockaddr_in to = address_of(peer_address.sin_addr, atoi(text)), name;
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 2);
    socklen_t length = sizeof name;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("listen %s", result(listen(fd, 5)));
    say("accept %s", result(accept(fd, NULL, NULL)));
    say("shutdown %s", result(shutdown(fd, SHUT_RD)));
    struct sockaddr_in wide = to;
    wide.sin_addr.s_addr |= htonl(0xff);
    say("broadcast %s", result(sendto(fd, "x", 1, 0, AS(wide))));
    struct sockaddr_in zero = to;
    zero.sin_port = 0;
    say("to port 0 %s", result(sendto(fd, "x", 1, 0, AS(zero))));
    say("short address %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, 7)));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, AS(to));
    say("connect anew %s", result(connect(fd, AS(to))));
    say("sendto elsewhere %s", result(sendto(fd, "x", 1, 0, AS(nobody))));
    say("sendto the same %s", result(sendto(fd, "abcdef", 6, 0, AS(to))));
    wait_for(fd, POLLIN);
    say("peek and truncate %s", result(recv(fd, buffer, 2, MSG_PEEK | MSG_TRUNC)));
    struct iovec part = {buffer, 3};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    say("recvmsg %s", result(recvmsg(fd, &message, MSG_TRUNC)));
    say("flags %d", message.msg_flags == MSG_TRUNC);
    say("getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(fd, AS(none));
    say("disconnected send %s", result(send(fd, "x", 1, 0)));
    say("disconnected sendto %s", result(sendto(fd, "xy", 2, 0, AS(to))));
    say("recv %s", result(recv(fd, buffer, 10, 0)));
    connect(fd, AS(nobody));
    send(fd, "x", 1, 0);
    wait_for(fd, POLLIN);
    say("refused polls %s", pollbits(bits(fd)));
    say("refused send %s", result(send(fd, "x", 1, 0)));
    pause_ms(50); /* nothing comes any more */
    say("refused error %s", error_of(fd));
    say("and then polls %s", pollbits(bits(fd)));
    connect(fd, AS(to));
    struct mmsghdr out[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
    say("sendmmsg %s", result(sendmmsg(fd, out, 2, 0)));
    /* Its echo comes behind theirs. */
    int last = socket(AF_INET, SOCK_DGRAM, 0);
    sendto(last, "z", 1, 0, AS(to));
    wait_for(last, POLLIN);
    close(last);
    say("recvmmsg waits for one %s", result(recvmmsg(fd, out, 2, MSG_WAITFORONE, NULL)));
    say("sendmmsg of none %s", result(sendmmsg(fd, out, 0, 0)));
    say("empty %s", result(send(fd, "", 0, 0)));
    wait_for(fd, POLLIN);
    int waiting = -1;
    ioctl(fd, FIONREAD, &waiting);
    say("waiting %d", waiting);
    say("recv of an empty one %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("shutdown of writing %s", result(shutdown(fd, SHUT_WR)));
    say("send after it %s signals %d", result(send(fd, "x", 1, MSG_NOSIGNAL)), 0);
    say("shutdown of both %s", result(shutdown(fd, SHUT_RDWR)));
    say("polls %s", pollbits(bits(fd)));
    say("recv %s", result(recv(fd, buffer, 10, 0)));
    close(fd);
    close(call);
}

static int control(int epoll, int operation, int fd, unsigned events, unsigned data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(epoll, operation, fd, &event);
}

static void epolls(void) {
    int epoll = epoll_create1(0), fd = call_peer("pong");
    struct epoll_event events[4];
    say("itself %s", result(control(epoll, EPOLL_CTL_ADD, epoll, EPOLLIN, 0)));
    say("not an epoll %s", result(control(fd, EPOLL_CTL_ADD, fd, EPOLLIN, 0)));
    say("no descriptor %s", result(control(epoll, EPOLL_CTL_ADD, 9999, EPOLLIN, 0)));
    say("no event %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, NULL)));
    say("exclusive and one-shot %s", result(control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 0)));
    say("exclusive %s", result(control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE, 1)));
    say("modify exclusive %s", result(control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN, 1)));
    control(epoll, EPOLL_CTL_DEL, fd, 0, 0);
    say("modify to exclusive %s", result(control(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE, 1)));
    int copy = dup(fd);
    control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    say("a copy, too %s", result(control(epoll, EPOLL_CTL_ADD, copy, EPOLLIN, 2)));
    write(fd, "\001", 1);
    wait_for(fd, POLLIN);
    say("both tell %s", result(epoll_wait(epoll, events, 4, 10000)));
    say("wait on a socket %s", result(epoll_wait(fd, events, 4, 0)));
    say("room for minus one %s", result(epoll_wait(epoll, events, atoi("-1"), 0)));
    close(copy);
    close(fd);
    say("closed %s", result(epoll_wait(epoll, events, 4, 20)));
    close(epoll);
}

void calls_cases(void) {
    states();
    arguments();
    conflicts(SOCK_STREAM, "stream");
    conflicts(SOCK_DGRAM, "datagram");
    peeking();
    interruptions();
    datagrams();
    epolls();
}
