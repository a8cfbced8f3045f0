/* Several messages a call, with an error among them, and sockets that share a port. */
#include "common.h"

static const char *error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error ? errname(error) : "none";
}

static void many(void) {
    struct sockaddr_in name, other, bad;
    int to = udp_bound(own_address, &name), from = udp_bound(own_address, &other), connected = udp_bound(own_address, &bad);
    char text[8] = "abcdefg", rooms[6][20];
    struct iovec parts[6];
    struct mmsghdr messages[6] = {0};
    for (int i = 0; i < 6; i++) {
        parts[i] = (struct iovec){text, i + 1};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof name};
    }
    bad = name;
    bad.sin_port = 0;
    messages[3].msg_hdr.msg_name = &bad;
    say("bad in the middle %s", result(sendmmsg(from, messages, 6, 0)));
    say("lengths %u %u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len, messages[3].msg_len);
    say("the error is not kept %s", error_of(from));
    messages[0].msg_hdr.msg_name = &bad;
    say("bad at first %s", result(sendmmsg(from, messages, 6, 0)));
    say("none %s", result(sendmmsg(from, messages, 0, 0)));
    for (int i = 0; i < 6; i++) {
        parts[i] = (struct iovec){rooms[i], sizeof rooms[i]};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
        messages[i].msg_len = 99;
    }
    wait_for(to, POLLIN);
    pause_ms(20);
    struct timespec quick = {0, 30000000}, none = {0, 0}, wrong = {0, 1000000000}, negative = {-1, 0};
    say("recvmmsg for one %s", result(recvmmsg(to, messages, 6, MSG_WAITFORONE, NULL)));
    say("lengths %u %u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len, messages[3].msg_len);
    say("nothing %s", result(recvmmsg(to, messages, 6, MSG_DONTWAIT, NULL)));
    say("wrong time %s", result(recvmmsg(to, messages, 6, MSG_DONTWAIT, &wrong)));
    say("negative time %s", result(recvmmsg(to, messages, 6, MSG_DONTWAIT, &negative)));
    sendto(from, "one", 3, 0, (struct sockaddr *)&name, sizeof name);
    sendto(from, "two", 3, 0, (struct sockaddr *)&name, sizeof name);
    wait_for(to, POLLIN);
    pause_ms(20);
    say("no time %s", result(recvmmsg(to, messages, 6, 0, &none)));
    say("time left %ld", (long)none.tv_nsec);
    say("little time %s", result(recvmmsg(to, messages, 1, 0, &quick)));
    say("time left %d", quick.tv_sec == 0 && quick.tv_nsec > 0 && quick.tv_nsec <= 30000000);
    set_timeout(to, SO_RCVTIMEO, 60);
    sendto(from, "one", 3, 0, (struct sockaddr *)&name, sizeof name);
    wait_for(to, POLLIN);
    say("one of two in time %s", result(recvmmsg(to, messages, 2, 0, NULL)));
    /* An error behind a datagram is told by the next call. */
    connect(connected, (struct sockaddr *)&name, sizeof name);
    struct sockaddr_in back;
    socklen_t length = sizeof back;
    getsockname(connected, (struct sockaddr *)&back, &length);
    sendto(to, "reply", 5, 0, (struct sockaddr *)&back, sizeof back);
    wait_for(connected, POLLIN);
    close(to);
    send(connected, "x", 1, 0);
    wait_for(connected, POLLERR);
    pause_ms(20);
    say("polls %s", pollbits(wait_for(connected, POLLIN)));
    say("first %s", result(recvmmsg(connected, messages, 2, MSG_DONTWAIT, NULL)));
    say("then %s", result(recvmmsg(connected, messages, 2, MSG_DONTWAIT, NULL)));
    close(from);
    close(connected);
}

/* Which of several sockets at a port gets what. */
static void shared(void) {
    struct sockaddr_in name;
    int fds[4], on = 1, counts[4] = {0}, total = 0, used = 0;
    char buffer[10];
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        socklen_t length = sizeof name;
        if (i == 0)
            name = address_of(own_address, 0);
        say("bind %s", result(bind(fds[i], (struct sockaddr *)&name, sizeof name)));
        getsockname(fds[i], (struct sockaddr *)&name, &length);
    }
    int plain = socket(AF_INET, SOCK_DGRAM, 0);
    say("without sharing %s", result(bind(plain, (struct sockaddr *)&name, sizeof name)));
    close(plain);
    for (int i = 0; i < 60; i++) {
        struct sockaddr_in own;
        int from = udp_bound(own_address, &own);
        sendto(from, "x", 1, 0, (struct sockaddr *)&name, sizeof name);
        sendto(from, "x", 1, 0, (struct sockaddr *)&name, sizeof name);
        close(from);
    }
    pause_ms(30);
    for (int i = 0; i < 4; i++) {
        while (recv(fds[i], buffer, sizeof buffer, MSG_DONTWAIT) >= 0)
            counts[i]++;
        total += counts[i];
        used += counts[i] > 0;
        say("whole flows %d", counts[i] % 2 == 0);
        close(fds[i]);
    }
    say("all come %d, to all %d", total, used);
}

static void groups(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ip_mreqn join = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"), .imr_address = own_address};
    struct sockaddr_in name = address_of(own_address, 0);
    say("bind %s", result(bind(fd, (struct sockaddr *)&name, sizeof name)));
    join.imr_multiaddr.s_addr = inet_addr("10.1.2.3");
    say("no group %s", result(setsockopt(fd, SOL_IP, IP_ADD_MEMBERSHIP, &join, sizeof join)));
    say("short %s", result(setsockopt(fd, SOL_IP, IP_ADD_MEMBERSHIP, &join, 4)));
    close(fd);
}

void several_cases(void) {
    many();
    shared();
    groups();
}
