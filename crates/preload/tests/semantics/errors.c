/* The queue of errors (IP_RECVERR, MSG_ERRQUEUE): what routers and hosts say of what was sent, and what is too long. */
#include "common.h"
#include <linux/errqueue.h>
#include <sys/socket.h>

static int udp_to(struct sockaddr_in *to, int recverr) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_IP, IP_RECVERR, &recverr, sizeof recverr);
    if (to)
        connect(fd, (struct sockaddr *)to, sizeof *to);
    return fd;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

static const char *whose(struct in_addr address) {
    return address.s_addr == peer_address.sin_addr.s_addr ? "peer's"
           : address.s_addr == own_address.s_addr         ? "own"
           : address.s_addr == 0                          ? "none"
                                                          : "other";
}

/* Takes an error from the queue and tells everything of it. */
static long tell_with(const char *what, int fd, size_t room, size_t control_room, int flags) {
    char buffer[3000], control[512] = {0};
    struct sockaddr_in name = {0};
    struct iovec part = {buffer, room};
    struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = control_room};
    memset(buffer, '.', sizeof buffer);
    long count = recvmsg(fd, &message, MSG_ERRQUEUE | flags);
    say("%s: %s flags %x", what, result(count), count < 0 ? 0 : message.msg_flags);
    if (count < 0)
        return count;
    say("%s: name %d %s family %d port %d", what, message.msg_namelen, whose(name.sin_addr), name.sin_family,
        name.sin_port == 0 ? 0 : 1);
    say("%s: payload %.*s", what, (int)(count > 12 ? 12 : count), buffer);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        if (one->cmsg_level == SOL_IP && one->cmsg_type == IP_RECVERR) {
            struct sock_extended_err error;
            struct sockaddr_in offender;
            memcpy(&error, CMSG_DATA(one), sizeof error);
            if (one->cmsg_len >= CMSG_LEN(sizeof error + sizeof offender))
                memcpy(&offender, CMSG_DATA(one) + sizeof error, sizeof offender);
            else
                memset(&offender, 0, sizeof offender);
            say("%s: length %d %s origin %d type %d code %d pad %d info %u data %u offender %d %s", what,
                (int)one->cmsg_len, errname(error.ee_errno), error.ee_origin, error.ee_type, error.ee_code, error.ee_pad,
                error.ee_info, error.ee_data, offender.sin_family, whose(offender.sin_addr));
        } else
            say("%s: cmsg %d %d length %d", what, one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
    }
    return count;
}

static long tell(const char *what, int fd) { return tell_with(what, fd, 3000, 512, 0); }

/* A port of the peer's that answers each datagram with such an ICMP error; the call is to be closed in the end. */
static struct sockaddr_in complainer(int *call, int type, int code, int info) {
    *call = call_peer("icmp %d", type << 24 | code << 16 | info);
    char text[20] = "";
    for (int i = 0; i < 19 && read(*call, text + i, 1) == 1 && text[i] != '\n'; i++) {
    }
    return address_of(peer_address.sin_addr, atoi(text));
}

