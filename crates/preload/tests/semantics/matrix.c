/* Every way to receive and to send, on sockets in every state. */
#include "common.h"

#define AS(address) (struct sockaddr *)&address, sizeof address
#define COUNT(list) (int)(sizeof list / sizeof list[0])

static int events_of(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLPRI | POLLOUT | POLLRDHUP, 0};
    poll(&entry, 1, 0);
    return entry.revents;
}

static const char *error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        return result(-1);
    return error ? errname(error) : "0";
}

static int pair_port;

static void make_pair(int ends[2]) {
    int port = 0, listener = listen_on(own_address, &port);
    struct sockaddr_in to = address_of(own_address, port);
    pair_port = port;
    ends[0] = tcp_socket();
    connect(ends[0], AS(to));
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

enum state {
    FRESH, BOUND, CONNECTING, LISTENING, SHUT_LISTENER, REFUSED, PAIR, WITH_DATA, SHUT_READ, SHUT_WRITE, SHUT_BOTH, PEER_SHUT, PEER_SHUT_DATA, PEER_CLOSED,
    PEER_RESET, BOTH_SHUT, UDP_FRESH, UDP_BOUND, UDP_CONNECTED, UDP_DATA, UDP_SHUT_READ, UDP_SHUT_WRITE, UDP_SHUT_BOTH, STATES
};

static const char *const names[] = {
    "fresh", "bound", "connecting", "listening", "shut listener", "refused", "pair", "with data", "shut read", "shut write", "shut both", "peer shut", "peer shut with data",
    "peer closed", "peer reset", "both shut", "udp fresh", "udp bound", "udp connected", "udp with data", "udp shut read",
    "udp shut write", "udp shut both"
};

static int udp_pair(int *other) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in a = address_of(own_address, 0), b = a;
    socklen_t length = sizeof a;
    *other = socket(AF_INET, SOCK_DGRAM, 0);
    bind(fd, AS(a));
    bind(*other, AS(b));
    getsockname(fd, (struct sockaddr *)&a, &length);
    getsockname(*other, (struct sockaddr *)&b, &length);
    connect(fd, AS(b));
    connect(*other, AS(a));
    return fd;
}

