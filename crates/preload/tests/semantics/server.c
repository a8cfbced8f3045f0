/* Listening: accept, names, flags, wildcard listeners that serve every side, backlog, closing. */
#include "common.h"

/* Asks the peer to connect to a port here; the connection on which it will say how that went. */
static int ask(const char *what, int port) { return call_peer("%s %d", what, port); }

static void answer(const char *what, int fd) {
    char text[100];
    long count = read_all(fd, text, sizeof text);
    say("%s: peer says %.*s", what, (int)(count > 0 ? count - 1 : 0), text);
    close(fd);
}

static void accepting(struct in_addr ip, const char *where) {
    int port = 0;
    int listener = listen_on(ip, &port);
    say("%s port %d", where, port > 0);
    int value = 0;
    socklen_t length = sizeof value;
    getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length);
    say("%s accepts %d", where, value);
    set_nonblocking(listener, 1);
    say("%s none yet %s", where, result(accept(listener, NULL, NULL)));
    say("%s polls %s", where, result(poll(&(struct pollfd){listener, POLLIN | POLLOUT, 0}, 1, 0)));
    int call = ask("call-hello", port);
    say("%s ready %s", where, pollbits(wait_for(listener, POLLIN | POLLOUT)));
    struct sockaddr_in from, own;
    length = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    say("%s accepted %d from the peer %d length %d", where, fd >= 0,
        from.sin_addr.s_addr == peer_address.sin_addr.s_addr, length);
    say("%s cloexec %d nonblocking %d", where, fcntl(fd, F_GETFD) & FD_CLOEXEC,
        (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    length = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("%s own name %d port %d", where, own.sin_addr.s_addr == own_address.s_addr, ntohs(own.sin_port) == port);
    char buffer[10];
    say("%s hello %s", where, result(read_all(fd, buffer, 5)));
    say("%s end %s", where, result(read_all(fd, buffer, 5)));
    close(fd);
    answer(where, call);
    say("%s recv on it %s", where, result(recv(listener, buffer, 1, 0)));
    say("%s send on it %s", where, result(send(listener, buffer, 1, MSG_NOSIGNAL)));
    struct sockaddr_in again = address_of(ip, port);
    int other = tcp_socket();
    say("%s taken %s", where, result(bind(other, (struct sockaddr *)&again, sizeof again)));
    close(other);
    set_nonblocking(listener, 0);
    value = 1;
    setsockopt(listener, SOL_TCP, TCP_NODELAY, &value, sizeof value);
    say("%s reno %s", where, result(setsockopt(listener, SOL_TCP, TCP_CONGESTION, "reno", 4)));
    static const struct { int level, name, value; } kept[] = {
        {SOL_TCP, TCP_INQ, 1}, {SOL_TCP, TCP_SYNCNT, 3}, {SOL_TCP, TCP_LINGER2, 7},
        {SOL_TCP, TCP_NOTSENT_LOWAT, 70000}, {SOL_SOCKET, SO_TIMESTAMP, 1}, {SOL_IP, IP_RECVTOS, 1},
    };
    const int count = sizeof kept / sizeof kept[0];
    for (int index = 0; index < count; index++)
        setsockopt(listener, kept[index].level, kept[index].name, &kept[index].value, sizeof kept[index].value);
    call = ask("call-echo", port);
    fd = accept(listener, NULL, NULL);
    for (int index = 0; index < count; index++) {
        value = -1;
        length = sizeof value;
        getsockopt(fd, kept[index].level, kept[index].name, &value, &length);
        say("%s inherited number %d: %d", where, index, value);
    }
    say("%s blocking accept %d, nonblocking %d", where, fd >= 0, (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    value = 0;
    length = sizeof value;
    getsockopt(fd, SOL_TCP, TCP_NODELAY, &value, &length);
    char control[17] = "";
    length = 16;
    say("%s control of it %s", where, result(getsockopt(fd, SOL_TCP, TCP_CONGESTION, control, &length)));
    say("%s inherited %d %s", where, value, control);
    write(fd, "echo", 4);
    say("%s echo %s", where, result(recv(fd, buffer, 4, MSG_WAITALL)));
    shutdown(fd, SHUT_WR);
    say("%s last %s", where, result(recv(fd, buffer, 4, MSG_WAITALL)));
    close(fd);
    answer(where, call);
    set_timeout(listener, SO_RCVTIMEO, 30);
    say("%s accept timeout %s", where, result(accept(listener, NULL, NULL)));
    close(listener);
    call = ask("call-hello", port);
    answer("after closing", call);
}

static void sides(void) {
    struct in_addr any = {htonl(INADDR_ANY)}, loop = {htonl(INADDR_LOOPBACK)};
    int port = 0;
    int listener = listen_on(any, &port);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    struct sockaddr_in address = address_of(loop, port);
    int near = tcp_socket();
    say("loopback connect %s", result(connect(near, (struct sockaddr *)&address, sizeof address)));
    say("epoll %s", result(epoll_wait(epoll, &event, 1, 10000)));
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd = accept(listener, (struct sockaddr *)&from, &length);
    say("loopback accepted %d from %s", fd >= 0, inet_ntoa(from.sin_addr));
    write(fd, "near", 4);
    char buffer[10];
    say("loopback bytes %s", result(recv(near, buffer, 4, MSG_WAITALL)));
    close(fd);
    close(near);
    int call = ask("call-hello", port);
    say("epoll %s", result(epoll_wait(epoll, &event, 1, 10000)));
    fd = accept(listener, NULL, NULL);
    say("far accepted %d", fd >= 0);
    say("far bytes %s", result(recv(fd, buffer, 5, MSG_WAITALL)));
    close(fd);
    answer("far", call);
    close(listener);
    close(epoll);
}

static void sixes(void) {
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    int off = 0;
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    say("bind [::] %s", result(bind(listener, (struct sockaddr *)&address, sizeof address)));
    say("listen %s", result(listen(listener, 5)));
    socklen_t length = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &length);
    int call = ask("call-hello", ntohs(address.sin6_port));
    length = sizeof address;
    int fd = accept(listener, (struct sockaddr *)&address, &length);
    char text[100];
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    say("accepted %d length %d mapped %d", fd >= 0, length, strncmp(text, "::ffff:", 7) == 0);
    length = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &length);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    say("own name mapped %d family %d", strncmp(text, "::ffff:", 7) == 0, address.sin6_family == AF_INET6);
    say("bytes %s", result(recv(fd, text, 5, MSG_WAITALL)));
    close(fd);
    answer("six", call);
    close(listener);
    int caller = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = peer_address.sin_port};
    inet_pton(AF_INET6, "::ffff:0.0.0.0", &mapped.sin6_addr);
    memcpy(&mapped.sin6_addr.s6_addr[12], &peer_address.sin_addr, 4);
    say("connect to a mapped address %s", result(connect(caller, (struct sockaddr *)&mapped, sizeof mapped)));
    close(caller);
}

