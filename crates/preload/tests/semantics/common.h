/* What the cases share: printing results that are the same on every machine, and the peer. */
#ifndef COMMON_H
#define COMMON_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PEER_PORT 7000

extern struct sockaddr_in peer_address; /* the peer's command port */
extern struct in_addr own_address;      /* this end's address towards the peer */
extern volatile sig_atomic_t sigpipes;

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *errname(int error);
/* "12" or "-1 EAGAIN" */
const char *result(long value);
/* "POLLIN|POLLOUT" */
const char *pollbits(int bits);
/* A socket connected to the peer, which was sent a command. */
int call_peer(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One to a peer that reads nothing until the gate, another connection to it, brings a byte or its end. */
int call_gated_sink(int *gate);
int tcp_socket(void);
void set_nonblocking(int fd, int on);
void set_timeout(int fd, int option, int milliseconds);
int wait_for(int fd, int events); /* poll for up to 10 s; revents */
long read_all(int fd, char *buffer, long length);
long write_all(int fd, const char *buffer, long length);
/* Bytes of the pattern that the peer sends and expects, from a position in the stream. */
void fill_pattern(char *buffer, long length, long position);
int matches_pattern(const char *buffer, long length, long position);
int listen_on(struct in_addr address, int *port);
struct sockaddr_in address_of(struct in_addr ip, int port);
/* A datagram socket at a free port; `name` is told its address. */
int udp_bound(struct in_addr ip, struct sockaddr_in *name);
/* The port that the peer answers with, on a line. */
int port_of(int call);
void pause_ms(int milliseconds);
/* SIGALRM every 50 ms, with these flags, to interrupt one call: however late that begins, another ring comes. */
void ring(int flags);
/* No more of them; whether any came. */
int ring_off(void);
int run_peer(const char *address);

void stream_cases(void);
void ready_cases(void);
void epoll_cases(void);
void server_cases(void);
void datagram_cases(void);
void process_cases(void);
void family_cases(void);
void leave_by_exit(void);
void leave_by_underscore_exit(void);
void bulk_cases(void);
void calls_cases(void);
void urgent_cases(void);
void pairs_cases(void);
void messages_cases(void);
void exhausted_cases(void);
void choices_cases(void);
void matrix_cases(void);
void errors_cases(void);
void segments_cases(void);
void stamps_cases(void);
void several_cases(void);
void peeks_cases(void);
void forks_cases(void);
#endif