/* A socket in a state; the other end, or -1. */
static int make(enum state state, int *other) {
    int ends[2], fd;
    struct sockaddr_in own = address_of(own_address, 0), nobody = address_of(peer_address.sin_addr, 2);
    struct linger linger = {1, 0};
    *other = -1;
    switch (state) {
    case FRESH:
        return tcp_socket();
    case BOUND:
        fd = tcp_socket();
        bind(fd, AS(own));
        return fd;
    case LISTENING:
    case SHUT_LISTENER:
        fd = tcp_socket();
        bind(fd, AS(own));
        listen(fd, 3);
        set_nonblocking(fd, 1);
        if (state == SHUT_LISTENER)
            shutdown(fd, SHUT_RD);
        return fd;
    case CONNECTING:
        /* on the peer's link, where nobody is */
        nobody.sin_addr.s_addr = htonl(ntohl(peer_address.sin_addr.s_addr) + 100);
        fd = tcp_socket();
        set_nonblocking(fd, 1);
        connect(fd, AS(nobody));
        return fd;
    case REFUSED:
        fd = tcp_socket();
        set_nonblocking(fd, 1);
        connect(fd, AS(nobody));
        wait_for(fd, POLLOUT);
        return fd;
    case UDP_FRESH:
        return socket(AF_INET, SOCK_DGRAM, 0);
    case UDP_BOUND:
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        bind(fd, AS(own));
        return fd;
    case UDP_CONNECTED:
        return udp_pair(other);
    case UDP_DATA:
    case UDP_SHUT_READ:
    case UDP_SHUT_WRITE:
    case UDP_SHUT_BOTH:
        fd = udp_pair(other);
        send(*other, "datagram", 8, 0);
        wait_for(fd, POLLIN);
        if (state != UDP_DATA)
            shutdown(fd, state == UDP_SHUT_READ ? SHUT_RD : state == UDP_SHUT_WRITE ? SHUT_WR : SHUT_RDWR);
        return fd;
    default:
        break;
    }
    make_pair(ends);
    *other = ends[1];
    fd = ends[0];
    switch (state) {
    case WITH_DATA:
        send(*other, "0123456789", 10, 0);
        wait_for(fd, POLLIN);
        break;
    case SHUT_READ:
        shutdown(fd, SHUT_RD);
        break;
    case SHUT_WRITE:
        shutdown(fd, SHUT_WR);
        break;
    case SHUT_BOTH:
        shutdown(fd, SHUT_RDWR);
        break;
    case PEER_SHUT_DATA:
        send(*other, "0123456789", 10, 0);
        /* fall through */
    case PEER_SHUT:
        shutdown(*other, SHUT_WR);
        wait_for(fd, POLLRDHUP);
        break;
    case PEER_CLOSED:
        close(*other);
        *other = -1;
        wait_for(fd, POLLRDHUP);
        break;
    case PEER_RESET:
        setsockopt(*other, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(*other);
        *other = -1;
        wait_for(fd, POLLERR);
        break;
    case BOTH_SHUT:
        shutdown(fd, SHUT_WR);
        shutdown(*other, SHUT_WR);
        wait_for(fd, POLLHUP);
        break;
    default:
        break;
    }
    return fd;
}

static char buffer[100];

static void receive(enum state state) {
    static const struct {
        const char *name;
        int flags;
    } flags[] = {{"0", 0}, {"PEEK", MSG_PEEK}, {"OOB", MSG_OOB}, {"TRUNC", MSG_TRUNC}, {"WAITALL", MSG_WAITALL},
                 {"PEEK|TRUNC", MSG_PEEK | MSG_TRUNC}, {"ERRQUEUE", MSG_ERRQUEUE}, {"CMSG_CLOEXEC", MSG_CMSG_CLOEXEC},
                 {"OOB|PEEK", MSG_OOB | MSG_PEEK}, {"all", MSG_PEEK | MSG_TRUNC | MSG_WAITALL}};
    static const long lengths[] = {4, 0, 100};
    for (int index = 0; index < COUNT(flags); index++)
        for (int which = 0; which < COUNT(lengths); which++) {
            int other, fd = make(state, &other);
            struct sockaddr_in from;
            memset(&from, 0x5a, sizeof from);
            memset(buffer, '-', sizeof buffer);
            socklen_t length = sizeof from;
            const char *what = result(recvfrom(fd, buffer, lengths[which], flags[index].flags | MSG_DONTWAIT, (struct sockaddr *)&from, &length));
            say("%s: recvfrom %ld %s: %s, %.6s, name %d", names[state], lengths[which], flags[index].name, what, buffer, length);
            struct iovec part = {buffer, lengths[which]};
            char control[100];
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = 7,
                                     .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x5555};
            memset(buffer, '-', sizeof buffer);
            what = result(recvmsg(fd, &message, flags[index].flags | MSG_DONTWAIT));
            say("%s: then recvmsg: %s, %.6s, name %d control %d flags %x polls %s error %s", names[state], what, buffer, message.msg_namelen,
                (int)message.msg_controllen, message.msg_flags, pollbits(events_of(fd)), error_of(fd));
            close(fd);
            if (other >= 0)
                close(other);
        }
}

static void send_all(enum state state) {
    static const struct {
        const char *name;
        int flags;
    } flags[] = {{"0", 0}, {"OOB", MSG_OOB}, {"MORE", MSG_MORE}, {"DONTROUTE", MSG_DONTROUTE}, {"EOR", MSG_EOR},
                 {"CONFIRM", MSG_CONFIRM}, {"PEEK", MSG_PEEK}, {"NOSIGNAL", MSG_NOSIGNAL}, {"FASTOPEN", MSG_FASTOPEN},
                 {"ERRQUEUE", MSG_ERRQUEUE}};
    static const long lengths[] = {4, 0};
    for (int index = 0; index < COUNT(flags); index++)
        for (int which = 0; which < COUNT(lengths); which++) {
            /* What the first send to a socket that is gone brings back comes in its own time. */
            if (state == PEER_CLOSED || (state == REFUSED && flags[index].flags == MSG_FASTOPEN) ||
                (state == SHUT_LISTENER && flags[index].flags == MSG_FASTOPEN) ||
                (state == CONNECTING && flags[index].flags == MSG_FASTOPEN))
                continue;
            int other, fd = make(state, &other);
            sigpipes = 0;
            const char *what = result(send(fd, "abcd", lengths[which], flags[index].flags | MSG_DONTWAIT));
            say("%s: send %ld %s: %s, signals %d, polls %s error %s", names[state], lengths[which], flags[index].name, what, (int)sigpipes,
                pollbits(events_of(fd) & ~POLLRDHUP), error_of(fd));
            what = result(sendto(fd, "abcd", lengths[which], flags[index].flags | MSG_DONTWAIT, AS(peer_address)));
            say("%s: then sendto: %s, signals %d", names[state], what, (int)sigpipes);
            close(fd);
            if (other >= 0)
                close(other);
        }
}

