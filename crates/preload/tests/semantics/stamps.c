/* Times of what was received and sent (SO_TIMESTAMPING). */
#include "common.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#define RX (SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE)
/* The name is younger than some systems' headers. */
#define BY_WRITTEN (1 << 16)
#define TX (SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY)
#define ALL (TX | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_OPT_ID)

static const char *set(int fd, int flags) {
    return result(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags));
}

static int flags_of(int fd) {
    int flags = -1;
    socklen_t length = sizeof flags;
    return getsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, &length) < 0 ? -errno : flags;
}

/* Whether a time is one of the last ten seconds. */
static const char *recent(struct timespec time) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (now.tv_sec - time.tv_sec) + (now.tv_nsec - time.tv_nsec) / 1e9;
    return time.tv_sec == 0 && time.tv_nsec == 0 ? "none" : age > -0.1 && age < 10 ? "recent" : "wrong";
}

static long tell(const char *what, int fd, int flags) {
    char buffer[2000], control[300] = {0};
    struct sockaddr_in name;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof name,
                             .msg_control = control, .msg_controllen = sizeof control};
    long count = recvmsg(fd, &message, MSG_DONTWAIT | flags);
    say("%s: %s flags %x name %d", what, result(count), count < 0 ? 0 : message.msg_flags,
        count < 0 ? 0 : message.msg_namelen);
    if (count < 0)
        return count;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_TIMESTAMPING) {
            struct scm_timestamping times;
            memcpy(&times, CMSG_DATA(one), sizeof times);
            say("%s: times length %d %s %s %s", what, (int)one->cmsg_len, recent(times.ts[0]), recent(times.ts[1]),
                recent(times.ts[2]));
        } else if (one->cmsg_level == SOL_IP && one->cmsg_type == IP_RECVERR) {
            struct sock_extended_err error;
            memcpy(&error, CMSG_DATA(one), sizeof error);
            say("%s: %s origin %d type %d code %d info %u data %u", what, errname(error.ee_errno), error.ee_origin,
                error.ee_type, error.ee_code, error.ee_info, error.ee_data);
        } else
            say("%s: cmsg %d %d length %d", what, one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
    }
    return count;
}

/* Waits for so many entries and takes them. */
static void drain(const char *what, int fd, int count) {
    for (int i = 0; i < count; i++) {
        for (int tries = 0; tries < 2000 && !(wait_for(fd, POLLOUT) & POLLERR); tries++)
            pause_ms(1);
        tell(what, fd, MSG_ERRQUEUE);
    }
    tell(what, fd, MSG_ERRQUEUE);
}

static void send_with(int fd, const char *text, uint32_t flags) {
    char control[CMSG_SPACE(sizeof flags)] = {0};
    struct iovec part = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *one = CMSG_FIRSTHDR(&message);
    *one = (struct cmsghdr){CMSG_LEN(sizeof flags), SOL_SOCKET, SO_TIMESTAMPING};
    memcpy(CMSG_DATA(one), &flags, sizeof flags);
    say("send with %x %s", flags, result(sendmsg(fd, &message, 0)));
}

static void flags(int fd, const char *what) {
    static const int all[] = {0, RX, TX, ALL, 1 << 17, 1 << 19, 1 << 25, -1, SOF_TIMESTAMPING_OPT_STATS,
                              SOF_TIMESTAMPING_OPT_STATS | SOF_TIMESTAMPING_OPT_TSONLY,
                              SOF_TIMESTAMPING_TX_HARDWARE, SOF_TIMESTAMPING_OPT_ID,
                              SOF_TIMESTAMPING_OPT_ID | BY_WRITTEN, BY_WRITTEN};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *outcome = set(fd, all[i]);
        say("%s %x: %s, %x", what, all[i], outcome, flags_of(fd));
    }
    char byte = 1;
    say("short %s", result(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &byte, 1)));
    say("off %s", set(fd, 0));
}

