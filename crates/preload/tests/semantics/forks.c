/* Connections and listeners that a forked child has from its parent. */
#include "common.h"

/* Ends of connections: our own client beside its server, in one program. */
struct pair {
    int client, server;
};

static struct pair connect_to(int listener, int port) {
    struct sockaddr_in address = address_of(own_address, port);
    struct pair pair = {tcp_socket(), -1};
    connect(pair.client, (struct sockaddr *)&address, sizeof address);
    pair.server = accept(listener, NULL, NULL);
    return pair;
}

static struct pair make_pair(void) {
    int port = 0;
    int listener = listen_on(own_address, &port);
    struct pair pair = connect_to(listener, port);
    close(listener);
    return pair;
}

/* What comes within five seconds, up to `length` bytes, and how that ended. */
static void hear(const char *what, int fd, int length) {
    char text[100] = "";
    set_timeout(fd, SO_RCVTIMEO, 5000);
    long done = 0, count = 1;
    while (done < length && (count = recv(fd, text + done, length - done, 0)) > 0)
        done += count;
    say("%s: \"%.*s\" then %s", what, (int)done, text, count > 0 ? "more" : result(count));
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void tell(int fd, const char *text) { write_all(fd, text, strlen(text)); }

static int echo_once(int fd) {
    char buffer[100];
    long count = read(fd, buffer, sizeof buffer);
    return count > 0 && write(fd, buffer, count) == count;
}

/* One process a connection: the parent closes its side of it at once. */
static void handed_on(void) {
    struct pair pair = make_pair();
    tell(pair.server, "welcome ");
    tell(pair.client, "early ");
    pid_t child = fork();
    if (child == 0) {
        close(pair.client);
        char early[7] = "";
        read_all(pair.server, early, 6);
        tell(pair.server, early);
        _exit(echo_once(pair.server) ? 5 : 6);
    }
    close(pair.server);
    hear("before the child", pair.client, 14);
    tell(pair.client, "ping");
    hear("after it ended", pair.client, 5);
    say("child %d", status_of(child));
    close(pair.client);
}

/* Reading goes on where the other process left off, back and forth. */
static void taking_turns(void) {
    struct pair pair = make_pair();
    int go[2], back[2];
    char byte;
    pipe(go), pipe(back);
    tell(pair.client, "abcdefghi");
    hear("parent", pair.server, 2);
    pid_t child = fork();
    if (child == 0) {
        hear("child", pair.server, 3);
        tell(pair.server, "1");
        write(back[1], "x", 1), read(go[0], &byte, 1);
        hear("child again", pair.server, 2);
        tell(pair.server, "3");
        _exit(0);
    }
    read(back[0], &byte, 1);
    hear("parent again", pair.server, 2);
    tell(pair.server, "2");
    write(go[1], "x", 1);
    say("child %d", status_of(child));
    tell(pair.server, "4");
    hear("client", pair.client, 4);
    tell(pair.client, "j");
    hear("parent at last", pair.server, 1);
    close(pair.server);
    hear("end", pair.client, 1);
    close(pair.client);
    close(go[0]), close(go[1]), close(back[0]), close(back[1]);
}

/* Much is queued and not read when the child goes on with it. */
static void in_the_middle(void) {
    static char buffer[600000];
    fill_pattern(buffer, sizeof buffer, 0);
    int fd = call_peer("sink");
    say("parent %ld", write_all(fd, buffer, 300000));
    pid_t child = fork();
    if (child == 0) {
        long done = write_all(fd, buffer + 300000, 300000);
        shutdown(fd, SHUT_WR);
        _exit(done == 300000 ? 5 : 6);
    }
    hear("peer", fd, 12);
    say("child %d", status_of(child));
    close(fd);

    int gate;
    fd = call_gated_sink(&gate);
    set_nonblocking(fd, 1);
    long queued = 0, count;
    while ((count = write(fd, buffer, 65536)) > 0) {
        queued += count;
        if (queued > 32 << 20)
            break;
    }
    say("peer that does not read %s", result(count));
    child = fork();
    if (child == 0) {
        close(gate);
        set_nonblocking(fd, 0);
        tell(fd, "last");
        _exit(7);
    }
    close(fd);
    pause_ms(50);
    write(gate, "x", 1);
    say("child %d", status_of(child));
    close(gate);
}

/* A connection ends when nobody has it any more. */
static void endings(void) {
    struct pair pair = make_pair();
    int hold[2];
    char byte;
    pipe(hold);
    pid_t child = fork();
    if (child == 0) {
        close(hold[1]), close(pair.client);
        read(hold[0], &byte, 1);
        _exit(0);
    }
    close(hold[0]), close(pair.server);
    say("child that does nothing with it %s", pollbits(poll(&(struct pollfd){pair.client, POLLIN, 0}, 1, 100)));
    close(hold[1]);
    say("child %d", status_of(child));
    hear("it ended", pair.client, 1);
    close(pair.client);

    pair = make_pair();
    child = fork();
    if (child == 0) {
        close(pair.client);
        tell(pair.server, "child");
        raise(SIGKILL);
    }
    close(pair.server);
    hear("killed child", pair.client, 10);
    say("child %d", status_of(child));
    close(pair.client);

    pair = make_pair();
    tell(pair.client, "unread");
    child = fork();
    if (child == 0) {
        close(pair.client);
        recv(pair.server, &byte, 1, 0);
        close(pair.server);
        _exit(0);
    }
    close(pair.server);
    say("child %d", status_of(child));
    hear("unread", pair.client, 1);
    close(pair.client);

    pair = make_pair();
    child = fork();
    if (child == 0) {
        shutdown(pair.server, SHUT_WR);
        _exit(0);
    }
    say("child %d", status_of(child));
    hear("shut by the child", pair.client, 1);
    tell(pair.client, "still");
    hear("parent reads", pair.server, 5);
    say("parent writes %s", result(send(pair.server, "x", 1, MSG_NOSIGNAL)));
    close(pair.server);
    close(pair.client);

    pair = make_pair();
    struct linger linger = {1, 0};
    child = fork();
    if (child == 0) {
        close(pair.client);
        read(hold[0], &byte, 1);
        _exit(0);
    }
    setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(pair.server);
    say("child %d", status_of(child));
    hear("a reset after the last", pair.client, 1);
    close(pair.client);

    pair = make_pair();
    child = fork();
    if (child == 0) {
        close(pair.client);
        wait_for(pair.server, POLLIN);
        say("reset %s", result(read(pair.server, &byte, 1)));
        _exit(0);
    }
    close(pair.server);
    setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(pair.client);
    say("child %d", status_of(child));
}

/* What a child's descriptor is. */
static void properties(void) {
    struct pair pair = make_pair();
    int one = 1, copy = dup(pair.server);
    setsockopt(pair.server, SOL_TCP, TCP_NODELAY, &one, sizeof one);
    set_timeout(pair.server, SO_RCVTIMEO, 50);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in own, peer;
        socklen_t length = sizeof own;
        int value = 0;
        char byte;
        say("own %s", result(getsockname(pair.server, (struct sockaddr *)&own, &length)));
        length = sizeof peer;
        say("peer %s", result(getpeername(pair.server, (struct sockaddr *)&peer, &length)));
        length = sizeof value;
        getsockopt(pair.server, SOL_TCP, TCP_NODELAY, &value, &length);
        say("same host %d, no delay %d", own.sin_addr.s_addr == peer.sin_addr.s_addr, value);
        say("times out %s", result(recv(pair.server, &byte, 1, 0)));
        close(pair.server);
        tell(copy, "copy");
        set_nonblocking(copy, 1);
        say("does not wait %s", result(recv(copy, &byte, 1, 0)));
        pid_t grandchild = fork();
        if (grandchild == 0) {
            tell(copy, "grand");
            _exit(3);
        }
        close(copy);
        _exit(status_of(grandchild));
    }
    close(pair.server), close(copy);
    hear("copies", pair.client, 10);
    say("child %d", status_of(child));
    close(pair.client);
}

