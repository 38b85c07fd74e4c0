/* The ends of `measure.py`, and the proxy that it compares with: libzmq from C.
 *
 *     path send BYTES ENDPOINT        PUSH that connects and sends messages of one part until it is ended
 *     path receive ENDPOINT           PULL that binds; a line on its standard input: time, messages and bytes so far
 *     path proxy ENDPOINT ENDPOINT    PULL that binds the first, PUSH that connects to the second, zmq_proxy between
 */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

static void check(int is_good, const char *what)
{
    if (!is_good) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static void *open_socket(void *context, int type, int is_bind, const char *endpoint)
{
    void *socket = zmq_socket(context, type);
    check(socket != NULL, "socket");
    check((is_bind ? zmq_bind : zmq_connect)(socket, endpoint) == 0, endpoint);
    return socket;
}

static void keep(void *data, void *hint)
{
    (void)data;
    (void)hint;
}

static void send_all(void *context, size_t bytes, const char *endpoint)
{
    void *socket = open_socket(context, ZMQ_PUSH, 0, endpoint);
    char *pool = malloc(bytes);
    check(pool != NULL, "memory");
    memset(pool, 7, bytes);
    for (;;) {
        zmq_msg_t message;
        check(zmq_msg_init_data(&message, pool, bytes, keep, NULL) == 0, "message");
        check(zmq_msg_send(&message, socket, 0) >= 0, "send");
    }
}

static void receive_all(void *context, const char *endpoint)
{
    void *socket = open_socket(context, ZMQ_PULL, 1, endpoint);
    uint64_t messages = 0, bytes = 0;
    for (;;) {
        zmq_pollitem_t items[] = {{socket, 0, ZMQ_POLLIN, 0}, {NULL, 0, ZMQ_POLLIN, 0}};
        check(zmq_poll(items, 2, -1) >= 0, "poll");
        if (items[1].revents) {
            char line[64];
            struct timespec now;
            if (!fgets(line, sizeof line, stdin))
                return;
            clock_gettime(CLOCK_MONOTONIC, &now);
            printf("%.6f %llu %llu\n", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                   (unsigned long long)messages, (unsigned long long)bytes);
            fflush(stdout);
        }
        /* Many at a time: zmq_poll is a system call. */
        for (int turn = 0; turn < 256; turn++) {
            zmq_msg_t part;
            zmq_msg_init(&part);
            if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
                check(zmq_errno() == EAGAIN, "recv");
                zmq_msg_close(&part);
                break;
            }
            bytes += zmq_msg_size(&part);
            messages += !zmq_msg_more(&part);
            zmq_msg_close(&part);
        }
    }
}

int main(int argc, char **argv)
{
    void *context = zmq_ctx_new();
    check(context != NULL, "context");
    if (argc == 4 && strcmp(argv[1], "send") == 0) {
        send_all(context, strtoul(argv[2], NULL, 10), argv[3]);
    } else if (argc == 3 && strcmp(argv[1], "receive") == 0) {
        receive_all(context, argv[2]);
    } else if (argc == 4 && strcmp(argv[1], "proxy") == 0) {
        void *in = open_socket(context, ZMQ_PULL, 1, argv[2]);
        void *out = open_socket(context, ZMQ_PUSH, 0, argv[3]);
        zmq_proxy(in, out, NULL);
    } else {
        fprintf(stderr, "path send BYTES ENDPOINT | receive ENDPOINT | proxy ENDPOINT ENDPOINT\n");
        return 2;
    }
    return 0;
}