static void closing(void) {
    int port = 0;
    int listener = listen_on(own_address, &port);
    int call = ask("call-observe", port);
    int fd = accept(listener, NULL, NULL);
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
    answer("linger 0", call);
    call = ask("call-observe", port);
    fd = accept(listener, NULL, NULL);
    close(fd);
    answer("plain close", call);
    call = ask("call-hello", port);
    fd = accept(listener, NULL, NULL);
    char byte;
    say("one byte of five %s", result(read(fd, &byte, 1)));
    linger.l_linger = 5;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
    answer("close with bytes unread", call);
    close(listener);
    say("listen unbound %s", result(listen(fd = tcp_socket(), 5)));
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("it has a port %d", name.sin_port != 0);
    call = ask("call-hello", ntohs(name.sin_port));
    int accepted = accept(fd, NULL, NULL);
    say("and accepts %d", accepted >= 0);
    close(accepted);
    answer("unbound", call);
    close(fd);
    struct in_addr elsewhere;
    inet_aton("192.0.2.1", &elsewhere);
    struct sockaddr_in foreign = address_of(elsewhere, 0);
    fd = tcp_socket();
    say("bind elsewhere %s", result(bind(fd, (struct sockaddr *)&foreign, sizeof foreign)));
    foreign = address_of(own_address, 0);
    say("bind here %s", result(bind(fd, (struct sockaddr *)&foreign, sizeof foreign)));
    say("bind twice %s", result(bind(fd, (struct sockaddr *)&foreign, sizeof foreign)));
    say("connect bound %s", result(connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address)));
    close(fd);
}

void server_cases(void) {
    struct in_addr any = {htonl(INADDR_ANY)};
    accepting(own_address, "own");
    accepting(any, "any");
    sides();
    sixes();
    closing();
}