/* A child waits in each way for what comes later. */
static void waiting(void) {
    for (int way = 0; way < 4; way++) {
        struct pair pair = make_pair();
        int ready[2];
        char byte;
        pipe(ready);
        pid_t child = fork();
        if (child == 0) {
            close(pair.client);
            int epoll = epoll_create1(0);
            struct epoll_event event = {.events = EPOLLIN};
            if (way == 2)
                epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event);
            write(ready[1], "x", 1);
            fd_set set;
            FD_ZERO(&set);
            FD_SET(pair.server, &set);
            if (way == 1)
                say("poll %s", pollbits(wait_for(pair.server, POLLIN)));
            if (way == 2)
                say("epoll %s", result(epoll_wait(epoll, &event, 1, 5000)));
            if (way == 3)
                say("select %s", result(select(pair.server + 1, &set, NULL, NULL, &(struct timeval){5, 0})));
            _exit(echo_once(pair.server) ? 5 : 6);
        }
        close(pair.server);
        read(ready[0], &byte, 1);
        pause_ms(30);
        tell(pair.client, "late");
        hear("echo", pair.client, 5);
        say("way %d: child %d", way, status_of(child));
        close(pair.client), close(ready[0]), close(ready[1]);
    }
}

/* Children of a server that accept from one listener. */
static void accepting(void) {
    int port = 0, served[4] = {0};
    int listener = listen_on(own_address, &port);
    pid_t children[3];
    int ready[2];
    char byte;
    pipe(ready);
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            write(ready[1], "x", 1);
            int count = 0;
            for (;;) {
                int fd = accept(listener, NULL, NULL);
                if (fd < 0)
                    _exit(99);
                char name[2] = {'0' + i, 0};
                char question = 0;
                read(fd, &question, 1);
                tell(fd, name);
                close(fd);
                if (question == 'q')
                    _exit(count > 0);
                count++;
            }
        }
    }
    for (int i = 0; i < 3; i++)
        read(ready[0], &byte, 1);
    pause_ms(50);
    struct sockaddr_in address = address_of(own_address, port);
    int answers = 0;
    for (int i = 0; i < 30; i++) {
        int fd = tcp_socket();
        connect(fd, (struct sockaddr *)&address, sizeof address);
        tell(fd, "?");
        if (read(fd, &byte, 1) == 1 && byte >= '0' && byte < '3')
            served[byte - '0']++, answers++;
        close(fd);
    }
    say("answers %d", answers);
    /* Each is asked to end; those that remain go on. */
    for (int left = 3; left > 0; left--) {
        int fd = tcp_socket();
        connect(fd, (struct sockaddr *)&address, sizeof address);
        tell(fd, "q");
        set_timeout(fd, SO_RCVTIMEO, 5000);
        int good = read(fd, &byte, 1) == 1;
        close(fd);
        int status;
        say("one ends %d %d", good, waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
    }
    int fd = tcp_socket();
    say("the parent still listens %s", result(connect(fd, (struct sockaddr *)&address, sizeof address)));
    int accepted = accept(listener, NULL, NULL);
    say("and accepts %d", accepted >= 0);
    close(accepted), close(fd), close(listener);
    fd = tcp_socket();
    say("closed %s", result(connect(fd, (struct sockaddr *)&address, sizeof address)));
    close(fd), close(ready[0]), close(ready[1]);
    (void)served;
    (void)children;
}

