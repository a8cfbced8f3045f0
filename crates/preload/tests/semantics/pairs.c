/* Both ends here: what a program does to one and sees at the other. */
#include "common.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define AS(address) (struct sockaddr *)&address, sizeof address

static void make_pair(int ends[2]) {
    int port = 0, listener = listen_on(own_address, &port);
    struct sockaddr_in to = address_of(own_address, port);
    ends[0] = tcp_socket();
    if (connect(ends[0], AS(to)) != 0)
        perror("connect to itself");
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

static void close_pair(int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

static const char *error_of(int fd) {
    int error = option(fd, SOL_SOCKET, SO_ERROR);
    return error > 0 ? errname(error) : result(error);
}

struct later {
    int fd;
    const char *bytes;
};

static void *send_later(void *argument) {
    struct later *later = argument;
    pause_ms(80);
    send(later->fd, later->bytes, strlen(later->bytes), 0);
    return NULL;
}

/* What a blocking receive returns to which bytes are sent later. */
static const char *received_later(int from, int to, const char *bytes, long length, int flags) {
    char buffer[100];
    struct later later = {from, bytes};
    pthread_t thread;
    pthread_create(&thread, NULL, send_later, &later);
    const char *what = result(recv(to, buffer, length, flags));
    pthread_join(thread, NULL);
    return what;
}

static void waiting(void) {
    char buffer[100];
    int ends[2];
    make_pair(ends);
    send(ends[0], "abc", 3, 0);
    wait_for(ends[1], POLLIN);
    say("peek waits for all %s", received_later(ends[0], ends[1], "de", 5, MSG_PEEK | MSG_WAITALL));
    say("peek waits for none %s", result(recv(ends[1], buffer, 9, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT)));
    set_timeout(ends[1], SO_RCVTIMEO, 60);
    say("peek waits a time %s", result(recv(ends[1], buffer, 9, MSG_PEEK | MSG_WAITALL)));
    say("trunc waits for all %s", result(recv(ends[1], NULL, 5, MSG_TRUNC | MSG_WAITALL)));
    int low = 4;
    setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    set_timeout(ends[1], SO_RCVTIMEO, 800);
    send(ends[0], "fg", 2, 0);
    pause_ms(30);
    say("below the mark, not waiting %s", result(recv(ends[1], buffer, 10, MSG_DONTWAIT | MSG_PEEK)));
    say("below the mark %s", received_later(ends[0], ends[1], "hi", 10, 0));
    send(ends[0], "jk", 2, 0);
    say("wanting less %s", result(recv(ends[1], buffer, 2, 0)));
    send(ends[0], "lm", 2, 0);
    set_timeout(ends[1], SO_RCVTIMEO, 60);
    say("below the mark in time %s", result(recv(ends[1], buffer, 10, 0)));
    send(ends[0], "no", 2, 0);
    close(ends[0]);
    say("below the mark at the end %s", result(recv(ends[1], buffer, 10, 0)));
    say("at the end %s", result(recv(ends[1], buffer, 10, MSG_WAITALL)));
    close(ends[1]);
}

static const int unspecified = AF_UNSPEC;

static void disconnecting(void) {
    char buffer[10];
    struct sockaddr none = {.sa_family = unspecified}, *name = &none;
    struct sockaddr_in own;
    int ends[2], port = 0, listener = listen_on(own_address, &port);
    struct sockaddr_in to = address_of(own_address, port);
    socklen_t length = sizeof own;
    int fd = tcp_socket();
    say("fresh, disconnect %s", result(connect(fd, name, sizeof none)));
    close(fd);
    make_pair(ends);
    fd = ends[0];
    say("disconnect %s", result(connect(fd, name, sizeof none)));
    wait_for(ends[1], POLLIN);
    say("the peer polls %s", pollbits(wait_for(ends[1], POLLIN | POLLOUT | POLLRDHUP)));
    say("the peer reads %s", result(read(ends[1], buffer, 1)));
    say("hung up %d", (wait_for(fd, POLLIN | POLLOUT | POLLRDHUP) & POLLHUP) != 0);
    say("recv %d", recv(fd, buffer, 1, MSG_DONTWAIT) < 0);
    say("getpeername %s", result(getpeername(fd, (struct sockaddr *)&own, &length)));
    length = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("its name %d", own.sin_addr.s_addr == 0);
    say("again %s", result(connect(fd, name, sizeof none)));
    say("connects anew %s", result(connect(fd, AS(to))));
    int other = accept(listener, NULL, NULL);
    say("sends %s", result(send(fd, "anew", 4, 0)));
    say("which comes %s", result(recv(other, buffer, 4, MSG_WAITALL)));
    say("and back %s", result(send(other, "back!", 5, 0)));
    say("which comes %s", result(recv(fd, buffer, 5, MSG_WAITALL)));
    shutdown(fd, SHUT_RDWR);
    say("shut, disconnect %s", result(connect(fd, name, sizeof none)));
    close(other);
    say("and connects anew %s", result(connect(fd, AS(to))));
    other = accept(listener, NULL, NULL);
    say("sends %s", result(send(fd, "anew", 4, MSG_NOSIGNAL)));
    say("which comes %s", result(recv(other, buffer, 4, MSG_WAITALL)));
    close(other);
    close(fd);
    close(ends[1]);
    say("listener, disconnect %s", result(connect(listener, name, sizeof none)));
    say("accepts %s", result(accept4(listener, NULL, NULL, SOCK_NONBLOCK)));
    fd = tcp_socket();
    say("refused then %s", result(connect(fd, AS(to))));
    close(fd);
    say("bound, listens again %s", result(listen(listener, 5)));
    close(listener);
    fd = tcp_socket();
    own = address_of(own_address, 0);
    bind(fd, AS(own));
    length = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &length);
    in_port_t before = own.sin_port;
    say("bound, disconnect %s", result(connect(fd, name, sizeof none)));
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("keeps address %d port %d", own.sin_addr.s_addr == own_address.s_addr, own.sin_port == before);
    close(fd);
}

static void full_table(void) {
    int port = 0, listener = listen_on(own_address, &port), fds[64], count = 0;
    struct sockaddr_in to = address_of(own_address, port);
    int caller = tcp_socket();
    set_nonblocking(listener, 1);
    connect(caller, AS(to));
    wait_for(listener, POLLIN);
    struct rlimit before, now;
    getrlimit(RLIMIT_NOFILE, &before);
    now = before;
    /* The stack's own descriptors lie among the first. */
    now.rlim_cur = 40;
    setrlimit(RLIMIT_NOFILE, &now);
    while (count < 64 && (fds[count] = dup(0)) >= 0)
        count++;
    say("no descriptor, accept %s", result(accept(listener, NULL, NULL)));
    say("and again %s", result(accept(listener, NULL, NULL)));
    say("it waits %s", pollbits(wait_for(listener, POLLIN)));
    say("the caller polls %s", pollbits(wait_for(caller, POLLIN | POLLOUT | POLLRDHUP)));
    say("no descriptor, socket %s", result(socket(AF_INET, SOCK_STREAM, 0)));
    close(fds[--count]);
    int fd = accept(listener, NULL, NULL);
    say("accepted then %d", fd >= 0);
    while (count > 0)
        close(fds[--count]);
    setrlimit(RLIMIT_NOFILE, &before);
    char byte = 0;
    send(caller, "x", 1, 0);
    say("it is the caller's %s", result(recv(fd, &byte, 1, 0)));
    close(fd);
    close(caller);
    close(listener);
}

/* System calls by their numbers, as libuv closes descriptors. */
static void numbers(void) {
    char buffer[20];
    int ends[2];
    make_pair(ends);
    say("write %s", result(syscall(SYS_write, ends[0], "abcd", 4)));
    say("read %s", result(syscall(SYS_read, ends[1], buffer, 2)));
    say("recvfrom %s", result(syscall(SYS_recvfrom, ends[1], buffer, 2, 0, NULL, NULL)));
    say("sendto %s", result(syscall(SYS_sendto, ends[1], "ef", 2, MSG_NOSIGNAL, NULL, 0)));
    struct iovec part = {buffer, 10};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
    say("recvmmsg %s", result(syscall(SYS_recvmmsg, ends[0], messages, 2, MSG_WAITFORONE, NULL)));
    say("the first %u", messages[0].msg_len);
    int value = 1;
    socklen_t length = sizeof value;
    say("setsockopt %s", result(syscall(SYS_setsockopt, ends[0], SOL_TCP, TCP_NODELAY, &value, 4)));
    value = 0;
    say("getsockopt %s", result(syscall(SYS_getsockopt, ends[0], SOL_TCP, TCP_NODELAY, &value, &length)));
    say("which gives %d", value);
    int copy = syscall(SYS_dup, ends[0]);
    say("close %s", result(syscall(SYS_close, ends[0])));
    say("write to the copy %s", result(syscall(SYS_write, copy, "ghi", 3)));
    say("close the copy %s", result(syscall(SYS_close, copy)));
    say("read %s", result(syscall(SYS_read, ends[1], buffer, 20)));
    say("the end %s", result(syscall(SYS_read, ends[1], buffer, 20)));
    say("close %s", result(syscall(SYS_close, ends[1])));
    say("close again %s", result(syscall(SYS_close, ends[1])));
    long fd = syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0), other = syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = address_of(own_address, 0);
    say("bind %s", result(syscall(SYS_bind, fd, AS(own))));
    length = sizeof own;
    say("getsockname %s", result(syscall(SYS_getsockname, fd, &own, &length)));
    say("connect %s", result(syscall(SYS_connect, other, AS(own))));
    part.iov_len = 3;
    messages[0].msg_hdr.msg_name = NULL;
    say("sendmmsg %s", result(syscall(SYS_sendmmsg, other, messages, 2, 0)));
    struct pollfd entry = {fd, POLLIN, 0};
    struct timespec time = {10, 0};
    say("ppoll %s", result(syscall(SYS_ppoll, &entry, 1, &time, NULL, 0)));
    say("shutdown %s", result(syscall(SYS_shutdown, other, SHUT_RDWR)));
    syscall(SYS_close, fd);
    syscall(SYS_close, other);
}

