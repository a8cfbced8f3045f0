/* UDP: addressed and connected, cut and empty datagrams, errors, multiple messages, readiness. */
#include "common.h"

static int udp_socket(void) { return socket(AF_INET, SOCK_DGRAM, 0); }

static int peer_port(int call) {
    char text[20] = "";
    for (int i = 0; i < 19 && read(call, text + i, 1) == 1 && text[i] != '\n'; i++) {
    }
    return atoi(text);
}

static void addressed(struct sockaddr_in to) {
    char buffer[100];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd = udp_socket();
    say("fresh polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT)));
    say("nothing %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("send without a peer %s", result(send(fd, "x", 1, 0)));
    say("sendto %s", result(sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof to)));
    say("readable %s", pollbits(wait_for(fd, POLLIN)));
    int waiting = 0;
    ioctl(fd, FIONREAD, &waiting);
    say("waiting %d", waiting);
    say("peek %s", result(recvfrom(fd, buffer, 2, MSG_PEEK, NULL, NULL)));
    say("recvfrom %s", result(recvfrom(fd, buffer, 100, 0, (struct sockaddr *)&from, &length)));
    say("from the peer %d length %d", from.sin_addr.s_addr == to.sin_addr.s_addr && from.sin_port == to.sin_port,
        length);
    length = sizeof from;
    getsockname(fd, (struct sockaddr *)&from, &length);
    say("has a port %d", from.sin_port != 0);
    sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&to, sizeof to);
    wait_for(fd, POLLIN);
    say("cut %s", result(recv(fd, buffer, 4, 0)));
    say("the rest is gone %s", result(recv(fd, buffer, 4, MSG_DONTWAIT)));
    sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&to, sizeof to);
    wait_for(fd, POLLIN);
    say("whole length %s", result(recv(fd, buffer, 4, MSG_TRUNC)));
    sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&to, sizeof to);
    wait_for(fd, POLLIN);
    struct iovec part = {buffer, 4};
    char name[100];
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = name, .msg_namelen = sizeof name};
    say("recvmsg %s", result(recvmsg(fd, &message, 0)));
    say("flags cut %d name %d", message.msg_flags == MSG_TRUNC, message.msg_namelen);
    say("empty %s", result(sendto(fd, "", 0, 0, (struct sockaddr *)&to, sizeof to)));
    say("empty polls %s", pollbits(wait_for(fd, POLLIN)));
    say("empty recv %s", result(recv(fd, buffer, 10, 0)));
    static char large[70000];
    say("too large %s", result(sendto(fd, large, sizeof large, 0, (struct sockaddr *)&to, sizeof to)));
    say("large %s", result(sendto(fd, large, 60000, 0, (struct sockaddr *)&to, sizeof to)));
    say("large back %s", result(recv(fd, large, sizeof large, 0)));
    set_timeout(fd, SO_RCVTIMEO, 30);
    say("timeout %s", result(recv(fd, buffer, 10, 0)));
    close(fd);
}

/* The first datagram gives a socket its port. */
static void first(struct sockaddr_in to) {
    struct sockaddr_in own = {0};
    socklen_t length = sizeof own;
    int fd = udp_socket();
    say("first sendto %s", result(sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof to)));
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("has a port at once %d", own.sin_port != 0);
    in_port_t port = own.sin_port;
    say("connect %s", result(connect(fd, (struct sockaddr *)&to, sizeof to)));
    length = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &length);
    say("keeps it %d", own.sin_port == port);
    close(fd);
}

static void connected(struct sockaddr_in to) {
    char buffer[100];
    int fd = udp_socket();
    say("connect %s", result(connect(fd, (struct sockaddr *)&to, sizeof to)));
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    say("getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("own address %d", name.sin_addr.s_addr == own_address.s_addr);
    say("write %s", result(write(fd, "abc", 3)));
    say("read %s", result(read(fd, buffer, 10)));
    say("send %s", result(send(fd, "abcd", 4, 0)));
    say("recv %s", result(recv(fd, buffer, 10, 0)));
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
    say("writev %s", result(writev(fd, parts, 2)));
    struct iovec into[2] = {{buffer, 1}, {buffer + 10, 10}};
    say("readv %s", result(readv(fd, into, 2)));
    struct mmsghdr out[3] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}},
                             {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    say("sendmmsg %s", result(sendmmsg(fd, out, 3, 0)));
    say("lengths %u %u %u", out[0].msg_len, out[1].msg_len, out[2].msg_len);
    char rooms[3][20];
    struct iovec places[3] = {{rooms[0], 20}, {rooms[1], 20}, {rooms[2], 20}};
    struct mmsghdr in[3] = {{.msg_hdr = {.msg_iov = places, .msg_iovlen = 1}},
                            {.msg_hdr = {.msg_iov = places + 1, .msg_iovlen = 1}},
                            {.msg_hdr = {.msg_iov = places + 2, .msg_iovlen = 1}}};
    say("recvmmsg %s", result(recvmmsg(fd, in, 3, 0, NULL)));
    say("lengths %u %u %u", in[0].msg_len, in[1].msg_len, in[2].msg_len);
    say("recvmmsg none %s", result(recvmmsg(fd, in, 3, MSG_DONTWAIT, NULL)));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("disconnect %s", result(connect(fd, &none, sizeof none)));
    length = sizeof name;
    say("getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    close(fd);
}

static void refused(void) {
    char buffer[10];
    struct sockaddr_in nobody = address_of(peer_address.sin_addr, 2);
    int fd = udp_socket();
    connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
    say("to nobody %s", result(send(fd, "x", 1, 0)));
    say("polls %s", pollbits(wait_for(fd, POLLIN)));
    say("recv %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("recv again %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    close(fd);
}

static void bound(struct sockaddr_in to) {
    char buffer[10];
    struct in_addr any = {htonl(INADDR_ANY)}, loop = {htonl(INADDR_LOOPBACK)};
    int fd = udp_socket(), near = udp_socket();
    struct sockaddr_in name = address_of(any, 0);
    say("bind %s", result(bind(fd, (struct sockaddr *)&name, sizeof name)));
    socklen_t length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("port %d", name.sin_port != 0);
    name.sin_addr = loop;
    say("from near %s", result(sendto(near, "near", 4, 0, (struct sockaddr *)&name, sizeof name)));
    say("polls %s", pollbits(wait_for(fd, POLLIN)));
    struct sockaddr_in from;
    length = sizeof from;
    say("recvfrom near %s", result(recvfrom(fd, buffer, 10, 0, (struct sockaddr *)&from, &length)));
    say("is near %d", from.sin_addr.s_addr == loop.s_addr);
    say("back %s", result(sendto(fd, "back", 4, 0, (struct sockaddr *)&from, length)));
    say("back %s", result(recv(near, buffer, 10, 0)));
    say("to far %s", result(sendto(fd, "far", 3, 0, (struct sockaddr *)&to, sizeof to)));
    length = sizeof from;
    say("from far %s", result(recvfrom(fd, buffer, 10, 0, (struct sockaddr *)&from, &length)));
    say("is far %d", from.sin_addr.s_addr == to.sin_addr.s_addr);
    close(fd);
    close(near);
}

void datagram_cases(void) {
    int call = call_peer("datagrams");
    struct sockaddr_in to = address_of(peer_address.sin_addr, peer_port(call));
    addressed(to);
    first(to);
    connected(to);
    bound(to);
    refused();
    close(call);
}
