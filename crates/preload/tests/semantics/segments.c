/* Datagrams in runs: UDP_SEGMENT and UDP_GRO. */
#include "common.h"
#include <netinet/udp.h>

static int option_of(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_UDP, name, &value, &length) < 0 ? -errno : value;
}

static const char *set(int fd, int name, int value) {
    return result(setsockopt(fd, SOL_UDP, name, &value, sizeof value));
}

/* Sends so many bytes, with a size of its own or none (-1), and tells what the other socket got. */
static void run(const char *what, int from, int to, const struct sockaddr_in *address, long length, int size, int more) {
    static char bytes[70000], room[70000];
    char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    fill_pattern(bytes, length, 0);
    struct iovec part = {bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = (void *)address,
                             .msg_namelen = address ? sizeof *address : 0};
    if (size >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *one = CMSG_FIRSTHDR(&message);
        uint16_t value = size;
        *one = (struct cmsghdr){CMSG_LEN(sizeof value), SOL_UDP, UDP_SEGMENT};
        memcpy(CMSG_DATA(one), &value, sizeof value);
    }
    long sent = sendmsg(from, &message, more ? MSG_MORE : 0);
    say("%s: %ld bytes %s", what, length, result(sent));
    if (sent < 0 || more)
        return;
    char text[2000], *end = text;
    long done = 0, good = 1, count = 0, last = -1, same = 0;
    *end = 0;
    while (done < length || (length == 0 && count == 0)) {
        if (!(wait_for(to, POLLIN) & POLLIN))
            break;
        long got = recv(to, room, sizeof room, 0);
        if (got < 0)
            break;
        good &= matches_pattern(room, got, done);
        done += got;
        count++;
        if (got == last)
            same++;
        else {
            if (last >= 0)
                end += sprintf(end, " %ld*%ld", same, last);
            last = got;
            same = 1;
        }
    }
    say("%s: %ld datagrams%s %ld*%ld good %ld", what, count, text, same, last, good);
}

static void options(void) {
    struct sockaddr_in name;
    int fd = udp_bound(own_address, &name), stream = tcp_socket();
    for (int which = 0; which < 2; which++) {
        int option = which ? UDP_GRO : UDP_SEGMENT;
        say("fresh %d", option_of(fd, option));
        for (int value = -1; value < 70000; value = value < 2 ? value + 1 : value * 9)
        {
            const char *outcome = set(fd, option, value);
            say("%d: %s, %d", value, outcome, option_of(fd, option));
        }
        char byte = 1;
        say("short %s", result(setsockopt(fd, SOL_UDP, option, &byte, 1)));
        say("on a stream %s", set(stream, option, 1));
    }
    close(fd);
    close(stream);
}

static void sending(void) {
    struct sockaddr_in name, other;
    int from = udp_bound(own_address, &other), to = udp_bound(own_address, &name), size = 1 << 20;
    setsockopt(to, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    for (int connected = 0; connected < 2; connected++) {
        if (connected)
            connect(from, (struct sockaddr *)&name, sizeof name);
        const struct sockaddr_in *address = connected ? NULL : &name;
        run("by message", from, to, address, 1000, 100, 0);
        run("not even", from, to, address, 1001, 100, 0);
        run("one", from, to, address, 100, 100, 0);
        run("larger than it", from, to, address, 99, 100, 0);
        run("nothing", from, to, address, 0, 100, 0);
        run("zero", from, to, address, 100, 0, 0);
        run("most", from, to, address, 128, 1, 0);
        run("too many", from, to, address, 129, 1, 0);
        run("segments too long", from, to, address, 65000, 40000, 0);
        run("largest", from, to, address, 65507, 1472, 0);
        run("too large", from, to, address, 65508, 1472, 0);
        run("far too large", from, to, address, 65536, 1472, 0);
        say("set %s", set(from, UDP_SEGMENT, 1400));
        run("by option", from, to, address, 14001, -1, 0);
        run("message over option", from, to, address, 2000, 700, 0);
        run("message off", from, to, address, 1400, 0, 0);
        say("set %s", set(from, UDP_SEGMENT, 0));
        run("off", from, to, address, 2000, -1, 0);
    }
    run("corked", from, to, NULL, 1000, 100, 1);
    run("corked", from, to, NULL, 500, -1, 0);
    close(from);
    close(to);
}

/* The peer sends them back one by one, or as many as it has. */
static void away(void) {
    int call = call_peer("datagrams");
    struct sockaddr_in to = address_of(peer_address.sin_addr, port_of(call));
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    run("to the peer", fd, fd, NULL, 3000, 300, 0);
    run("to the peer", fd, fd, NULL, 4500, 1472, 0);
    run("too long for the link", fd, fd, NULL, 4500, 1473, 0);
    run("one too long for the link", fd, fd, NULL, 1400, 1473, 0);
    run("of the link's length", fd, fd, NULL, 44160, 1472, 0);
    close(fd);
    close(call);
}

/* Receives, and tells the sizes that came with it. */
static void gro(const char *what, int fd, size_t length, int flags) {
    static char room[70000];
    char control[200] = {0};
    struct iovec part = {room, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, 100);
    long count = recvmsg(fd, &message, MSG_DONTWAIT | flags);
    say("%s: %s flags %x", what, result(count), message.msg_flags);
    if (count < 0)
        return;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        int value = 0;
        memcpy(&value, CMSG_DATA(one), sizeof value);
        say("%s: cmsg %d %d length %d size %d", what, one->cmsg_level, one->cmsg_type, (int)one->cmsg_len, value);
    }
}

static void receiving(void) {
    struct sockaddr_in name, other;
    static char bytes[70000];
    int from = udp_bound(own_address, &other), to = udp_bound(own_address, &name);
    connect(from, (struct sockaddr *)&name, sizeof name);
    say("GRO %s", set(to, UDP_GRO, 1));
    say("SEGMENT %s", set(from, UDP_SEGMENT, 100));
    send(from, bytes, 1000, 0);
    gro("ten", to, sizeof bytes, 0);
    send(from, bytes, 1050, 0);
    gro("ten and a half", to, sizeof bytes, 0);
    send(from, bytes, 100, 0);
    gro("one", to, sizeof bytes, 0);
    send(from, bytes, 1000, 0);
    gro("peeked", to, sizeof bytes, MSG_PEEK);
    gro("cut", to, 150, 0);
    gro("nothing left", to, sizeof bytes, 0);
    send(from, bytes, 1000, 0);
    wait_for(to, POLLIN);
    int waiting = -1;
    ioctl(to, FIONREAD, &waiting);
    say("FIONREAD %d", waiting);
    say("recv %s", result(recv(to, bytes, sizeof bytes, 0)));
    say("SEGMENT %s", set(from, UDP_SEGMENT, 0));
    send(from, bytes, 1000, 0);
    gro("plain", to, sizeof bytes, 0);
    say("GRO %s", set(to, UDP_GRO, 0));
    say("SEGMENT %s", set(from, UDP_SEGMENT, 400));
    send(from, bytes, 1000, 0);
    gro("off", to, sizeof bytes, 0);
    gro("off", to, sizeof bytes, 0);
    gro("off", to, sizeof bytes, 0);
    close(from);
    close(to);
}

void segments_cases(void) {
    options();
    sending();
    away();
    receiving();
}
