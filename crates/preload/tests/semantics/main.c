/* Exercises the socket interface against a peer and prints what it saw, one line a result. The same program runs on
 * the kernel's sockets and on the stack's: the lines must be the same. */
#include "common.h"

struct sockaddr_in peer_address;
struct in_addr own_address;
volatile sig_atomic_t sigpipes;

static const char *section = "";

static void count_sigpipe(int signal) {
    (void)signal;
    sigpipes++;
}

static void run(const char *name, void (*cases)(void), const char *only) {
    if (only && strcmp(only, name) != 0)
        return;
    section = name;
    cases();
}

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", section);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

int main(int count, char **arguments) {
    if (count >= 3 && strcmp(arguments[1], "peer") == 0)
        return run_peer(arguments[2]);
    if (count < 3) {
        fprintf(stderr, "usage: %s PEER-ADDRESS OWN-ADDRESS [SECTION] | peer ADDRESS\n", arguments[0]);
        return 2;
    }
    inet_aton(arguments[2], &own_address);
    struct in_addr peer;
    inet_aton(arguments[1], &peer);
    peer_address = address_of(peer, PEER_PORT);
    struct sigaction action = {.sa_handler = count_sigpipe, .sa_flags = SA_RESTART};
    sigaction(SIGPIPE, &action, NULL);
    const char *only = count > 3 ? arguments[3] : NULL;
    run("stream", stream_cases, only);
    run("ready", ready_cases, only);
    run("epoll", epoll_cases, only);
    run("server", server_cases, only);
    run("datagram", datagram_cases, only);
    run("process", process_cases, only);
    run("family", family_cases, only);
    run("bulk", bulk_cases, only);
    run("calls", calls_cases, only);
    run("urgent", urgent_cases, only);
    run("pairs", pairs_cases, only);
    run("messages", messages_cases, only);
    run("choices", choices_cases, only);
    run("matrix", matrix_cases, only);
    run("errors", errors_cases, only);
    run("segments", segments_cases, only);
    run("stamps", stamps_cases, only);
    run("several", several_cases, only);
    run("peeks", peeks_cases, only);
    run("forks", forks_cases, only);
    if (only) {
        run("exhausted", exhausted_cases, only);
        run("leave-exit", leave_by_exit, only);
        run("leave-_exit", leave_by_underscore_exit, only);
    }
    return 0;
}