static void refused(void) {
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 2);
    char buffer[100];
    int fd = udp_to(&nobody, 1);
    tell("nothing yet", fd);
    say("send %s", result(send(fd, "hello", 5, 0)));
    say("polls %s", pollbits(wait_for(fd, POLLIN)));
    tell("connected", fd);
    say("polls %s", pollbits(wait_for(fd, POLLOUT)));
    say("SO_ERROR after it %s", errname(error_of(fd)));
    say("again %s", result(recv(fd, buffer, 10, MSG_ERRQUEUE)));
    say("send %s", result(send(fd, "world", 5, 0)));
    say("polls %s", pollbits(wait_for(fd, POLLIN)));
    say("SO_ERROR %s", errname(error_of(fd)));
    say("polls %s", pollbits(wait_for(fd, POLLIN)));
    say("SO_ERROR %s", errname(error_of(fd)));
    say("recv %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    tell_with("cut", fd, 2, 512, 0);
    say("send %s", result(send(fd, "world", 5, 0)));
    wait_for(fd, POLLIN);
    say("recv tells it %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT)));
    tell_with("little control", fd, 100, 30, MSG_PEEK);
    tell("peek takes it", fd);
    say("send %s", result(send(fd, "1", 1, 0)));
    wait_for(fd, POLLIN);
    say("send tells it %s", result(send(fd, "2", 1, 0)));
    say("recv by name %s", result(recv(fd, buffer, 10, MSG_ERRQUEUE | MSG_DONTWAIT)));
    close(fd);
    /* two before the first is taken */
    fd = udp_to(NULL, 1);
    int on = 1;
    setsockopt(fd, SOL_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(fd, SOL_IP, IP_RECVTOS, &on, sizeof on);
    say("sendto %s", result(sendto(fd, "first", 5, 0, (struct sockaddr *)&nobody, sizeof nobody)));
    wait_for(fd, POLLIN);
    say("not connected, SO_ERROR %s", errname(error_of(fd)));
    say("sendto %s", result(sendto(fd, "second", 6, 0, (struct sockaddr *)&nobody, sizeof nobody)));
    wait_for(fd, POLLPRI);
    pause_ms(20);
    say("SO_ERROR %s", errname(error_of(fd)));
    tell("first", fd);
    say("the next one's error %s", errname(error_of(fd)));
    tell("second", fd);
    say("SO_ERROR %s", errname(error_of(fd)));
    tell("none", fd);
    say("polls %s", pollbits(wait_for(fd, POLLOUT)));
    close(fd);
    /* without asking */
    fd = udp_to(NULL, 0);
    say("sendto %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&nobody, sizeof nobody)));
    pause_ms(30);
    say("unasked %s", errname(error_of(fd)));
    tell("unasked", fd);
    on = 1;
    setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof on);
    sendto(fd, "asked", 5, 0, (struct sockaddr *)&nobody, sizeof nobody);
    wait_for(fd, POLLIN);
    on = 0;
    setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof on);
    tell("switching off empties it", fd);
    say("SO_ERROR %s", errname(error_of(fd)));
    say("polls %s", pollbits(wait_for(fd, POLLOUT)));
    close(fd);
}

static void waited(void) {
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 2);
    struct epoll_event event = {.events = EPOLLET}, out[4];
    char buffer[10];
    int fd = udp_to(NULL, 1), epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say("nothing %s", result(epoll_wait(epoll, out, 4, 20)));
    sendto(fd, "first", 5, 0, (struct sockaddr *)&nobody, sizeof nobody);
    say("epoll %s", result(epoll_wait(epoll, out, 4, 5000)));
    say("events %x", out[0].events);
    say("told once %s", result(epoll_wait(epoll, out, 4, 20)));
    error_of(fd);
    sendto(fd, "second", 6, 0, (struct sockaddr *)&nobody, sizeof nobody);
    say("another %s", result(epoll_wait(epoll, out, 4, 5000)));
    error_of(fd);
    event.events = EPOLLIN;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    say("level %s", result(epoll_wait(epoll, out, 4, 1000)));
    say("level %s", result(epoll_wait(epoll, out, 4, 1000)));
    set_timeout(fd, SO_RCVTIMEO, 50);
    say("a receive waits %s", result(recv(fd, buffer, 10, 0)));
    say("one %s", result(recv(fd, buffer, 10, MSG_ERRQUEUE)));
    say("an error of the next %s", result(recv(fd, buffer, 10, 0)));
    say("two %s", result(recv(fd, buffer, 10, MSG_ERRQUEUE)));
    say("level %s", result(epoll_wait(epoll, out, 4, 20)));
    struct mmsghdr messages[3] = {0};
    struct iovec part = {buffer, 10};
    for (int i = 0; i < 3; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    for (int i = 0; i < 2; i++) {
        error_of(fd);
        sendto(fd, "several", 7, 0, (struct sockaddr *)&nobody, sizeof nobody);
        pause_ms(20);
    }
    error_of(fd);
    say("recvmmsg %s", result(recvmmsg(fd, messages, 3, MSG_ERRQUEUE, NULL)));
    say("lengths %d %d flags %x", messages[0].msg_len, messages[1].msg_len, messages[0].msg_hdr.msg_flags);
    close(epoll);
    close(fd);
}

/* What routers say. */
static void told(const char *what, int type, int code, int info, int recverr, int connected, int discover) {
    int call;
    char name[100];
    struct sockaddr_in to = complainer(&call, type, code, info);
    int fd = udp_to(connected ? &to : NULL, recverr);
    if (discover >= 0)
        setsockopt(fd, SOL_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    snprintf(name, sizeof name, "%s%s%s", what, recverr ? "" : " unasked", connected ? " connected" : "");
    sendto(fd, "complain", 8, 0, connected ? NULL : (struct sockaddr *)&to, connected ? 0 : sizeof to);
    char byte;
    read_all(call, &byte, 1); /* it has been said */
    pause_ms(10);
    if (recverr)
        tell(name, fd);
    say("%s: SO_ERROR %s", name, errname(error_of(fd)));
    close(fd);
    close(call);
}

static void routers(void) {
    for (int recverr = 0; recverr <= 1; recverr++)
        for (int connected = 0; connected <= 1; connected++) {
            for (int code = 0; code <= 15; code++) {
                char name[20];
                snprintf(name, sizeof name, "unreachable %d", code);
                if (code != 4)
                    told(name, 3, code, 0, recverr, connected, -1);
            }
            told("exceeded", 11, 0, 0, recverr, connected, -1);
            told("parameter", 12, 0, 20 << 8, recverr, connected, -1);
        }
    for (int discover = IP_PMTUDISC_DONT; discover <= IP_PMTUDISC_OMIT; discover++) {
        char name[20];
        snprintf(name, sizeof name, "too big %d", discover);
        /* no narrower than it is */
        told(name, 3, 4, 1500, 1, 1, discover);
        told(name, 3, 4, 1500, 0, 1, discover);
        told(name, 3, 4, 1500, 0, 0, discover);
    }
}

static int mtu_of(int fd) {
    int mtu = -1;
    socklen_t length = sizeof mtu;
    return getsockopt(fd, SOL_IP, IP_MTU, &mtu, &length) < 0 ? -errno : mtu;
}

/* What is too long is told at once. */
static void too_long(void) {
    static char large[70000];
    int call = call_peer("datagrams");
    char text[20] = "";
    for (int i = 0; i < 19 && read(call, text + i, 1) == 1 && text[i] != '\n'; i++) {
    }
    struct sockaddr_in to = address_of(peer_address.sin_addr, atoi(text));
    for (int discover = IP_PMTUDISC_DONT; discover <= IP_PMTUDISC_OMIT; discover++)
        for (int connected = 0; connected <= 1; connected++) {
            int fd = udp_to(connected ? &to : NULL, 1), length;
            struct sockaddr *address = connected ? NULL : (struct sockaddr *)&to;
            socklen_t size = connected ? 0 : sizeof to;
            setsockopt(fd, SOL_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
            say("discover %d connected %d IP_MTU %d", discover, connected, mtu_of(fd));
            for (length = 1471; length <= 1473; length++) {
                say("send %d: %s", length, result(sendto(fd, large, length, 0, address, size)));
                say("polls %s", pollbits(wait_for(fd, POLLOUT)));
            }
            tell("too long", fd);
            say("SO_ERROR %s", errname(error_of(fd)));
            say("send 65507: %s", result(sendto(fd, large, 65507, 0, address, size)));
            recv(fd, large, 10, MSG_ERRQUEUE);
            say("send 65508: %s", result(sendto(fd, large, 65508, 0, address, size)));
            tell("too long for any", fd);
            say("send 65536: %s", result(sendto(fd, large, 65536, 0, address, size)));
            tell("far too long", fd);
            close(fd);
        }
    /* nobody asked */
    int fd = udp_to(&to, 0), discover = IP_PMTUDISC_DO;
    setsockopt(fd, SOL_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    say("unasked %s", result(send(fd, large, 1473, 0)));
    tell("unasked", fd);
    close(fd);
    close(call);
}

static void mtus(void) {
    int fd = udp_to(NULL, 0), value = 1400;
    say("IP_MTU not connected %d", mtu_of(fd));
    say("IP_MTU cannot be set %s", result(setsockopt(fd, SOL_IP, IP_MTU, &value, sizeof value)));
    connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address);
    say("IP_MTU connected %d", mtu_of(fd));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(fd, &none, sizeof none);
    say("IP_MTU disconnected %d", mtu_of(fd));
    close(fd);
}

static void streams(void) {
    int on = 1, fd = call_peer("echo");
    char buffer[10];
    say("IP_RECVERR %s", result(setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof on)));
    tell("stream", fd);
    say("nothing %s", result(recv(fd, buffer, 10, MSG_ERRQUEUE)));
    say("polls %s", pollbits(wait_for(fd, POLLOUT)));
    close(fd);
    fd = tcp_socket();
    tell("fresh", fd);
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 2);
    setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof on);
    say("connect %s", result(connect(fd, (struct sockaddr *)&nobody, sizeof nobody)));
    tell("refused", fd);
    close(fd);
}

