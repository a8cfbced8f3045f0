/* Datagrams: what comes with them, how they are cut, and the errors of sending them. */
#include "common.h"

#define AS(address) (struct sockaddr *)&address, sizeof address

/* Receives and tells what came with it. */
static void tell(const char *what, int fd, size_t room) {
    char buffer[100], control[200];
    struct sockaddr_in from;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from,
                             .msg_control = room ? control : NULL, .msg_controllen = room};
    wait_for(fd, POLLIN);
    long count = recvmsg(fd, &message, MSG_DONTWAIT);
    say("%s: recvmsg %s flags %x name %d", what, result(count), message.msg_flags, message.msg_namelen);
    if (count < 0)
        return;
    say("%s: length of control %d", what, (int)message.msg_controllen);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        int value = 0;
        if (header->cmsg_level == SOL_IP && header->cmsg_type == IP_PKTINFO && header->cmsg_len >= CMSG_LEN(12)) {
            struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(header);
            say("%s: to %d here %d interface %d", what, info->ipi_addr.s_addr == own_address.s_addr,
                info->ipi_spec_dst.s_addr == own_address.s_addr, info->ipi_ifindex > 0);
        } else if (header->cmsg_level == SOL_SOCKET) {
            say("%s: level %d type %d length %d", what, header->cmsg_level, header->cmsg_type, (int)header->cmsg_len);
        } else if (header->cmsg_type == IP_ORIGDSTADDR) {
            struct sockaddr_in *to = (struct sockaddr_in *)CMSG_DATA(header);
            say("%s: originally to %d port %d", what, to->sin_addr.s_addr == own_address.s_addr, to->sin_port != 0);
        } else {
            memcpy(&value, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0) < 4 ? header->cmsg_len - CMSG_LEN(0) : 4);
            say("%s: level %d type %d length %d value %d", what, header->cmsg_level, header->cmsg_type,
                (int)header->cmsg_len, value);
        }
    }
}

static void ancillary(struct in_addr ip, const char *where) {
    struct sockaddr_in to, from;
    int on = 1, fd = udp_bound(ip, &to), sender = udp_bound(own_address, &from);
    to.sin_addr = own_address;
    int tos = 0x28, ttl = 33;
    setsockopt(sender, SOL_IP, IP_TOS, &tos, sizeof tos);
    setsockopt(sender, SOL_IP, IP_TTL, &ttl, sizeof ttl);
    static const int wanted[] = {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVORIGDSTADDR};
    for (int index = 0; index < 4; index++) {
        say("%s: want %d %s", where, wanted[index], result(setsockopt(fd, SOL_IP, wanted[index], &on, sizeof on)));
        sendto(sender, "one", 3, 0, AS(to));
        tell(where, fd, 200);
    }
    sendto(sender, "cut", 3, 0, AS(to));
    tell("little room", fd, CMSG_SPACE(sizeof(struct in_pktinfo)) + CMSG_LEN(0));
    sendto(sender, "cut", 3, 0, AS(to));
    tell("no room", fd, 0);
    int off = 0;
    setsockopt(fd, SOL_IP, IP_PKTINFO, &off, sizeof off);
    setsockopt(fd, SOL_IP, IP_RECVORIGDSTADDR, &off, sizeof off);
    sendto(sender, "two", 3, 0, AS(to));
    tell("without", fd, 200);
    setsockopt(fd, SOL_IP, IP_RECVTOS, &off, sizeof off);
    /* Of one message alone. */
    char control[200] = {0};
    struct iovec part = {"three", 5};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &to, .msg_namelen = sizeof to,
                             .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_IP;
    header->cmsg_type = IP_TTL;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    ttl = 7;
    memcpy(CMSG_DATA(header), &ttl, sizeof ttl);
    say("%s: with a TTL %s", where, result(sendmsg(sender, &message, 0)));
    tell("its own", fd, 200);
    ttl = 0;
    memcpy(CMSG_DATA(header), &ttl, sizeof ttl);
    say("%s: with no TTL %s", where, result(sendmsg(sender, &message, 0)));
    header->cmsg_type = 1234;
    say("%s: with an unknown message %s", where, result(sendmsg(sender, &message, 0)));
    header->cmsg_len = 3;
    say("%s: with a cut message %s", where, result(sendmsg(sender, &message, 0)));
    message.msg_controllen = CMSG_SPACE(sizeof(struct in_pktinfo));
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    struct in_pktinfo info = {.ipi_spec_dst = own_address};
    memcpy(CMSG_DATA(header), &info, sizeof info);
    say("%s: from here %s", where, result(sendmsg(sender, &message, 0)));
    tell("from here", fd, 200);
    info.ipi_spec_dst = peer_address.sin_addr;
    memcpy(CMSG_DATA(header), &info, sizeof info);
    say("%s: from elsewhere %s", where, result(sendmsg(sender, &message, 0)));
    close(fd);
    close(sender);
}

