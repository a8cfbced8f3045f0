#include "common.h"

const char *errname(int error) {
    const char *name = strerrorname_np(error);
    return name ? name : "E?";
}

const char *result(long value) {
    static char text[8][64];
    static int next;
    char *place = text[next++ % 8];
    if (value >= 0)
        snprintf(place, sizeof text[0], "%ld", value);
    else
        snprintf(place, sizeof text[0], "%ld %s", value, errname(errno));
    return place;
}

const char *pollbits(int bits) {
    static const struct {
        int bit;
        const char *name;
    } names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"}, {POLLHUP, "HUP"},
                 {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
    static char text[8][64];
    static int next;
    char *place = text[next++ % 8];
    place[0] = 0;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (bits & names[i].bit) {
            if (place[0])
                strcat(place, "|");
            strcat(place, names[i].name);
        }
    return place[0] ? place : "0";
}

int tcp_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) {
        perror("socket");
        exit(1);
    }
    return fd;
}

int call_peer(const char *format, ...) {
    char line[200];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    int fd = tcp_socket();
    if (connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address) != 0) {
        perror("connect to the peer");
        exit(1);
    }
    if (write(fd, line, length) != length) {
        perror("write to the peer");
        exit(1);
    }
    return fd;
}

int call_gated_sink(int *gate) {
    int port = 0;
    int listener = listen_on(own_address, &port);
    int fd = call_peer("gated-sink %d", port);
    *gate = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

void set_nonblocking(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void set_timeout(int fd, int option, int milliseconds) {
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, option, &time, sizeof time);
}

int wait_for(int fd, int events) {
    struct pollfd entry = {fd, events, 0};
    poll(&entry, 1, 10000);
    return entry.revents;
}

long read_all(int fd, char *buffer, long length) {
    long done = 0;
    while (done < length) {
        long count = read(fd, buffer + done, length - done);
        if (count < 0 && errno == EAGAIN) {
            wait_for(fd, POLLIN);
            continue;
        }
        if (count <= 0)
            break;
        done += count;
    }
    return done;
}

long write_all(int fd, const char *buffer, long length) {
    long done = 0;
    while (done < length) {
        long count = write(fd, buffer + done, length - done);
        if (count < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT);
            continue;
        }
        if (count <= 0)
            break;
        done += count;
    }
    return done;
}

static unsigned char pattern_byte(long position) {
    return (unsigned char)(position * 31 + (position >> 8) * 7 + (position >> 16));
}

void fill_pattern(char *buffer, long length, long position) {
    for (long i = 0; i < length; i++)
        buffer[i] = (char)pattern_byte(position + i);
}

int matches_pattern(const char *buffer, long length, long position) {
    for (long i = 0; i < length; i++)
        if ((unsigned char)buffer[i] != pattern_byte(position + i))
            return 0;
    return 1;
}

struct sockaddr_in address_of(struct in_addr ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = ip};
    return address;
}

int udp_bound(struct in_addr ip, struct sockaddr_in *name) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    *name = address_of(ip, 0);
    socklen_t length = sizeof *name;
    bind(fd, (struct sockaddr *)name, length);
    getsockname(fd, (struct sockaddr *)name, &length);
    return fd;
}

int port_of(int call) {
    char text[20] = "";
    for (int i = 0; i < 19 && read(call, text + i, 1) == 1 && text[i] != '\n'; i++) {
    }
    return atoi(text);
}

int listen_on(struct in_addr ip, int *port) {
    int fd = tcp_socket();
    struct sockaddr_in address = address_of(ip, *port);
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 16) != 0) {
        perror("bind or listen");
        exit(1);
    }
    socklen_t length = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &length);
    *port = ntohs(address.sin_port);
    return fd;
}

void pause_ms(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0) {
    }
}

static volatile sig_atomic_t rings;

static void on_ring(int signal) {
    (void)signal;
    rings++;
}

void ring(int flags) {
    struct sigaction action = {.sa_handler = on_ring, .sa_flags = flags};
    rings = 0;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval time = {{0, 50000}, {0, 50000}};
    setitimer(ITIMER_REAL, &time, NULL);
}

int ring_off(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigaction(SIGALRM, &action, NULL);
    return rings > 0;
}