/* Sends that need not be copied, which between these ends are (SO_EE_CODE_ZEROCOPY_COPIED). */
static void copied(int kind) {
    int call = -1, fd, on = 1, two = 2;
    const char *what = kind == SOCK_STREAM ? "stream" : "datagram";
    char buffer[100];
    if (kind == SOCK_STREAM)
        fd = call_peer("echo");
    else {
        call = call_peer("datagrams");
        for (int i = 0; i < 19 && read(call, buffer + i, 1) == 1 && buffer[i] != '\n'; i++) {
        }
        struct sockaddr_in to = address_of(peer_address.sin_addr, atoi(buffer));
        fd = udp_to(&to, 0);
    }
    say("%s unasked %s", what, result(send(fd, "hello", 5, MSG_ZEROCOPY)));
    wait_for(fd, POLLIN);
    recv(fd, buffer, sizeof buffer, 0);
    tell(what, fd);
    say("SO_ZEROCOPY 2 %s", result(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &two, sizeof two)));
    say("SO_ZEROCOPY %s", result(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on)));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            say("%s %s", what, result(send(fd, "hello", 5, i == 1 && round ? 0 : MSG_ZEROCOPY)));
            wait_for(fd, POLLIN);
            recv(fd, buffer, sizeof buffer, 0);
        }
        pause_ms(60); /* a delayed acknowledgement */
        say("polls %s", pollbits(wait_for(fd, POLLOUT)));
        tell(what, fd);
        tell(what, fd);
        say("polls %s", pollbits(wait_for(fd, POLLOUT)));
    }
    close(fd);
    if (call >= 0)
        close(call);
}

void errors_cases(void) {
    copied(SOCK_STREAM);
    copied(SOCK_DGRAM);
    refused();
    waited();
    routers();
    too_long();
    mtus();
    streams();
}
