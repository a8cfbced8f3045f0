/* Socket options in every state: values, ranges and lengths, as they are got and set. */
#include "common.h"

#define AS(address) (struct sockaddr *)&address, sizeof address

struct choice {
    const char *name;
    int level, option;
};

#define OF(level, option) {#option, level, option}

static const struct choice of_all[] = {
    OF(SOL_SOCKET, SO_TYPE), OF(SOL_SOCKET, SO_DOMAIN), OF(SOL_SOCKET, SO_PROTOCOL), OF(SOL_SOCKET, SO_ACCEPTCONN),
    OF(SOL_SOCKET, SO_ERROR), OF(SOL_SOCKET, SO_REUSEADDR), OF(SOL_SOCKET, SO_REUSEPORT), OF(SOL_SOCKET, SO_KEEPALIVE),
    OF(SOL_SOCKET, SO_BROADCAST), OF(SOL_SOCKET, SO_DONTROUTE), OF(SOL_SOCKET, SO_OOBINLINE),
    OF(SOL_SOCKET, SO_PRIORITY), OF(SOL_SOCKET, SO_RCVLOWAT), OF(SOL_SOCKET, SO_SNDLOWAT),
    OF(SOL_SOCKET, SO_TIMESTAMP), OF(SOL_SOCKET, SO_TIMESTAMPNS), OF(SOL_SOCKET, SO_MARK),
    OF(SOL_SOCKET, SO_NO_CHECK), OF(SOL_SOCKET, SO_PEEK_OFF), OF(SOL_SOCKET, SO_RXQ_OVFL),
    OF(SOL_SOCKET, SO_SELECT_ERR_QUEUE), OF(SOL_SOCKET, SO_LOCK_FILTER), OF(SOL_SOCKET, SO_PASSCRED),
    OF(SOL_SOCKET, SO_SNDBUF), OF(SOL_SOCKET, SO_RCVBUF), OF(SOL_SOCKET, SO_MAX_PACING_RATE),
    OF(SOL_SOCKET, SO_DEBUG), OF(SOL_SOCKET, SO_BSDCOMPAT), OF(SOL_SOCKET, SO_BUF_LOCK),
    OF(SOL_SOCKET, SO_BINDTODEVICE), OF(SOL_SOCKET, SO_BINDTOIFINDEX), OF(SOL_SOCKET, SO_INCOMING_NAPI_ID),
    OF(SOL_SOCKET, SO_TIMESTAMPING), OF(SOL_SOCKET, SO_PEERCRED), OF(SOL_SOCKET, SO_PEERNAME),
    OF(SOL_SOCKET, SO_SNDTIMEO), OF(SOL_SOCKET, SO_RCVTIMEO), OF(SOL_SOCKET, SO_LINGER),
    OF(SOL_IP, IP_TTL), OF(SOL_IP, IP_TOS), OF(SOL_IP, IP_MTU), OF(SOL_IP, IP_MTU_DISCOVER),
    OF(SOL_IP, IP_RECVERR), OF(SOL_IP, IP_PKTINFO), OF(SOL_IP, IP_RECVTTL), OF(SOL_IP, IP_RECVTOS),
    OF(SOL_IP, IP_RECVOPTS), OF(SOL_IP, IP_RETOPTS), OF(SOL_IP, IP_RECVORIGDSTADDR), OF(SOL_IP, IP_CHECKSUM),
    OF(SOL_IP, IP_FREEBIND), OF(SOL_IP, IP_TRANSPARENT), OF(SOL_IP, IP_MINTTL), OF(SOL_IP, IP_NODEFRAG),
    OF(SOL_IP, IP_BIND_ADDRESS_NO_PORT), OF(SOL_IP, IP_MULTICAST_TTL), OF(SOL_IP, IP_MULTICAST_LOOP),
    OF(SOL_IP, IP_MULTICAST_ALL), OF(SOL_IP, IP_UNICAST_IF), OF(SOL_IP, IP_OPTIONS), OF(SOL_IP, IP_HDRINCL),
    OF(SOL_IP, IP_ROUTER_ALERT), OF(SOL_IP, IP_PASSSEC), OF(SOL_IP, IP_MULTICAST_IF), OF(SOL_IP, IP_RECVFRAGSIZE),
    OF(SOL_IP, IP_PKTOPTIONS), {"unknown IP", SOL_IP, 1000}, {"unknown", SOL_SOCKET, 1000}, {"no level", 1234, 1},
};

