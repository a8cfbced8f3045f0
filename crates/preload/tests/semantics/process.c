/* fork, exec and exit beside open connections. */
#include "common.h"
#include <spawn.h>

extern char **environ;

static int exchange(int fd) {
    char buffer[4];
    return write(fd, "ping", 4) == 4 && recv(fd, buffer, 4, MSG_WAITALL) == 4;
}

static void children(void) {
    int fd = call_peer("echo");
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        _exit(7);
    }
    waitpid(child, &status, 0);
    say("child that closed it %d, parent goes on %d", WEXITSTATUS(status), exchange(fd));
    child = fork();
    if (child == 0)
        exit(8);
    waitpid(child, &status, 0);
    say("child that just ended %d, parent goes on %d", WEXITSTATUS(status), exchange(fd));
    say("system %d, parent goes on %d", WEXITSTATUS(system("exit 9")), exchange(fd));
    child = vfork();
    if (child == 0) {
        close(fd);
        dup2(1, fd);
        execl("/bin/sh", "sh", "-c", "exit 10", (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say("vfork and exec %d, parent goes on %d", WEXITSTATUS(status), exchange(fd));
    child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        execl("/bin/sh", "sh", "-c", "exit 11", (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say("close_range in a vfork child %d, parent goes on %d", WEXITSTATUS(status), exchange(fd));
    char *arguments[] = {"sh", "-c", "exit 12", NULL};
    posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ);
    waitpid(child, &status, 0);
    say("posix_spawn %d, parent goes on %d", WEXITSTATUS(status), exchange(fd));
    close(fd);
}

/* A child that opens a connection of its own and leaves in the way given, with bytes just written. */
static void leaving(int how, const char *name) {
    int tell[2];
    pipe(tell);
    pid_t child = fork();
    if (child == 0) {
        int port = 0;
        int listener = listen_on(own_address, &port);
        int call = call_peer("call-hold %d", port);
        (void)call;
        int fd = accept(listener, NULL, NULL);
        write(fd, "x", 1);
        int done = exchange(call_peer("echo"));
        write(tell[1], &done, sizeof done);
        if (how == 0)
            exit(3);
        if (how == 1)
            _exit(4);
        raise(SIGKILL);
    }
    int status = -1, done = -1;
    close(tell[1]);
    read(tell[0], &done, sizeof done);
    close(tell[0]);
    waitpid(child, &status, 0);
    say("%s: exchanged %d, ended by %s %d", name, done, WIFEXITED(status) ? "status" : "signal",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

/* Leaves at once after queueing more than a buffer's worth; the peer prints what it got. */
static void queue(void) {
    static char buffer[700000];
    int fd = call_peer("tell");
    fill_pattern(buffer, sizeof buffer, 0);
    say("queued %ld", write_all(fd, buffer, sizeof buffer));
}

void leave_by_exit(void) {
    queue();
    exit(0);
}

void leave_by_underscore_exit(void) {
    queue();
    _exit(0);
}

void process_cases(void) { children(); }

void family_cases(void) {
    leaving(0, "exit in a child");
    leaving(1, "_exit in a child");
    leaving(2, "killed child");
}
