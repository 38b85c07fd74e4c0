/* A peer of real ZeroMQ for tests/peers.rs: libzmq. The same as peer.py, where the arguments are described. */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static void check(int is_good, const char *what)
{
    if (!is_good) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static size_t sizes[64];
static size_t sizes_len;

/* Fills `head` and `body`, which is large enough; gives the bytes of the body. */
static size_t make(uint32_t number, unsigned char head[4], unsigned char *body)
{
    size_t size = sizes[number % sizes_len];
    for (int byte = 0; byte < 4; byte++)
        head[byte] = (unsigned char)(number >> (8 * byte));
    memset(body, (int)(number % 256), size);
    return size;
}

int main(int argc, char **argv)
{
    check(argc == 6, "expected five arguments");
    const char *pattern = argv[1];
    int is_pub = strcmp(pattern, "pub") == 0, is_sub = strcmp(pattern, "sub") == 0;
    int is_push = strcmp(pattern, "push") == 0;
    uint32_t count = (uint32_t)strtoul(argv[4], NULL, 10);
    size_t largest = 1;
    for (char *size = strtok(argv[5], ","); size && sizes_len < 64; size = strtok(NULL, ",")) {
        sizes[sizes_len] = strtoul(size, NULL, 10);
        largest = sizes[sizes_len] > largest ? sizes[sizes_len] : largest;
        sizes_len++;
    }
    unsigned char head[4], *body = malloc(largest), *found = malloc(largest + 1);
    check(body && found && sizes_len, "memory");
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, is_push ? ZMQ_PUSH : is_pub ? ZMQ_PUB : is_sub ? ZMQ_SUB : ZMQ_PULL);
    check(socket != NULL, "socket");
    int linger = 60000, high_water = is_pub || is_sub ? 0 : 10, patience = 60000;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &high_water, sizeof high_water);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &high_water, sizeof high_water);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &patience, sizeof patience);
    if (is_sub)
        check(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0, "subscribe");
    int is_bind = strcmp(argv[2], "bind") == 0;
    check((is_bind ? zmq_bind : zmq_connect)(socket, argv[3]) == 0, argv[3]);
    char endpoint[256];
    size_t endpoint_len = sizeof endpoint;
    check(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &endpoint_len) == 0, "endpoint");
    printf("%s\n", endpoint);
    fflush(stdout);
    if (is_pub) {
        struct pollfd go = {.fd = STDIN_FILENO, .events = POLLIN};
        while (poll(&go, 1, 10) == 0)
            check(zmq_send(socket, "", 0, 0) == 0, "send");
    }
    for (uint32_t number = 0; number < count; number++) {
        size_t size = make(number, head, body);
        if (is_push || is_pub) {
            check(zmq_send(socket, head, 4, ZMQ_SNDMORE) == 4, "send");
            check(zmq_send(socket, body, size, 0) == (int)size, "send");
            continue;
        }
        unsigned char first[5];
        int is_good = zmq_recv(socket, first, 5, 0) == 4 && memcmp(first, head, 4) == 0;
        is_good = is_good && zmq_recv(socket, found, largest + 1, 0) == (int)size && memcmp(found, body, size) == 0;
        if (!is_good) {
            fprintf(stderr, "message %u is another one\n", number);
            return 1;
        }
    }
    if (!is_push && !is_pub)
        printf("ok %u\n", count);
    fflush(stdout);
    zmq_close(socket);
    zmq_ctx_term(context);
    free(body);
    free(found);
    return 0;
}
