/* A server on loopback that costs next to nothing: every request gets the same answer, at once or after so many milliseconds, and a
 * request that streams gets words that tell when they were sent. llm_server DELAY_MS prints its port. It ends with its standard input. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, ROOM = 64 << 10, WORDS = 200 };
static const char BODY[] =
    "{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
    "\"assistant\",\"content\":\"a short answer\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
    "\"total_tokens\":10}}";
static struct { char *bytes; size_t length; } connections[MOST];
static struct { int socket; double due; } queue[MOST]; /* The delay is always the same, so who came first is due first. */
static unsigned first, last;
static double delay;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void put(int socket, const char *bytes, int length) {
    while (length > 0) {
        ssize_t sent = send(socket, bytes, (size_t)length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) continue;
        if (sent <= 0) return;
        bytes += sent;
        length -= (int)sent;
    }
}

static void answer(int socket) {
    char text[1024];
    put(socket, text, snprintf(text, sizeof text,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", sizeof BODY - 1, BODY));
}

/* Each word is the time of its sending, in nanoseconds; ten milliseconds lie between two. */
static void stream(int socket) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    char text[256];
    put(socket, head, sizeof head - 1);
    for (int word = 0; word < WORDS; word++) {
        usleep(10000);
        put(socket, text, snprintf(text, sizeof text,
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%.0f \"}}]}\n\n", now() * 1e9));
    }
    static const char end[] = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    put(socket, end, sizeof end - 1);
    shutdown(socket, SHUT_WR);
}

/* The length of the request at the start of what has come; 0 while it is not whole. */
static size_t whole(const char *bytes, size_t length) {
    const char *end = memmem(bytes, length, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - bytes) + 4, body = 0;
    for (const char *at = bytes; at < end; at++)
        if (at[0] == '\n' && !strncasecmp(at + 1, "content-length:", 15)) body = strtoul(at + 16, NULL, 10);
    return length >= head + body ? head + body : 0;
}

static void forget(int socket) {
    connections[socket].length = 0;
    close(socket);
}

static void take(int socket) {
    if (!connections[socket].bytes) connections[socket].bytes = malloc(ROOM);
    char *bytes = connections[socket].bytes;
    ssize_t got = recv(socket, bytes + connections[socket].length, ROOM - connections[socket].length, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        forget(socket);
        return;
    }
    size_t length = connections[socket].length + (size_t)got, used;
    while ((used = whole(bytes, length)) > 0) {
        if (memmem(bytes, used, "\"stream\":true", 13)) {
            stream(socket);
        } else if (delay > 0) {
            queue[last % MOST].socket = socket;
            queue[last++ % MOST].due = now() + delay;
        } else {
            answer(socket);
        }
        memmove(bytes, bytes + used, length - used);
        length -= used;
    }
    connections[socket].length = length;
}

int main(int count, char **words) {
    delay = count > 1 ? atof(words[1]) / 1e3 : 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), on = 1;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int *watched = (int[]){listener, 0, -1}; *watched >= 0; watched++)
        epoll_ctl(poll, EPOLL_CTL_ADD, *watched, &(struct epoll_event){.events = EPOLLIN, .data.fd = *watched});
    for (;;) {
        struct epoll_event events[256];
        int wait = first == last ? -1 : (int)((queue[first % MOST].due - now()) * 1e3 + 0.5);
        int found = epoll_wait(poll, events, 256, first != last && wait < 0 ? 0 : wait);
        for (int n = 0; n < found; n++) {
            int socket = events[n].data.fd;
            if (socket == 0) return 0;
            if (socket != listener) {
                take(socket);
                continue;
            }
            int new = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (new < 0) continue;
            if (new >= MOST) {
                close(new);
                continue;
            }
            setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            epoll_ctl(poll, EPOLL_CTL_ADD, new, &(struct epoll_event){.events = EPOLLIN, .data.fd = new});
        }
        for (double time = now(); first != last && queue[first % MOST].due <= time; first++) answer(queue[first % MOST].socket);
    }
}