static void others(enum state state) {
    int fd, other, left = -1;
    struct sockaddr_in name, own = address_of(own_address, 0);
    socklen_t length = sizeof name;
    /* What is not acknowledged yet is left out where an end was sent: it counts as a byte until then. */
    static const unsigned long requests[] = {FIONREAD, 0x8905, 0x5451, 0x8903, TIOCOUTQ, 0x894b};
    int counted = state == FRESH || state == PAIR || state == LISTENING || state == WITH_DATA || state >= UDP_FRESH ? 6 : 4;
    fd = make(state, &other);
    say("%s: polls %s", names[state], pollbits(events_of(fd)));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET};
    int epoll = epoll_create1(0);
    say("%s: epoll_ctl %s", names[state], result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    event.events = 0;
    const char *what = result(epoll_wait(epoll, &event, 1, 0));
    say("%s: epoll_wait %s %x", names[state], what, event.events);
    say("%s: again %s", names[state], result(epoll_wait(epoll, &event, 1, 0)));
    event.events = 0;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    what = result(epoll_wait(epoll, &event, 1, 0));
    say("%s: nothing wanted %s %x", names[state], what, event.events);
    close(epoll);
    fd_set in, out, bad;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    out = bad = in;
    struct timeval now = {0, 0};
    what = result(select(fd + 1, &in, &out, &bad, &now));
    say("%s: select %s %d %d %d", names[state], what, FD_ISSET(fd, &in) != 0, FD_ISSET(fd, &out) != 0, FD_ISSET(fd, &bad) != 0);
    for (int index = 0; index < counted; index++) {
        left = -1;
        what = result(ioctl(fd, requests[index], &left));
        say("%s: ioctl %lx %s %d", names[state], requests[index], what, left);
    }
    say("%s: getpeername %s", names[state], result(getpeername(fd, (struct sockaddr *)&name, &length)));
    length = sizeof name;
    memset(&name, 0, sizeof name);
    what = result(getsockname(fd, (struct sockaddr *)&name, &length));
    say("%s: getsockname %s %d address %d port %d", names[state], what, length, name.sin_addr.s_addr == own_address.s_addr, name.sin_port != 0);
    say("%s: error %s then %s", names[state], error_of(fd), error_of(fd));
    say("%s: accept %s", names[state], state == LISTENING || state == SHUT_LISTENER ? result(accept4(fd, NULL, NULL, SOCK_NONBLOCK)) : result(accept(fd, NULL, NULL)));
    /* A port that the kernel chose is gone with the connection: then a socket can be bound anew. */
    if (state != REFUSED && state != PEER_RESET && state != BOTH_SHUT && state != SHUT_LISTENER) {
        say("%s: bind %s", names[state], result(bind(fd, AS(own))));
        say("%s: bind again %s", names[state], result(bind(fd, AS(own))));
    }
    close(fd);
    if (other >= 0)
        close(other);
    static const int hows[] = {SHUT_RD, SHUT_WR, SHUT_RDWR, 3, -1};
    for (int index = 0; index < COUNT(hows); index++) {
        fd = make(state, &other);
        what = result(shutdown(fd, hows[index]));
        say("%s: shutdown %d %s polls %s", names[state], hows[index], what,
            pollbits(state == CONNECTING ? events_of(fd) & (POLLOUT | POLLERR | POLLHUP) : events_of(fd)));
        /* It is closed once the other end has acknowledged. */
        if (state != PEER_SHUT && state != PEER_SHUT_DATA && state != PEER_CLOSED)
            say("%s: again %s", names[state], result(shutdown(fd, hows[index])));
        say("%s: then recv %s", names[state], result(recv(fd, buffer, 9, MSG_DONTWAIT)));
        sigpipes = 0;
        what = result(send(fd, "xyz", 3, MSG_DONTWAIT));
        say("%s: send %s signals %d", names[state], what, (int)sigpipes);
        close(fd);
        if (other >= 0)
            close(other);
    }
    fd = make(state, &other);
    say("%s: listen %s", names[state], result(listen(fd, 3)));
    say("%s: then polls %s", names[state], pollbits(events_of(fd)));
    close(fd);
    if (other >= 0)
        close(other);
    fd = make(state, &other);
    set_nonblocking(fd, state == CONNECTING);
    say("%s: connect %s", names[state], result(connect(fd, AS(peer_address))));
    say("%s: then polls %s", names[state], pollbits(events_of(fd) & ~POLLIN));
    say("%s: connect again %s", names[state], result(connect(fd, AS(peer_address))));
    close(fd);
    if (other >= 0)
        close(other);
    fd = make(state, &other);
    struct stat status;
    fstat(fd, &status);
    char link[100] = "", path[50];
    sprintf(path, "/proc/self/fd/%d", fd);
    int size = readlink(path, link, sizeof link - 1);
    say("%s: is a socket %d, its link %.8s %d", names[state], S_ISSOCK(status.st_mode), link, size > 8);
    struct iovec part = {buffer, 5}, many[1025];
    for (int index = 0; index < COUNT(many); index++)
        many[index] = part;
    say("%s: pread %s pwrite %s preadv %s", names[state], result(pread(fd, buffer, 1, 0)), result(pwrite(fd, "x", 1, 0)), result(preadv(fd, &part, 1, 0)));
    say("%s: lseek %s ftruncate %s fsync %s", names[state], result(lseek(fd, 0, SEEK_SET)), result(ftruncate(fd, 1)), result(fsync(fd)));
    say("%s: fallocate %s", names[state], result(posix_fadvise(fd, 0, 1, 0)));
    set_nonblocking(fd, 1);
    say("%s: read %s", names[state], result(read(fd, buffer, 0)));
    say("%s: readv 1025 %s", names[state], result(readv(fd, many, 1025)));
    say("%s: writev 0 %s", names[state], result(writev(fd, &part, 0)));
    struct msghdr message = {.msg_iov = many, .msg_iovlen = 1025};
    say("%s: recvmsg 1025 %s sendmsg 1025 %s", names[state], result(recvmsg(fd, &message, 0)), result(sendmsg(fd, &message, 0)));
    message.msg_iovlen = 0;
    say("%s: sendmsg 0 %s", names[state], result(sendmsg(fd, &message, MSG_NOSIGNAL)));
    message.msg_namelen = -1;
    message.msg_name = &name;
    say("%s: recvmsg negative name %s", names[state], result(recvmsg(fd, &message, MSG_DONTWAIT)));
    message.msg_namelen = 500;
    say("%s: recvmsg long name %s %d", names[state], result(recvmsg(fd, &message, MSG_DONTWAIT)), message.msg_namelen);
    message.msg_iov = &part;
    part.iov_len = -1;
    message.msg_iovlen = 1;
    message.msg_name = NULL;
    message.msg_namelen = 0;
    say("%s: sendmsg negative %s", names[state], result(sendmsg(fd, &message, MSG_NOSIGNAL)));
    say("%s: recvmsg negative %s", names[state], result(recvmsg(fd, &message, MSG_DONTWAIT)));
    say("%s: readv negative %s", names[state], result(readv(fd, &part, 1)));
    say("%s: writev negative %s", names[state], result(writev(fd, &part, 1)));
    say("%s: sendmmsg none %s recvmmsg none %s", names[state], result(sendmmsg(fd, NULL, 0, 0)), result(recvmmsg(fd, NULL, 0, 0, NULL)));
    length = -5;
    say("%s: recvfrom negative %s", names[state], result(recvfrom(fd, buffer, 5, MSG_DONTWAIT, (struct sockaddr *)&name, &length)));
    say("%s: F_GETFL %x", names[state], fcntl(fd, F_GETFL));
    say("%s: F_SETFL O_APPEND %s %x", names[state], result(fcntl(fd, F_SETFL, O_APPEND | O_ASYNC)), fcntl(fd, F_GETFL));
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    say("%s: copy %d %d flags %x", names[state], copy >= 100, fcntl(copy, F_GETFD), fcntl(copy, F_GETFL));
    say("%s: F_SETOWN %s is ours %d", names[state], result(fcntl(fd, F_SETOWN, getpid())), fcntl(copy, F_GETOWN) == getpid());
    close(copy);
    close(fd);
    say("%s: closed %s %s", names[state], result(close(fd)), result(send(fd, "x", 1, 0)));
    if (other >= 0)
        close(other);
}

void matrix_cases(void) {
    for (enum state state = 0; state < STATES; state++) {
        receive(state);
        send_all(state);
        others(state);
    }
}
