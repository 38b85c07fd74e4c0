// nanomsg: PUSH to PULL, chunks of its own that are filled for each message, since it takes no other memory.

#include "../common/peer.h"
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <nanomsg/tcp.h>

static void check(int status, const char *what) {
    if (status < 0) peer_die("%s: %s", what, nn_strerror(nn_errno()));
}

static void set(int socket, int option, int value) {
    check(nn_setsockopt(socket, NN_SOL_SOCKET, option, &value, sizeof value), "nn_setsockopt");
}

int main(int argc, char **argv) {
    peer_start("nanomsg_peer", argc, argv);
    int socket = nn_socket(AF_SP, peer.sends ? NN_PUSH : NN_PULL);
    check(socket, "nn_socket");
    // Its bound counts bytes.
    size_t queue_bytes = peer.queue * peer.bytes;
    if (queue_bytes > 1u << 30) queue_bytes = 1u << 30;
    set(socket, peer.sends ? NN_SNDBUF : NN_RCVBUF, (int)queue_bytes);
    if (!peer.sends) set(socket, NN_RCVMAXSIZE, -1);
    set(socket, peer.sends ? NN_SNDTIMEO : NN_RCVTIMEO, 50);
    char address[96];
    if (peer.bind[0]) {
        snprintf(address, sizeof address, "tcp://%s", peer.bind);
        check(nn_bind(socket, address), address);
    }
    for (size_t i = 0; i < peer.connect_count; i++) {
        snprintf(address, sizeof address, "tcp://%s", peer.connect[i]);
        check(nn_connect(socket, address), address);
    }
    peer_ready();
    if (peer.sends) {
        peer_wait_go();
        while (!peer_stopping()) {
            void *message = nn_allocmsg(peer.bytes, 0);
            if (!message) peer_die("no memory for a message");
            memcpy(message, peer_slot(), peer.bytes);
            int sent;
            do {
                sent = nn_send(socket, &message, NN_MSG, 0);
            } while (sent < 0 && (nn_errno() == ETIMEDOUT || nn_errno() == EAGAIN) && !peer_stopping());
            if (sent < 0) break;
            peer_sent();
        }
        // It does not wait for what is queued (NN_LINGER has no effect since 1.0).
        usleep(1000000);
    } else {
        size_t held_max = peer_held_max(), next = 0;
        void **held = calloc(held_max, sizeof *held);
        if (!held) peer_die("no memory for %zu messages", held_max);
        while (1) {
            void *message = NULL;
            int got = nn_recv(socket, &message, NN_MSG, 0);
            if (got >= 0) {
                peer_received((const unsigned char *)message, (size_t)got);
                if (held[next]) nn_freemsg(held[next]);
                held[next] = message;
                next = (next + 1) % held_max;
            } else if (nn_errno() != ETIMEDOUT && nn_errno() != EAGAIN && nn_errno() != EINTR) check(got, "nn_recv");
            else if (peer_over()) break;
        }
    }
    nn_close(socket);
    peer_finish("nanomsg", NULL);
    return 0;
}