static void own_ends(void) {
    struct sockaddr_in own = address_of(own_address, 0), name;
    socklen_t length = sizeof own;
    char buffer[10];
    int fd = tcp_socket();
    bind(fd, AS(own));
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("connect to itself %s", result(connect(fd, AS(own))));
    length = sizeof name;
    getpeername(fd, (struct sockaddr *)&name, &length);
    say("its own peer %d", name.sin_port == own.sin_port);
    send(fd, "self", 4, 0);
    say("hears itself %s", result(recv(fd, buffer, 10, 0)));
    shutdown(fd, SHUT_WR);
    say("and its end %s", result(recv(fd, buffer, 10, 0)));
    close(fd);
}

static void unread(void) {
    char buffer[10];
    int ends[2];
    make_pair(ends);
    send(ends[0], "unread", 6, 0);
    wait_for(ends[1], POLLIN);
    close(ends[1]);
    wait_for(ends[0], POLLHUP);
    say("unread, polls %s", pollbits(wait_for(ends[0], POLLIN | POLLOUT | POLLRDHUP)));
    say("send %s", result(send(ends[0], "x", 1, MSG_NOSIGNAL)));
    say("send again %s", result(send(ends[0], "x", 1, MSG_NOSIGNAL)));
    say("recv %s", result(recv(ends[0], buffer, 1, 0)));
    say("error %s", error_of(ends[0]));
    say("shutdown %s", result(shutdown(ends[0], SHUT_RDWR)));
    close(ends[0]);
    make_pair(ends);
    shutdown(ends[1], SHUT_RD);
    say("reader shut, send %s", result(send(ends[0], "abc", 3, 0)));
    wait_for(ends[1], POLLIN);
    pause_ms(30);
    say("comes all the same %s", result(recv(ends[1], buffer, 10, 0)));
    say("then the end %s", result(recv(ends[1], buffer, 10, 0)));
    close_pair(ends);
    make_pair(ends);
    send(ends[0], "last", 4, 0);
    struct linger linger = {1, 0};
    setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    wait_for(ends[1], POLLIN);
    close(ends[0]);
    wait_for(ends[1], POLLERR);
    say("reset behind bytes, polls %s", pollbits(wait_for(ends[1], POLLIN | POLLOUT | POLLRDHUP)));
    say("recv %s", result(recv(ends[1], buffer, 10, 0)));
    say("recv %s", result(recv(ends[1], buffer, 10, 0)));
    close(ends[1]);
}

