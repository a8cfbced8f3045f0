/* The other end: one process a connection; the first line says what to do. */
#include "common.h"
#include <netinet/ip_icmp.h>

static void reset(int fd) {
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

static void echo(int fd) {
    char buffer[65536];
    long count;
    while ((count = read(fd, buffer, sizeof buffer)) > 0)
        write_all(fd, buffer, count);
    close(fd);
}

/* Reads to the end, then says how much it was and whether it was the pattern ("reset" if it did not end well): to the
 * caller, or (`tell`) on standard output. */
static void sink(int fd, int tell) {
    static char buffer[1 << 18];
    long done = 0, count;
    int good = 1;
    while ((count = read(fd, buffer, sizeof buffer)) > 0) {
        good &= matches_pattern(buffer, count, done);
        done += count;
    }
    char text[100];
    int length = snprintf(text, sizeof text, "%s%ld %s\n", count < 0 ? "reset " : "", done, good ? "good" : "bad");
    write_all(tell ? STDOUT_FILENO : fd, text, length);
    close(fd);
}

static void source(int fd, long length) {
    static char buffer[1 << 18];
    for (long done = 0; done < length;) {
        long piece = length - done < (long)sizeof buffer ? length - done : (long)sizeof buffer;
        fill_pattern(buffer, piece, done);
        if (write_all(fd, buffer, piece) != piece)
            break;
        done += piece;
    }
    close(fd);
}

/* Each line is a text to send, plain (d) or urgent (u). Behind each, a byte goes by another connection back to the caller. */
static void send_urgent(int fd, struct sockaddr_in caller) {
    FILE *lines = fdopen(fd, "r");
    char line[200];
    int on = 1, tells = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(tells, SOL_TCP, TCP_NODELAY, &on, sizeof on);
    connect(tells, (struct sockaddr *)&caller, sizeof caller);
    while (fgets(line, sizeof line, lines)) {
        send(fd, line + 2, strlen(line) - 3, line[0] == 'u' ? MSG_OOB : 0);
        pause_ms(5); /* each is a segment of its own */
        write(tells, "t", 1);
    }
    close(tells);
    fclose(lines);
}

/* Reads to the end and tells what it got: texts as they were read, urgent bytes in brackets, marks as bars. */
static void read_urgent(int fd) {
    char text[400] = "", *end = text, buffer[100];
    for (;;) {
        struct pollfd entry = {fd, POLLIN | POLLPRI, 0};
        poll(&entry, 1, -1);
        pause_ms(50);
        if (entry.revents & POLLPRI && recv(fd, buffer, 1, MSG_OOB) == 1)
            end += sprintf(end, "[%c]", buffer[0]);
        if (sockatmark(fd) == 1)
            end += sprintf(end, "|");
        long count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (count == 0)
            break;
        if (count > 0)
            end += sprintf(end, "%.*s ", (int)count, buffer);
    }
    write_all(fd, text, strlen(text));
    close(fd);
}

static uint16_t checksum(const unsigned char *bytes, int length) {
    uint32_t sum = 0;
    for (int i = 0; i < length; i++)
        sum += i % 2 ? bytes[i] : bytes[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons(~sum);
}

/* Answers datagrams to a port of its own, which it tells, with an ICMP error: type and code in the upper bytes of the number,
 * the second half of the message's second word in the lower. A byte tells that one was sent. */
static void complain(int fd, long number) {
    int udp = socket(AF_INET, SOCK_DGRAM, 0), raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    struct sockaddr_in own, from;
    socklen_t size = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &size);
    own.sin_port = 0;
    bind(udp, (struct sockaddr *)&own, sizeof own);
    getsockname(udp, (struct sockaddr *)&own, &size);
    dprintf(fd, "%d\n", ntohs(own.sin_port));
    for (;;) {
        unsigned char message[600] = {number >> 24, number >> 16, 0, 0, 0, 0, number >> 8, number};
        struct pollfd entries[2] = {{fd, POLLIN, 0}, {udp, POLLIN, 0}};
        poll(entries, 2, -1);
        if (!entries[1].revents)
            break;
        size = sizeof from;
        long count = recvfrom(udp, message + 36, 500, 0, (struct sockaddr *)&from, &size);
        if (count < 0)
            continue;
        if (message[0] == ICMP_PARAMETERPROB) {
            message[4] = number >> 8;
            message[6] = message[7] = 0;
        }
        unsigned char *ip = message + 8, *header = message + 28;
        int whole = 28 + count;
        unsigned char fields[20] = {0x45, 0, whole >> 8, whole, 0, 0, 0x40, 0, 64, IPPROTO_UDP};
        memcpy(ip, fields, sizeof fields);
        memcpy(ip + 12, &from.sin_addr, 4);
        memcpy(ip + 16, &own.sin_addr, 4);
        uint16_t sum = checksum(ip, 20);
        memcpy(ip + 10, &sum, 2);
        memcpy(header, &from.sin_port, 2);
        memcpy(header + 2, &own.sin_port, 2);
        header[4] = (8 + count) >> 8;
        header[5] = 8 + count;
        sum = checksum(message, 36 + count);
        memcpy(message + 2, &sum, 2);
        from.sin_port = 0;
        sendto(raw, message, 36 + count, 0, (struct sockaddr *)&from, sizeof from);
        write_all(fd, "t", 1);
    }
    close(raw);
    close(udp);
    close(fd);
}

static void serve(int fd, struct sockaddr_in from) {
    char line[200], what[100] = "";
    long number = 0;
    size_t length = 0;
    while (length < sizeof line - 1 && read(fd, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = 0;
    sscanf(line, "%99s %ld", what, &number);
    if (strcmp(what, "echo") == 0)
        echo(fd);
    else if (strcmp(what, "sink") == 0)
        sink(fd, 0);
    else if (strcmp(what, "tell") == 0)
        sink(fd, 1);
    else if (strcmp(what, "source") == 0)
        source(fd, number);
    else if (strcmp(what, "icmp") == 0)
        complain(fd, number);
    else if (strcmp(what, "close") == 0)
        close(fd);
    else if (strcmp(what, "reset") == 0)
        reset(fd);
    else if (strcmp(what, "urgent-sender") == 0) {
        from.sin_port = htons(number);
        send_urgent(fd, from);
    } else if (strcmp(what, "urgent-reader") == 0)
        read_urgent(fd);
    else if (strcmp(what, "reset-on-byte") == 0) {
        char byte;
        read_all(fd, &byte, 1);
        reset(fd);
    } else if (strcmp(what, "gated-sink") == 0) {
        /* reads nothing until a byte, or the end, comes on a connection back to a port of the caller's */
        char byte;
        from.sin_port = htons(number);
        int gate = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(gate, (struct sockaddr *)&from, sizeof from) == 0)
            read_all(gate, &byte, 1);
        close(gate);
        sink(fd, 0);
    } else if (strcmp(what, "hello-after") == 0) {
        pause_ms((int)number);
        write_all(fd, "hello", 5);
        echo(fd);
    } else if (strcmp(what, "pong") == 0) {
        /* for each byte a message of that many bytes */
        unsigned char size;
        char buffer[256];
        memset(buffer, 'x', sizeof buffer);
        while (read(fd, &size, 1) == 1)
            write_all(fd, buffer, size);
        close(fd);
    } else if (strncmp(what, "call", 4) == 0) {
        /* connect back to a port of the caller's, and do as the word says */
        from.sin_port = htons(number);
        int other = socket(AF_INET, SOCK_STREAM, 0);
        int failed = connect(other, (struct sockaddr *)&from, sizeof from);
        const char *text = failed ? errname(errno) : "connected";
        if (!failed && strcmp(what, "call-hello") == 0)
            write_all(other, "hello", 5);
        if (!failed && strcmp(what, "call-urgent") == 0) {
            send(other, "abc", 3, MSG_OOB);
            pause_ms(200);
        }
        if (!failed && strcmp(what, "call-echo") == 0) {
            dprintf(fd, "%s\n", text);
            echo(other);
            return;
        }
        if (!failed && strcmp(what, "call-observe") == 0) {
            char byte;
            long count = read(other, &byte, 1);
            dprintf(fd, "%s\n", count < 0 ? errname(errno) : count == 0 ? "end" : "byte");
        } else
            dprintf(fd, "%s\n", text);
        if (strcmp(what, "call-hold") == 0) {
            char byte;
            read_all(other, &byte, 1);
        }
        close(other);
        close(fd);
    } else if (strcmp(what, "datagrams") == 0) {
        /* echoes datagrams on a port of its own, which it tells, until the connection ends */
        int udp = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in own = {.sin_family = AF_INET};
        bind(udp, (struct sockaddr *)&own, sizeof own);
        socklen_t size = sizeof own;
        getsockname(udp, (struct sockaddr *)&own, &size);
        dprintf(fd, "%d\n", ntohs(own.sin_port));
        static char buffer[65536];
        for (;;) {
            struct pollfd entries[2] = {{fd, POLLIN, 0}, {udp, POLLIN, 0}};
            poll(entries, 2, -1);
            if (entries[1].revents) {
                size = sizeof from;
                long count = recvfrom(udp, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &size);
                if (count >= 0)
                    sendto(udp, buffer, count, 0, (struct sockaddr *)&from, size);
            } else if (entries[0].revents)
                break;
        }
        close(udp);
        close(fd);
    }
}

int run_peer(const char *text) {
    struct in_addr ip;
    inet_aton(text, &ip);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int port = PEER_PORT;
    int listener = listen_on(ip, &port);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        int fd = accept(listener, (struct sockaddr *)&from, &length);
        if (fd < 0)
            continue;
        if (fork() == 0) {
            close(listener);
            serve(fd, from);
            _exit(0);
        }
        close(fd);
    }
}