static void cut(void) {
    char buffer[10];
    struct sockaddr_in name, from;
    int fd = udp_bound(own_address, &name), sender = udp_bound(own_address, &from), size = 10000;
    say("SO_RCVBUF %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size)));
    say("SO_SNDBUF %s", result(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size)));
    size = 0;
    socklen_t length = sizeof size;
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, &length);
    say("it has %d", size);
    sendto(sender, "abcdef", 6, 0, AS(name));
    wait_for(fd, POLLIN);
    say("none of it %s", result(recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC)));
    say("none of it %s", result(recv(fd, buffer, 0, 0)));
    say("gone %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    sendto(sender, "abcdef", 6, 0, AS(name));
    wait_for(fd, POLLIN);
    say("waitall %s", result(recv(fd, buffer, 10, MSG_WAITALL)));
    say("out of band %s", result(recv(fd, buffer, 10, MSG_OOB | MSG_DONTWAIT)));
    say("send out of band %s", result(sendto(sender, "x", 1, MSG_OOB, AS(name))));
    say("read of nothing %s", result(read(fd, buffer, 0)));
    set_timeout(fd, SO_RCVTIMEO, 30);
    say("recv in time %s", result(recv(fd, buffer, 10, 0)));
    struct mmsghdr none;
    struct timespec bad = {0, 1000000000}, soon = {0, 1000000};
    memset(&none, 0, sizeof none);
    say("recvmmsg of a bad time %s", result(recvmmsg(fd, &none, 1, MSG_DONTWAIT, &bad)));
    say("recvmmsg of none %s", result(recvmmsg(fd, &none, 0, MSG_DONTWAIT, &soon)));
    close(fd);
    close(sender);
}

static void addresses(void) {
    struct sockaddr_in name, from, to;
    int fd = udp_bound(own_address, &name), sender = udp_bound(own_address, &from);
    char buffer[20];
    to = name;
    to.sin_family = AF_INET6;
    say("wrong family %s", result(sendto(sender, "x", 1, 0, AS(to))));
    to.sin_family = AF_UNSPEC;
    say("no family %s", result(sendto(sender, "x", 1, 0, AS(to))));
    wait_for(fd, POLLIN);
    say("which comes %s", result(recv(fd, buffer, 20, MSG_DONTWAIT)));
    to = name;
    to.sin_port = 0;
    say("port 0 %s", result(sendto(sender, "x", 1, 0, AS(to))));
    say("short %s", result(sendto(sender, "x", 1, 0, (struct sockaddr *)&name, 8)));
    say("long %s", result(sendto(sender, "x", 1, 0, (struct sockaddr *)&name, 200)));
    say("unconnected write %s", result(write(fd, "x", 1)));
    connect(sender, AS(name));
    say("others are not heard %s", result(sendto(fd, "from fd", 7, 0, AS(from))));
    wait_for(sender, POLLIN);
    say("but the peer %s", result(recv(sender, buffer, 20, MSG_DONTWAIT)));
    int third = udp_bound(own_address, &to);
    sendto(third, "third", 5, 0, AS(from));
    sendto(fd, "second", 6, 0, AS(from));
    wait_for(sender, POLLIN);
    pause_ms(20);
    say("not the third %s", result(recv(sender, buffer, 20, MSG_DONTWAIT)));
    pause_ms(50); /* it would have come by now */
    say("which hears of it %s", result(recv(third, buffer, 20, MSG_DONTWAIT)));
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    send(sender, "queued", 6, 0);
    connect(sender, AS(nobody));
    say("disconnected with one queued %s", result(sendto(sender, "y", 1, 0, AS(name))));
    wait_for(fd, POLLIN);
    say("which comes %s", result(recv(fd, buffer, 20, MSG_DONTWAIT)));
    connect(sender, AS(name));
    close(fd);
    say("to nobody %s", result(send(sender, "x", 1, 0)));
    wait_for(sender, POLLERR);
    say("polls %s", pollbits(wait_for(sender, POLLIN | POLLOUT)));
    say("then %s", result(recv(sender, buffer, 20, MSG_DONTWAIT)));
    say("then %s", result(send(sender, "x", 1, 0)));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct sockaddr_in now;
    socklen_t length = sizeof now;
    connect(sender, AS(none));
    getsockname(sender, (struct sockaddr *)&now, &length);
    say("disconnected keeps %d", now.sin_addr.s_addr == own_address.s_addr);
    close(sender);
    sender = socket(AF_INET, SOCK_DGRAM, 0);
    connect(sender, AS(to));
    getsockname(sender, (struct sockaddr *)&now, &length);
    say("connected has %d %d", now.sin_addr.s_addr == own_address.s_addr, now.sin_port != 0);
    connect(sender, AS(none));
    getsockname(sender, (struct sockaddr *)&now, &length);
    say("disconnected has %d", now.sin_addr.s_addr == own_address.s_addr);
    say("and sends %s", result(sendto(sender, "x", 1, 0, AS(to))));
    close(sender);
    close(third);
}