static void unaccepted(void) {
    char byte;
    int port = 0, listener = listen_on(own_address, &port);
    struct sockaddr_in to = address_of(own_address, port);
    int fd = tcp_socket();
    connect(fd, AS(to));
    say("unaccepted, send %s", result(send(fd, "x", 1, 0)));
    say("unaccepted, shutdown of the listener %s", result(shutdown(listener, SHUT_RD)));
    wait_for(fd, POLLHUP);
    say("polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("recv %s", result(recv(fd, &byte, 1, 0)));
    close(fd);
    close(listener);
    listener = listen_on(own_address, &port);
    fd = tcp_socket();
    connect(fd, AS(to));
    close(fd);
    fd = accept(listener, NULL, NULL);
    say("closed before accept reads %s", result(recv(fd, &byte, 1, 0)));
    close(fd);
    close(listener);
}

/* Pointers to nowhere. */
static void pointers(void) {
    char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *last = (void *)-1L;
    struct sockaddr_in own = address_of(own_address, 0);
    socklen_t length = sizeof own;
    int ends[2], value = 1;
    make_pair(ends);
    int fd = ends[0];
    say("getsockname nowhere %s", result(getsockname(fd, (void *)nowhere, &length)));
    say("getpeername nowhere %s", result(getpeername(fd, (void *)nowhere, &length)));
    say("getsockname of length nowhere %s", result(getsockname(fd, (void *)&own, (void *)nowhere)));
    say("getpeername of no length %s", result(getpeername(fd, (void *)&own, NULL)));
    length = -1;
    say("getsockname of minus one %s", result(getsockname(fd, (void *)&own, &length)));
    length = -1;
    say("getpeername of minus one %s", result(getpeername(fd, (void *)&own, &length)));
    length = 0;
    say("getpeername of nothing %s", result(getpeername(fd, (void *)&own, &length)));
    say("is of %d", length);
    length = 4;
    say("getsockopt nowhere %s", result(getsockopt(fd, SOL_TCP, TCP_NODELAY, nowhere, &length)));
    say("getsockopt of length nowhere %s", result(getsockopt(fd, SOL_TCP, TCP_NODELAY, &value, (void *)nowhere)));
    say("error nowhere %s", result(getsockopt(fd, SOL_SOCKET, SO_ERROR, nowhere, &length)));
    say("setsockopt nowhere %s", result(setsockopt(fd, SOL_TCP, TCP_NODELAY, nowhere, 4)));
    say("congestion nowhere %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, nowhere, 4)));
    say("connect nowhere %s", result(connect(fd, (void *)nowhere, sizeof own)));
    say("bind nowhere %s", result(bind(fd, (void *)nowhere, sizeof own)));
    say("connect too long %s", result(connect(fd, (void *)&own, 4096)));
    say("connect to minus one %s", result(connect(fd, (void *)&own, -1)));
    say("send last %s", result(send(fd, last, 5, 0)));
    say("recv last %s", result(recv(fd, last, 5, MSG_DONTWAIT)));
    send(ends[1], "bytes", 5, 0);
    wait_for(fd, POLLIN);
    say("recv last %s", result(recv(fd, last, 5, 0)));
    say("recvmsg last %s", result(recvmsg(fd, last, 0)));
    say("sendmsg last %s", result(sendmsg(fd, last, 0)));
    say("readv last %s", result(readv(fd, last, 1)));
    say("writev last %s", result(writev(fd, last, 1)));
    say("FIONREAD nowhere %s", result(ioctl(fd, FIONREAD, nowhere)));
    say("poll last %s", result(poll(last, 1, 0)));
    struct pollfd entry = {fd, POLLIN, 0};
    say("poll of too many %s", result(poll(&entry, atoi("1000000000"), 0)));
    struct timespec bad = {0, 1000000000}, negative = {-1, 0};
    say("ppoll of a bad time %s", result(ppoll(&entry, 1, &bad, NULL)));
    say("ppoll of a negative time %s", result(ppoll(&entry, 1, &negative, NULL)));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval bad_time = {-1, 0};
    say("select of a negative time %s", result(select(fd + 1, &set, NULL, NULL, &bad_time)));
    say("select of a negative count %s", result(select(-1, &set, NULL, NULL, NULL)));
    say("sendto nowhere %s", result(sendto(fd, "x", 1, 0, (void *)nowhere, sizeof own)));
    close_pair(ends);
    int port = 0, listener = listen_on(own_address, &port);
    length = sizeof own;
    own = address_of(own_address, port);
    fd = tcp_socket();
    connect(fd, AS(own));
    say("accept nowhere %s", result(accept(listener, (void *)nowhere, &length)));
    close(fd);
    fd = tcp_socket();
    connect(fd, AS(own));
    length = -1;
    say("accept of minus one %s", result(accept(listener, (void *)&own, &length)));
    set_nonblocking(listener, 1);
    say("then accept %s", result(accept(listener, NULL, NULL)));
    close(fd);
    close(listener);
    munmap(nowhere, 4096);
}

/* What is sent just before a reset comes before it. */
static void last_words(void) {
    char buffer[20];
    struct linger linger = {1, 0};
    for (int manner = 0; manner < 3; manner++) {
        int ends[2];
        make_pair(ends);
        send(ends[1], "question", 8, 0);
        recv(ends[0], buffer, manner == 2 ? 8 : 1, 0);
        if (manner > 0)
            setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        send(ends[0], "answer", 6, 0);
        close(ends[0]);
        say("last words %s", result(recv(ends[1], buffer, sizeof buffer, 0)));
        say("then %s", result(recv(ends[1], buffer, sizeof buffer, 0)));
        say("and %s", result(recv(ends[1], buffer, sizeof buffer, 0)));
        close(ends[1]);
    }
}

static void positions(void) {
    char buffer[20];
    int ends[2];
    make_pair(ends);
    struct iovec part = {buffer, 4};
    memcpy(buffer, "abcd", 4);
    say("pwrite %s", result(pwrite(ends[0], "x", 1, 0)));
    say("pread %s", result(pread(ends[0], buffer, 1, 0)));
    say("pwritev %s", result(pwritev(ends[0], &part, 1, 0)));
    say("pwritev2 nowhere %s", result(pwritev2(ends[0], &part, 1, -1, 0)));
    wait_for(ends[1], POLLIN);
    say("preadv2 nowhere %s", result(preadv2(ends[1], &part, 1, -1, 0)));
    say("preadv2 that may not wait %s", result(preadv2(ends[1], &part, 1, -1, RWF_NOWAIT)));
    say("lseek %s", result(lseek(ends[0], 0, SEEK_CUR)));
    say("ftruncate %s", result(ftruncate(ends[0], 0)));
    say("fsync %s", result(fsync(ends[0])));
    int left = -1;
    say("SIOCOUTQ %s", result(ioctl(ends[0], 0x5411, &left)));
    say("SIOCOUTQNSD %s", result(ioctl(ends[0], 0x894b, &left)));
    say("which gives %d", left);
    say("an unknown ioctl %s", result(ioctl(ends[0], 0x12345678, &left)));
    say("no flags at all %s", result(recv(ends[0], buffer, 1, MSG_DONTWAIT | 0x40000)));
    say("F_GETOWN %s", result(fcntl(ends[0], F_GETOWN)));
    say("F_SETLK %s", result(fcntl(ends[0], 77)));
    close_pair(ends);
}

static void values(void) {
    int ends[2];
    make_pair(ends);
    static const struct {
        const char *name;
        int level, option;
    } names[] = {
        {"SO_TYPE", SOL_SOCKET, SO_TYPE}, {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN},
        {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL}, {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
        {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR}, {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},
        {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST}, {"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE},
        {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE}, {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY},
        {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT}, {"SO_SNDLOWAT", SOL_SOCKET, SO_SNDLOWAT},
        {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP}, {"SO_MARK", SOL_SOCKET, SO_MARK},
        {"SO_NO_CHECK", SOL_SOCKET, SO_NO_CHECK}, {"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL},
        {"TCP_NODELAY", SOL_TCP, TCP_NODELAY}, {"TCP_CORK", SOL_TCP, TCP_CORK},
        {"TCP_KEEPIDLE", SOL_TCP, TCP_KEEPIDLE}, {"TCP_KEEPINTVL", SOL_TCP, TCP_KEEPINTVL},
        {"TCP_KEEPCNT", SOL_TCP, TCP_KEEPCNT}, {"TCP_SYNCNT", SOL_TCP, TCP_SYNCNT},
        {"TCP_LINGER2", SOL_TCP, TCP_LINGER2}, {"TCP_DEFER_ACCEPT", SOL_TCP, TCP_DEFER_ACCEPT},
        {"TCP_USER_TIMEOUT", SOL_TCP, TCP_USER_TIMEOUT}, {"TCP_FASTOPEN", SOL_TCP, TCP_FASTOPEN},
        {"TCP_TIMESTAMP", SOL_TCP, 0}, {"IP_TOS", SOL_IP, IP_TOS}, {"IP_TTL", SOL_IP, IP_TTL},
        {"IP_MTU_DISCOVER", SOL_IP, IP_MTU_DISCOVER}, {"IP_RECVERR", SOL_IP, IP_RECVERR},
        {"IP_PKTINFO", SOL_IP, IP_PKTINFO}, {"no such", SOL_TCP, 1000},
        {"no such level", 1234, 1},
    };
    int on = 1;
    for (int index = 0; index < (int)(sizeof names / sizeof names[0]); index++) {
        int value = -1;
        socklen_t length = sizeof value;
        for (int end = 0; end < 2; end++) {
            int status = getsockopt(ends[end], names[index].level, names[index].option, &value, &length);
            say("%s of end %d: %s %d", names[index].name, end, result(status), value);
        }
        if (names[index].option == SO_MARK || names[index].option == SO_NO_CHECK)
            continue;
        int status = setsockopt(ends[0], names[index].level, names[index].option, &on, sizeof on);
        length = sizeof value;
        getsockopt(ends[0], names[index].level, names[index].option, &value, &length);
        say("%s set %s: %d", names[index].name, result(status), value);
    }
    close_pair(ends);
}

void pairs_cases(void) {
    waiting();
    disconnecting();
    full_table();
    numbers();
    own_ends();
    unread();
    unaccepted();
    last_words();
    pointers();
    positions();
    values();
}
