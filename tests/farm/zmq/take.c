/* A consumer of real ZeroMQ for zmq.rs: libzmq. The same as take.py, where the arguments are described. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

static void check(int is_good, const char *what)
{
    if (!is_good) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    check(argc == 6, "expected five arguments");
    int is_sub = strcmp(argv[1], "sub") == 0, is_bind = strcmp(argv[2], "bind") == 0;
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, is_sub ? ZMQ_SUB : ZMQ_PULL);
    check(socket != NULL, "socket");
    int patience = 60000, linger = 0, high_water = is_sub ? 0 : 1000;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &high_water, sizeof high_water);
    if (is_sub)
        check(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0, "subscribe");
    check((is_bind ? zmq_bind : zmq_connect)(socket, argv[3]) == 0, argv[3]);
    char endpoint[256], path[4096];
    size_t endpoint_len = sizeof endpoint;
    check(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &endpoint_len) == 0, "endpoint");
    printf("%s\n", endpoint);
    fflush(stdout);
    int parts = 0, count = atoi(argv[5]);
    for (int number = 0; count ? number < count : parts != 1; number++) {
        snprintf(path, sizeof path, "%s/%d", argv[4], number);
        FILE *file = fopen(path, "wb");
        check(file != NULL, path);
        int more = 1;
        for (parts = 0; more; parts++) {
            zmq_msg_t part;
            zmq_msg_init(&part);
            check(zmq_msg_recv(&part, socket, 0) >= 0, "recv");
            size_t size = zmq_msg_size(&part);
            check(fwrite(zmq_msg_data(&part), 1, size, file) == size, path);
            more = zmq_msg_more(&part);
            zmq_msg_close(&part);
        }
        check(fclose(file) == 0, path);
        if (number == 0) {
            puts("begun");
            fflush(stdout);
        }
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
