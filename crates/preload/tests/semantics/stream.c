/* One connection: connecting, the flags of recv and send, ends and errors, options, duplicates, sendfile. */
#include "common.h"

static void fresh(void) {
    char byte = 0;
    int fd = tcp_socket();
    struct stat status;
    fstat(fd, &status);
    say("fresh is a socket %d", S_ISSOCK(status.st_mode));
    say("fresh polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("fresh recv %s", result(recv(fd, &byte, 1, 0)));
    say("fresh send %s", result(send(fd, &byte, 1, MSG_NOSIGNAL)));
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    say("fresh getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    say("fresh shutdown %s", result(shutdown(fd, SHUT_RDWR)));
    close(fd);
    say("closed recv %s", result(recv(fd, &byte, 1, 0)));
}

static void connecting(void) {
    int fd = tcp_socket();
    set_nonblocking(fd, 1);
    struct sockaddr *address = (struct sockaddr *)&peer_address;
    say("connect at once %s", result(connect(fd, address, sizeof peer_address)));
    say("connecting polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT)));
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    say("connected error %d length %d", error, length);
    say("connect again %s", result(connect(fd, address, sizeof peer_address)));
    say("connect yet again %s", result(connect(fd, address, sizeof peer_address)));
    struct sockaddr_in name;
    length = sizeof name;
    say("getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    say("peer is right %d length %d", name.sin_addr.s_addr == peer_address.sin_addr.s_addr &&
        name.sin_port == peer_address.sin_port && name.sin_family == AF_INET, length);
    length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("own is right %d port %d", name.sin_addr.s_addr == own_address.s_addr, name.sin_port != 0);
    length = 4;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("length of a cut name %d", length);
    int mtu = 0;
    length = sizeof mtu;
    say("path %s length %d", result(getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &length)), length);
    say("it takes %d", mtu);
    say("fast open of it %s", result(send(fd, &mtu, 1, MSG_FASTOPEN | MSG_NOSIGNAL)));
    close(fd);
    fd = tcp_socket();
    say("no path yet %s", result(getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &length)));
    close(fd);
}

static void refused(void) {
    struct sockaddr_in address = address_of(peer_address.sin_addr, 1);
    int fd = tcp_socket();
    say("connect refused %s", result(connect(fd, (struct sockaddr *)&address, sizeof address)));
    close(fd);
    fd = tcp_socket();
    set_nonblocking(fd, 1);
    say("connect to be refused %s", result(connect(fd, (struct sockaddr *)&address, sizeof address)));
    say("refused polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    say("refused error %s", errname(error));
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    say("refused error again %d", error);
    char byte;
    say("refused recv %s", result(recv(fd, &byte, 1, 0)));
    say("refused send %s", result(send(fd, &byte, 1, MSG_NOSIGNAL)));
    close(fd);
}

static void flags(void) {
    char buffer[100] = "";
    int fd = call_peer("echo");
    say("nothing yet %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("write %s", result(write(fd, "0123456789", 10)));
    say("readable %s", pollbits(wait_for(fd, POLLIN)));
    int waiting = 0;
    ioctl(fd, FIONREAD, &waiting);
    say("waiting %d", waiting);
    say("peek %s", result(recv(fd, buffer, 4, MSG_PEEK)));
    say("peeked %.4s", buffer);
    say("truncating %s", result(recv(fd, buffer, 3, MSG_TRUNC)));
    say("read %s", result(read(fd, buffer, 2)));
    say("read %.2s", buffer);
    struct iovec parts[2] = {{buffer, 2}, {buffer + 50, 20}};
    say("readv %s", result(readv(fd, parts, 2)));
    say("readv gave %.2s %.3s", buffer, buffer + 50);
    say("zero length %s", result(read(fd, buffer, 0)));
    say("out of band %s", result(recv(fd, buffer, 1, MSG_OOB)));
    struct iovec both[2] = {{"abcde", 5}, {"fgh", 3}};
    say("writev %s", result(writev(fd, both, 2)));
    say("waitall %s", result(recv(fd, buffer, 8, MSG_WAITALL)));
    say("waitall gave %.8s", buffer);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    write(fd, "xy", 2);
    say("recvfrom %s", result(recvfrom(fd, buffer, 10, 0, (struct sockaddr *)&name, &length)));
    say("name length of a stream %d", length);
    struct msghdr message = {.msg_iov = both, .msg_iovlen = 2};
    say("sendmsg %s", result(sendmsg(fd, &message, 0)));
    wait_for(fd, POLLIN);
    pause_ms(50);
    struct iovec into[2] = {{buffer, 6}, {buffer + 50, 20}};
    struct msghdr received = {.msg_iov = into, .msg_iovlen = 2, .msg_flags = -1};
    say("recvmsg %s flags %d", result(recvmsg(fd, &received, 0)), received.msg_flags);
    say("recvmsg gave %.6s %.2s", buffer, buffer + 50);
    say("sendto with an address %s",
        result(sendto(fd, "z", 1, 0, (struct sockaddr *)&peer_address, sizeof peer_address)));
    say("too many buffers %s", result(readv(fd, into, atoi("2000"))));
    say("null buffer %s", result(send(fd, NULL, 5, 0)));
    set_timeout(fd, SO_RCVTIMEO, 30);
    read_all(fd, buffer, 1);
    say("receive timeout %s", result(recv(fd, buffer, 1, 0)));
    say("waitall timeout %s", result(recv(fd, buffer, 1, MSG_WAITALL)));
    close(fd);
}

static void ends(void) {
    char buffer[100];
    int fd = call_peer("close");
    say("peer closed polls %s", pollbits(wait_for(fd, POLLIN | POLLRDHUP)));
    say("peer closed polls all %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("peer closed recv %s", result(recv(fd, buffer, 10, 0)));
    say("peer closed recv again %s", result(recv(fd, buffer, 10, 0)));
    say("peer closed send %s", result(send(fd, "x", 1, 0)));
    int bits = wait_for(fd, POLLERR);
    say("then polls %s", pollbits(bits & (POLLERR | POLLHUP)));
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    say("then error %s", errname(error));
    say("then send %s, signals %d", result(send(fd, "x", 1, 0)), sigpipes);
    say("then send quietly %s, signals %d", result(send(fd, "x", 1, MSG_NOSIGNAL)), sigpipes);
    say("then write %s, signals %d", result(write(fd, "x", 1)), sigpipes);
    close(fd);

    fd = call_peer("reset-on-byte");
    write(fd, "x", 1);
    say("reset polls %s", pollbits(wait_for(fd, POLLIN | POLLRDHUP)));
    say("reset polls all %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("reset recv %s", result(recv(fd, buffer, 10, 0)));
    say("reset recv again %s", result(recv(fd, buffer, 10, 0)));
    say("reset send %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    close(fd);

    fd = call_peer("sink");
    say("before the end %s", result(write(fd, "", 0)));
    say("shutdown %s", result(shutdown(fd, SHUT_WR)));
    say("after shutdown send %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    long count = read_all(fd, buffer, 100);
    say("sink says %.*s", (int)count - 1, buffer);
    say("both ends polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("shutdown again %s", result(shutdown(fd, SHUT_RDWR)));
    close(fd);

    fd = call_peer("echo");
    say("shutdown read %s", result(shutdown(fd, SHUT_RD)));
    say("then polls %s", pollbits(wait_for(fd, POLLIN | POLLOUT | POLLRDHUP)));
    say("then recv %s", result(recv(fd, buffer, 10, 0)));
    say("shutdown how %s", result(shutdown(fd, 7)));
    close(fd);
}

static const char *congestion(int fd) {
    static char name[17];
    socklen_t length = 16;
    memset(name, 0, sizeof name);
    if (getsockopt(fd, SOL_TCP, TCP_CONGESTION, name, &length) < 0)
        return errname(errno);
    return name;
}

static unsigned word(const unsigned char *bytes, int offset) {
    unsigned value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

/* Options set before connect are the connection's. */
static void early_options(void) {
    int fd = tcp_socket(), value = 1;
    socklen_t length = sizeof value;
    say("early reno %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "reno", 4)));
    say("early unknown control %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "vegan", 5)));
    say("early empty control %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "", 0)));
    say("early control %s", congestion(fd));
    setsockopt(fd, SOL_TCP, TCP_CORK, &value, sizeof value);
    setsockopt(fd, SOL_TCP, TCP_QUICKACK, &value, sizeof value);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
    value = 77;
    setsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, sizeof value);
    say("early connect %s", result(connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address)));
    say("then control %s", congestion(fd));
    value = 0;
    getsockopt(fd, SOL_TCP, TCP_CORK, &value, &length);
    say("then cork %d", value);
    getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length);
    say("then keepalive %d", value);
    getsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, &length);
    say("then keepidle %d", value);
    say("then cubic %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "cubic", 6)));
    say("then unknown control %s", result(setsockopt(fd, SOL_TCP, TCP_CONGESTION, "vegan", 5)));
    say("then control %s", congestion(fd));
    /* Corked: it goes out when the cork is drawn, or 200 ms later. */
    write_all(fd, "echo\n", 5);
    value = 0;
    setsockopt(fd, SOL_TCP, TCP_CORK, &value, sizeof value);
    char echo[5];
    write_all(fd, "hello", 5);
    say("then echo %s", result(read_all(fd, echo, 5)));
    /* struct tcp_info of <linux/tcp.h>; the one of the C library is older. */
    unsigned char info[248] = {0};
    length = sizeof info;
    getsockopt(fd, SOL_TCP, TCP_INFO, info, &length);
    say("info state %d ca %d options %d mss %u pmtu %u", info[0], info[1], info[5] & 7, word(info, 16), word(info, 60));
    say("info received %u notsent %u retrans %u unacked %u", word(info, 128), word(info, 144), word(info, 100),
        word(info, 24));
    say("info rtt %d rto %d window %d cwnd %u", word(info, 68) > 0, word(info, 8) >= 200000, word(info, 228) > 0,
        word(info, 80));
    say("info segments %d %d with data %d %d", word(info, 136) > 0, word(info, 140) > 0, word(info, 152) > 0,
        word(info, 156) > 0);
    length = 8;
    say("short info %s", result(getsockopt(fd, SOL_TCP, TCP_INFO, info, &length)));
    say("short info length %d", length);
    close(fd);
}

static void options(void) {
    int fd = call_peer("echo");
    int value = 1;
    socklen_t length = sizeof value;
    say("set nodelay %s", result(setsockopt(fd, SOL_TCP, TCP_NODELAY, &value, sizeof value)));
    value = 0;
    getsockopt(fd, SOL_TCP, TCP_NODELAY, &value, &length);
    say("nodelay %d", value);
    value = 1;
    say("set keepalive %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value)));
    value = 60;
    say("set keepidle %s", result(setsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, sizeof value)));
    getsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, &length);
    say("keepidle %d", value);
    value = 1000000;
    say("bad keepidle %s", result(setsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, sizeof value)));
    say("unknown option %s", result(setsockopt(fd, SOL_TCP, 9999, &value, sizeof value)));
    say("unknown level %s", result(getsockopt(fd, 9999, 1, &value, &length)));
    say("short value %s", result(setsockopt(fd, SOL_TCP, TCP_NODELAY, &value, 1)));
    getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length);
    say("type %d", value == SOCK_STREAM);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length);
    say("domain %d", value == AF_INET);
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length);
    say("accepts %d", value);
    struct timeval time = {3, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    memset(&time, 0, sizeof time);
    length = sizeof time;
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length);
    say("timeout %ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    struct tcp_info info;
    length = sizeof info;
    say("info %s", result(getsockopt(fd, SOL_TCP, TCP_INFO, &info, &length)));
    say("state %d segment size %d", info.tcpi_state, info.tcpi_snd_mss > 500);
    length = sizeof value;
    getsockopt(fd, SOL_TCP, TCP_MAXSEG, &value, &length);
    say("maxseg %d", value > 500);
    int one = 1;
    ioctl(fd, FIONBIO, &one);
    say("nonblocking by ioctl %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    char byte;
    say("nonblocking recv %s", result(recv(fd, &byte, 1, 0)));
    set_nonblocking(fd, 0);
    say("blocking by fcntl %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    say("flags %d", fcntl(fd, F_GETFL) & O_ACCMODE);
    close(fd);
}

static void duplicates(void) {
    char buffer[10];
    int fd = call_peer("echo");
    int copy = dup(fd);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    say("high copy %d cloexec %d", high >= 100, fcntl(high, F_GETFD) & FD_CLOEXEC);
    set_nonblocking(copy, 1);
    say("flags are shared %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    set_nonblocking(high, 0);
    write(copy, "abc", 3);
    close(fd);
    close(copy);
    say("through the copy %s", result(recv(high, buffer, 3, MSG_WAITALL)));
    int other = call_peer("echo");
    say("dup2 over it %s", dup2(high, other) == other ? "worked" : "failed");
    write(other, "de", 2);
    say("through dup2 %s", result(recv(high, buffer, 2, MSG_WAITALL)));
    say("dup3 onto itself %s", result(dup3(high, high, 0)));
    int pipes[2];
    pipe(pipes);
    dup2(pipes[0], other);
    write(pipes[1], "pipe", 4);
    say("a pipe in its place %s", result(read(other, buffer, 10)));
    close(other);
    close(pipes[0]);
    close(pipes[1]);
    close(high);
    say("last copy closed %s", result(write(high, "x", 1)));
}

static void files(void) {
    char path[] = "/tmp/semantics-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    static char bytes[300000], back[300000];
    fill_pattern(bytes, sizeof bytes, 0);
    write_all(file, bytes, sizeof bytes);
    int fd = call_peer("sink");
    off_t offset = 0;
    say("sendfile with an offset %s", result(sendfile(fd, file, &offset, 1000)));
    say("offset %ld, position %ld", (long)offset, (long)lseek(file, 0, SEEK_CUR));
    lseek(file, 1000, SEEK_SET);
    say("sendfile from the position %s", result(sendfile(fd, file, NULL, 1000)));
    say("position %ld", (long)lseek(file, 0, SEEK_CUR));
    offset = 2000;
    long done = 0, count;
    while ((count = sendfile(fd, file, &offset, sizeof bytes)) > 0)
        done += count;
    say("sendfile to the end %ld, then %s", done, result(count));
    shutdown(fd, SHUT_WR);
    count = read_all(fd, back, 100);
    say("sink says %.*s", (int)count - 1, back);
    offset = 0;
    sigpipes = 0;
    say("sendfile after shutdown %s signals %d", result(sendfile(fd, file, &offset, 10)), sigpipes);
    close(fd);
    fd = call_peer("source 100");
    wait_for(fd, POLLIN);
    say("sendfile from a socket %s", result(sendfile(file, fd, NULL, 10)));
    close(fd);
    close(file);
}

static void splices(void) {
    int pipes[2], other[2];
    pipe(pipes);
    int fd = call_peer("source 3000");
    say("splice nothing %s", result(splice(fd, NULL, pipes[1], NULL, 0, 0)));
    loff_t offset = 0;
    say("splice with an offset %s", result(splice(fd, &offset, pipes[1], NULL, 10, 0)));
    int null = open("/dev/null", O_WRONLY);
    say("splice into a file %s", result(splice(fd, NULL, null, NULL, 10, 0)));
    close(null);
    say("splice with the pipe's offset %s", result(splice(fd, NULL, pipes[1], &offset, 10, 0)));
    static char bytes[200000], back[3000];
    long done = 0, count;
    while (done < 3000 && (count = splice(fd, NULL, pipes[1], NULL, 3000 - done, 0)) > 0)
        done += count;
    say("spliced out %ld", done);
    say("pattern %d", read_all(pipes[0], back, 3000) == 3000 && matches_pattern(back, 3000, 0));
    say("splice at the end %s", result(splice(fd, NULL, pipes[1], NULL, 10, 0)));
    close(fd);
    fd = call_peer("sink");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say("nothing there %s", result(splice(fd, NULL, pipes[1], NULL, 10, 0)));
    say("an empty pipe %s", result(splice(pipes[0], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK)));
    fcntl(fd, F_SETFL, 0);
    fill_pattern(bytes, sizeof bytes, 0);
    for (done = 0; done < (long)sizeof bytes; done += 50000) {
        write_all(pipes[1], bytes + done, 50000);
        long left = 50000;
        while (left > 0 && (count = splice(pipes[0], NULL, fd, NULL, left, SPLICE_F_MORE)) > 0)
            left -= count;
        say("left of it %ld", left);
    }
    close(pipes[1]);
    say("a pipe without a writer %s", result(splice(pipes[0], NULL, fd, NULL, 10, 0)));
    shutdown(fd, SHUT_WR);
    count = read_all(fd, back, 100);
    say("sink says %.*s", (int)count - 1, back);
    pipe(other);
    write(other[1], "x", 1);
    sigpipes = 0;
    count = splice(other[0], NULL, fd, NULL, 1, 0);
    say("splice after shutdown %s signals %d", result(count), sigpipes);
    close(fd);
    close(pipes[0]);
    close(other[0]);
    close(other[1]);
}

/* What TCP_INQ tells with a recvmsg. */
static void say_left(int fd, size_t wanted) {
    static char bytes[4000];
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {bytes, wanted};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    long count = recvmsg(fd, &message, 0);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header)
        say("recvmsg %s, level %d type %d left %d", result(count), header->cmsg_level, header->cmsg_type,
            *(int *)CMSG_DATA(header));
    else
        say("recvmsg %s tells nothing", result(count));
}

static void left_to_read(void) {
    int fd = call_peer("source 1000"), on = 1, off = 0;
    struct pollfd entry = {fd, POLLRDHUP, 0};
    poll(&entry, 1, -1);
    say_left(fd, 100);
    say("TCP_INQ %s", result(setsockopt(fd, SOL_TCP, TCP_INQ, &on, sizeof on)));
    say_left(fd, 300);
    struct iovec part = {&off, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long count = recvmsg(fd, &message, 0);
    say("without room %s flags %d", result(count), message.msg_flags);
    say_left(fd, 4000);
    say_left(fd, 10);
    setsockopt(fd, SOL_TCP, TCP_INQ, &off, sizeof off);
    say_left(fd, 10);
    close(fd);
}

/* TCP_MAXSEG before connecting counts for both directions. */
static void segments(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), size = 700;
    socklen_t length = sizeof size;
    say("TCP_MAXSEG %s", result(setsockopt(fd, SOL_TCP, TCP_MAXSEG, &size, sizeof size)));
    struct sockaddr_in nowhere = peer_address;
    say("connect %s", result(connect(fd, (struct sockaddr *)&nowhere, sizeof nowhere)));
    struct tcp_info info;
    length = sizeof info;
    say("TCP_INFO %s", result(getsockopt(fd, SOL_TCP, TCP_INFO, &info, &length)));
    say("announced no more %d", info.tcpi_advmss > 500 && info.tcpi_advmss <= 700);
    length = sizeof size;
    size = 0;
    getsockopt(fd, SOL_TCP, TCP_MAXSEG, &size, &length);
    say("not more than asked for %d", size > 500 && size <= 700);
    close(fd);
}

void stream_cases(void) {
    fresh();
    connecting();
    refused();
    flags();
    ends();
    early_options();
    options();
    duplicates();
    files();
    splices();
    left_to_read();
    segments();
}