static const struct choice of_streams[] = {
    OF(SOL_TCP, TCP_NODELAY), OF(SOL_TCP, TCP_MAXSEG), OF(SOL_TCP, TCP_CORK), OF(SOL_TCP, TCP_KEEPIDLE),
    OF(SOL_TCP, TCP_KEEPINTVL), OF(SOL_TCP, TCP_KEEPCNT), OF(SOL_TCP, TCP_SYNCNT), OF(SOL_TCP, TCP_LINGER2),
    OF(SOL_TCP, TCP_DEFER_ACCEPT), OF(SOL_TCP, TCP_QUICKACK), OF(SOL_TCP, TCP_USER_TIMEOUT),
    OF(SOL_TCP, TCP_THIN_LINEAR_TIMEOUTS), OF(SOL_TCP, TCP_THIN_DUPACK), OF(SOL_TCP, TCP_FASTOPEN),
    OF(SOL_TCP, TCP_FASTOPEN_CONNECT), OF(SOL_TCP, TCP_INQ), OF(SOL_TCP, TCP_SAVE_SYN), OF(SOL_TCP, TCP_TX_DELAY),
    OF(SOL_TCP, TCP_CONGESTION), OF(SOL_TCP, TCP_WINDOW_CLAMP), OF(SOL_TCP, TCP_NOTSENT_LOWAT), {"unknown TCP", SOL_TCP, 1000},
    {"UDP_CORK", 17, 1},
};

static const struct choice of_datagrams[] = {
    {"UDP_CORK", 17, 1}, {"UDP_ENCAP", 17, 100}, {"UDP_NO_CHECK6_TX", 17, 101}, {"UDP_SEGMENT", 17, 103},
    {"UDP_GRO", 17, 104}, {"unknown UDP", 17, 1000}, {"TCP_NODELAY", SOL_TCP, TCP_NODELAY},
};

static const char *hex(const struct choice *choice, const unsigned char *bytes, int length) {
    static char text[200];
    int at = 0;
    for (int index = 0; index < length && index < 16; index++) {
        /* The port of whoever called is another each time. */
        int is_port = choice->level == SOL_SOCKET && choice->option == SO_PEERNAME && (index == 2 || index == 3);
        at += sprintf(text + at, "%02x", is_port ? 0 : bytes[index]);
    }
    text[at] = 0;
    return text;
}

static void get(const char *state, const struct choice *choice, int fd) {
    static const socklen_t lengths[] = {4, 0, 1, 2, 3, 5, 8, 16, 17, 64};
    for (unsigned index = 0; index < sizeof lengths / sizeof lengths[0]; index++) {
        unsigned char bytes[64];
        memset(bytes, 0x5a, sizeof bytes);
        socklen_t length = lengths[index];
        int status = getsockopt(fd, choice->level, choice->option, bytes, &length);
        say("%s: get %s of %d: %s length %d %s", state, choice->name, lengths[index], result(status), length,
            hex(choice, bytes, status == 0 ? length : 0));
    }
}

static void set(const char *state, const struct choice *choice, int fd) {
    static const int values[] = {1, 0, -1, 2, 3, 63, 127, 128, 255, 256, 1000, 32767, 32768, 65536, 1 << 20, INT32_MAX, INT32_MIN};
    for (unsigned index = 0; index < sizeof values / sizeof values[0]; index++) {
        int value = values[index];
        unsigned char bytes[64];
        socklen_t length = 4;
        const char *status = result(setsockopt(fd, choice->level, choice->option, &value, sizeof value));
        memset(bytes, 0x5a, sizeof bytes);
        int got = getsockopt(fd, choice->level, choice->option, bytes, &length);
        say("%s: set %s to %d: %s, then %d %s", state, choice->name, value, status, length, hex(choice, bytes, got == 0 ? length : 0));
    }
    static const socklen_t lengths[] = {0, 1, 2, 3, 5, 8, 12, 16, 64, -1};
    for (unsigned index = 0; index < sizeof lengths / sizeof lengths[0]; index++) {
        unsigned char bytes[64] = {1};
        const char *status = result(setsockopt(fd, choice->level, choice->option, bytes, lengths[index]));
        socklen_t length = 16;
        memset(bytes, 0x5a, sizeof bytes);
        int got = getsockopt(fd, choice->level, choice->option, bytes, &length);
        say("%s: set %s of length %d: %s, then %d %s", state, choice->name, lengths[index], status, length,
            hex(choice, bytes, got == 0 ? length : 0));
    }
}