static void gathering(void) {
    struct sockaddr_in name, from;
    int fd = udp_bound(own_address, &name), sender = udp_bound(own_address, &from), on = 1, off = 0;
    char buffer[100];
    connect(sender, AS(name));
    say("more follows %s", result(send(sender, "ab", 2, MSG_MORE)));
    say("more follows %s", result(send(sender, "cd", 2, MSG_MORE)));
    say("the last %s", result(send(sender, "ef", 2, 0)));
    wait_for(fd, POLLIN);
    say("one datagram %s", result(recv(fd, buffer, 100, MSG_DONTWAIT)));
    say("of them %.6s", buffer);
    say("no other %s", result(recv(fd, buffer, 100, MSG_DONTWAIT)));
    say("cork %s", result(setsockopt(sender, IPPROTO_UDP, 1, &on, sizeof on)));
    send(sender, "gh", 2, 0);
    send(sender, "ij", 2, 0);
    say("not yet %s", result(recv(fd, buffer, 100, MSG_DONTWAIT)));
    say("uncork %s", result(setsockopt(sender, IPPROTO_UDP, 1, &off, sizeof off)));
    wait_for(fd, POLLIN);
    say("one datagram %s", result(recv(fd, buffer, 100, MSG_DONTWAIT)));
    close(fd);
    close(sender);
}

static void shutting(void) {
    struct sockaddr_in name, from;
    int fd = udp_bound(own_address, &name), sender = udp_bound(own_address, &from);
    char buffer[10];
    connect(sender, AS(name));
    connect(fd, AS(from));
    send(sender, "abc", 3, 0);
    wait_for(fd, POLLIN);
    say("shut reading %s", result(shutdown(fd, SHUT_RD)));
    say("polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("what was there %s", result(recv(fd, buffer, 10, 0)));
    say("then %s", result(recv(fd, buffer, 10, 0)));
    say("not waiting %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    send(sender, "def", 3, 0);
    pause_ms(30);
    say("more comes %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("shut writing %s", result(shutdown(fd, SHUT_WR)));
    say("polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    sigpipes = 0;
    say("send %s", result(send(fd, "x", 1, 0)));
    say("signals %d", sigpipes);
    close(fd);
    close(sender);
}

/* Receives and tells the times that came with it, and whether they can be. */
static void tell_times(const char *what, int fd, const struct timespec *before) {
    char buffer[100], control[300];
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    wait_for(fd, POLLIN);
    pause_ms(3);
    long count = recvmsg(fd, &message, MSG_DONTWAIT);
    say("%s: recvmsg %s flags %x length of control %d", what, result(count), message.msg_flags, (int)message.msg_controllen);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        int64_t time[2] = {0, 0};
        memcpy(time, CMSG_DATA(header), sizeof time);
        int in_nanoseconds = header->cmsg_type == SO_TIMESTAMPNS || header->cmsg_type == 64;
        int64_t at = time[0] * 1000000000 + time[1] * (in_nanoseconds ? 1 : 1000);
        /* Microseconds are cut. */
        int can_be = at + 1000 >= before->tv_sec * 1000000000L + before->tv_nsec &&
                     at <= now.tv_sec * 1000000000L + now.tv_nsec;
        say("%s: level %d type %d length %d can be %d", what, header->cmsg_level, header->cmsg_type,
            (int)header->cmsg_len, can_be);
    }
}

static void times(struct in_addr ip, const char *where) {
    /* SO_TIMESTAMP_NEW and SO_TIMESTAMPNS_NEW come last. */
    static const int options[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, 63, 64};
    struct sockaddr_in to, from;
    int on = 1, off = 0, fd = udp_bound(ip, &to), sender = udp_bound(own_address, &from);
    to.sin_addr = own_address;
    struct timespec before;
    for (int index = 0; index < 4; index++) {
        clock_gettime(CLOCK_REALTIME, &before);
        say("%s: times by %d %s", where, options[index], result(setsockopt(fd, SOL_SOCKET, options[index], &on, sizeof on)));
        for (int other = 0; other < 4; other++) {
            int value = -1;
            socklen_t length = sizeof value;
            getsockopt(fd, SOL_SOCKET, options[other], &value, &length);
            say("%s: then %d is %d", where, options[other], value);
        }
        sendto(sender, "one", 3, 0, AS(to));
        tell_times(where, fd, &before);
    }
    setsockopt(fd, SOL_IP, IP_PKTINFO, &on, sizeof on);
    sendto(sender, "two", 3, 0, AS(to));
    tell("both", fd, 200);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof off);
    sendto(sender, "three", 3, 0, AS(to));
    tell("no times", fd, 200);
    close(fd);
    close(sender);
}

static void times_of_streams(void) {
    int on = 1, fd = call_peer("pong");
    struct timespec before;
    clock_gettime(CLOCK_REALTIME, &before);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(fd, SOL_TCP, 36, &on, sizeof on); /* TCP_INQ */
    write(fd, "\005", 1);
    tell_times("stream", fd, &before);
    shutdown(fd, SHUT_WR);
    tell_times("end of stream", fd, &before);
    close(fd);
}

void messages_cases(void) {
    struct in_addr wildcard = {htonl(INADDR_ANY)};
    times(own_address, "times here");
    times(wildcard, "times anywhere");
    times_of_streams();
    struct in_addr any = {htonl(INADDR_ANY)};
    ancillary(own_address, "own");
    ancillary(any, "any");
    cut();
    addresses();
    gathering();
    shutting();
}