static void datagrams(void) {
    int call = call_peer("datagrams");
    struct sockaddr_in to = address_of(peer_address.sin_addr, port_of(call));
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    connect(fd, (struct sockaddr *)&to, sizeof to);
    flags(fd, "datagrams");
    say("RX %s", set(fd, RX));
    send(fd, "hello", 5, 0);
    wait_for(fd, POLLIN);
    tell("received", fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    send(fd, "hello", 5, 0);
    wait_for(fd, POLLIN);
    tell("both", fd, 0);
    on = 0;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    say("RX without telling %s", set(fd, SOF_TIMESTAMPING_RX_SOFTWARE));
    send(fd, "hello", 5, 0);
    wait_for(fd, POLLIN);
    tell("received", fd, 0);
    say("TX %s", set(fd, TX));
    send(fd, "hello", 5, 0);
    drain("sent", fd, 1);
    say("ALL %s", set(fd, ALL));
    for (int i = 0; i < 3; i++) {
        send(fd, "hello", 5, 0);
        drain("all", fd, 2);
    }
    say("the key goes on %s", set(fd, ALL | RX));
    send(fd, "hello", 5, 0);
    drain("all", fd, 2);
    say("only by message %s", set(fd, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY));
    send(fd, "hello", 5, 0);
    drain("none", fd, 0);
    send_with(fd, "hello", SOF_TIMESTAMPING_TX_SOFTWARE);
    drain("by message", fd, 1);
    send_with(fd, "hello", SOF_TIMESTAMPING_TX_SCHED);
    drain("by message", fd, 1);
    send_with(fd, "hello", SOF_TIMESTAMPING_SOFTWARE);
    say("no telling %s", set(fd, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY | SOF_TIMESTAMPING_OPT_ID));
    send(fd, "hello", 5, 0);
    drain("without a time", fd, 1);
    say("off %s", set(fd, 0));
    send(fd, "hello", 5, 0);
    drain("off", fd, 0);
    close(fd);
    close(call);
}

static void streams(void) {
    int fd = tcp_socket();
    flags(fd, "fresh stream");
    close(fd);
    fd = call_peer("echo");
    char buffer[100];
    flags(fd, "stream");
    say("RX %s", set(fd, RX));
    send(fd, "hello", 5, 0);
    wait_for(fd, POLLIN);
    tell("received", fd, 0);
    say("ALL %s", set(fd, ALL));
    for (int i = 0; i < 3; i++) {
        send(fd, "hello", 5, 0);
        read_all(fd, buffer, 5);
        drain("all", fd, 3);
    }
    say("again %s", set(fd, 0));
    say("by OPT_ID_TCP %s", set(fd, ALL | BY_WRITTEN));
    send(fd, "hello, world", 12, 0);
    read_all(fd, buffer, 12);
    drain("all", fd, 3);
    say("only acknowledged %s", set(fd, SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY));
    send(fd, "hello", 5, 0);
    read_all(fd, buffer, 5);
    drain("acknowledged", fd, 1);
    say("only by message %s", set(fd, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY));
    send_with(fd, "hello", SOF_TIMESTAMPING_TX_SOFTWARE);
    read_all(fd, buffer, 5);
    drain("by message", fd, 1);
    send_with(fd, "hello", 1 << 30);
    close(fd);
}

/* The kernel takes times while some socket wants them, and begins a little after one has said so: a socket that has got one. */
static int begin_stamping(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), stamped = 0;
    struct sockaddr_in own = address_of((struct in_addr){htonl(INADDR_LOOPBACK)}, 0);
    socklen_t length = sizeof own;
    bind(fd, (struct sockaddr *)&own, length);
    getsockname(fd, (struct sockaddr *)&own, &length);
    connect(fd, (struct sockaddr *)&own, length);
    set(fd, RX);
    for (int tries = 0; tries < 1000 && !stamped; tries++) {
        char byte, control[300];
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        send(fd, "x", 1, 0);
        stamped = recvmsg(fd, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message);
        pause_ms(1);
    }
    say("the kernel takes times %d", stamped);
    return fd;
}

void stamps_cases(void) {
    int stamped = begin_stamping();
    datagrams();
    streams();
    close(stamped);
}