/* What is another stack's own: its buffers and windows, its path, its congestion control, how it acknowledges at the moment,
 * and what it does not do. */
static int is_its_own(const struct choice *choice, int fd) {
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int connected = getpeername(fd, (struct sockaddr *)&name, &length) == 0;
    switch (choice->level << 16 | choice->option) {
    case SOL_TCP << 16 | TCP_CONGESTION:
    case SOL_TCP << 16 | TCP_WINDOW_CLAMP:
    case SOL_IP << 16 | IP_TRANSPARENT:
    case 17 << 16 | 103: /* UDP_SEGMENT */
        return 1;
    case SOL_SOCKET << 16 | SO_SNDBUF:
    case SOL_SOCKET << 16 | SO_TIMESTAMPING:
    case SOL_TCP << 16 | TCP_MAXSEG:
    case SOL_TCP << 16 | TCP_QUICKACK:
    case SOL_IP << 16 | IP_MTU:
    case SOL_IP << 16 | IP_MULTICAST_TTL:
        return connected;
    default:
        return 0;
    }
}

/* Each option on a socket of its own. */
static void try(const char *state, const struct choice *choices, int count, int (*make)(void)) {
    for (int index = 0; index < count; index++) {
        int fd = make();
        if (!is_its_own(choices + index, fd)) {
            get(state, choices + index, fd);
            set(state, choices + index, fd);
        }
        struct linger linger = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(fd);
    }
}

#define COUNT(list) (int)(sizeof list / sizeof list[0])

static int bound(int type) {
    int fd = socket(AF_INET, type, 0);
    struct sockaddr_in own = address_of(own_address, 0);
    bind(fd, AS(own));
    return fd;
}

static int bound_stream(void) { return bound(SOCK_STREAM); }

static int bound_datagrams(void) { return bound(SOCK_DGRAM); }

static int listening(void) {
    int fd = bound(SOCK_STREAM);
    listen(fd, 5);
    return fd;
}

static int connected(void) {
    int fd = tcp_socket();
    connect(fd, AS(peer_address));
    return fd;
}

static int accepted(void) {
    int port = 0, listener = listen_on(own_address, &port), caller = tcp_socket();
    struct sockaddr_in to = address_of(own_address, port);
    connect(caller, AS(to));
    int fd = accept(listener, NULL, NULL);
    close(listener);
    shutdown(caller, SHUT_WR);
    close(caller);
    return fd;
}

static int connected_datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, AS(peer_address));
    return fd;
}

void choices_cases(void) {
    try("bound stream", of_all, COUNT(of_all), bound_stream);
    try("bound stream", of_streams, COUNT(of_streams), bound_stream);
    try("listening", of_all, COUNT(of_all), listening);
    try("listening", of_streams, COUNT(of_streams), listening);
    try("connected", of_all, COUNT(of_all), connected);
    try("connected", of_streams, COUNT(of_streams), connected);
    try("accepted", of_all, COUNT(of_all), accepted);
    try("accepted", of_streams, COUNT(of_streams), accepted);
    try("bound datagrams", of_all, COUNT(of_all), bound_datagrams);
    try("bound datagrams", of_datagrams, COUNT(of_datagrams), bound_datagrams);
    try("connected datagrams", of_all, COUNT(of_all), connected_datagrams);
    try("connected datagrams", of_datagrams, COUNT(of_datagrams), connected_datagrams);
}