/* A server that goes into the background after it listens. */
static void daemon_of(int wildcard) {
    int port = 0, go[2];
    char byte;
    pipe(go);
    int listener = listen_on(wildcard ? (struct in_addr){INADDR_ANY} : own_address, &port);
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild)
            _exit(0);
        read(go[0], &byte, 1);
        int fd = accept(listener, NULL, NULL);
        tell(fd, "background");
        _exit(0);
    }
    say("child %d", status_of(child));
    close(listener);
    write(go[1], "x", 1);
    int call = call_peer("call-hello %d", port);
    char text[100];
    long count = read_all(call, text, sizeof text);
    say("peer says %.*s", (int)(count > 0 ? count - 1 : 0), text);
    close(call), close(go[0]), close(go[1]);
}

/* As servers do: many connections, each with a process, while others are open. */
static void many(void) {
    int port = 0, clients[8], good = 0;
    int listener = listen_on(own_address, &port);
    for (int i = 0; i < 8; i++) {
        struct pair pair = connect_to(listener, port);
        clients[i] = pair.client;
        pid_t child = fork();
        if (child == 0) {
            close(listener);
            for (int j = 0; j <= i; j++)
                close(clients[j]);
            while (echo_once(pair.server)) {
            }
            _exit(0);
        }
        close(pair.server);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 8; i++) {
            char buffer[5] = "";
            tell(clients[i], "ping");
            good += read_all(clients[i], buffer, 4) == 4;
        }
    say("exchanges %d", good);
    /* In another order than they came; an end is an end although later children are still there. */
    static const int order[8] = {3, 0, 7, 1, 6, 2, 5, 4};
    int ended = 0;
    for (int i = 0; i < 8; i++) {
        shutdown(clients[order[i]], SHUT_WR);
        hear("one", clients[order[i]], 1);
        close(clients[order[i]]);
        ended += wait(NULL) > 0;
    }
    say("ended %d", ended);
    close(listener);
}

void forks_cases(void) {
    handed_on();
    taking_turns();
    in_the_middle();
    endings();
    properties();
    waiting();
    for (int i = 0; i < 5; i++)
        accepting();
    daemon_of(0);
    daemon_of(1);
    many();
}
