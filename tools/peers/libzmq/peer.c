// libzmq: PUSH to PULL, messages sent from the pool without a copy (zmq_msg_init_data).

#include "../common/peer.h"
#include <errno.h>
#include <zmq.h>

// `hint` is the mark of the slot.
static void slot_free(void *data, void *hint) {
    (void)data;
    __atomic_store_n((unsigned char *)hint, 0, __ATOMIC_RELEASE);
}

static void check(int status, const char *what) {
    if (status < 0) peer_die("%s: %s", what, zmq_strerror(zmq_errno()));
}

static void set(void *socket, int option, int value) {
    check(zmq_setsockopt(socket, option, &value, sizeof value), "zmq_setsockopt");
}

int main(int argc, char **argv) {
    peer_start("libzmq_peer", argc, argv);
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, peer.sends ? ZMQ_PUSH : ZMQ_PULL);
    if (!socket) peer_die("no socket");
    set(socket, peer.sends ? ZMQ_SNDHWM : ZMQ_RCVHWM, (int)peer.queue);
    // The default of 100 leaves some of many peers out for seconds.
    set(socket, ZMQ_BACKLOG, 1024);
    // Nothing is queued for peers that are not there.
    set(socket, ZMQ_IMMEDIATE, 1);
    set(socket, ZMQ_RCVTIMEO, 50);
    set(socket, ZMQ_SNDTIMEO, 50);
    char address[96];
    if (peer.bind[0]) {
        snprintf(address, sizeof address, "tcp://%s", peer.bind);
        check(zmq_bind(socket, address), address);
    }
    for (size_t i = 0; i < peer.connect_count; i++) {
        snprintf(address, sizeof address, "tcp://%s", peer.connect[i]);
        check(zmq_connect(socket, address), address);
    }
    peer_ready();
    if (peer.sends) {
        unsigned char *is_used = calloc(peer.slots, 1);
        if (!is_used) peer_die("no memory for %zu slots", peer.slots);
        peer_wait_go();
        while (!peer_stopping()) {
            // A slot is written again only when the library has released its content. A receiver that is slow keeps
            // its own.
            size_t tries = 0;
            while (__atomic_load_n(&is_used[peer_next_slot()], __ATOMIC_ACQUIRE) && !peer_stopping()) {
                peer_skip();
                if (++tries % peer.slots == 0) usleep(10);
            }
            if (peer_stopping()) break;
            unsigned char *mark = &is_used[peer_next_slot()];
            *mark = 1;
            zmq_msg_t message;
            zmq_msg_init_data(&message, peer_slot(), peer.bytes, slot_free, mark);
            int sent;
            while ((sent = zmq_msg_send(&message, socket, 0)) < 0 && zmq_errno() == EAGAIN && !peer_stopping()) {}
            if (sent < 0) break;
            peer_sent();
        }
        check(zmq_close(socket), "zmq_close");
        // Waits until all is sent.
        check(zmq_ctx_term(context), "zmq_ctx_term");
    } else {
        size_t held_max = peer_held_max(), next = 0;
        zmq_msg_t message, *held = calloc(held_max, sizeof *held);
        if (!held) peer_die("no memory for %zu messages", held_max);
        zmq_msg_init(&message);
        for (size_t i = 0; i < held_max; i++) zmq_msg_init(&held[i]);
        while (1) {
            int got = zmq_msg_recv(&message, socket, 0);
            if (got >= 0) {
                peer_received((const unsigned char *)zmq_msg_data(&message), zmq_msg_size(&message));
                // Releases the oldest.
                zmq_msg_move(&held[next], &message);
                next = (next + 1) % held_max;
            }
            else if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) check(got, "zmq_msg_recv");
            else if (peer_over()) break;
        }
    }
    int major, minor, patch;
    char version[64];
    zmq_version(&major, &minor, &patch);
    snprintf(version, sizeof version, "libzmq %d.%d.%d", major, minor, patch);
    peer_finish(version, NULL);
    return 0;
}
