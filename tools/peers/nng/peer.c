// nng: PUSH to PULL, messages of its own that are filled each time, since it takes no other memory.

#include "../common/peer.h"
#include <nng/nng.h>
#include <nng/protocol/pipeline0/pull.h>
#include <nng/protocol/pipeline0/push.h>

static void check(int status, const char *what) {
    if (status) peer_die("%s: %s", what, nng_strerror(status));
}

int main(int argc, char **argv) {
    peer_start("nng_peer", argc, argv);
    nng_socket socket;
    check(peer.sends ? nng_push0_open(&socket) : nng_pull0_open(&socket), "nng_socket");
    // Its bound is at most 8192 messages, and is that of the socket.
    int queue = peer.queue > 8192 ? 8192 : (int)peer.queue;
    int status = nng_socket_set_int(socket, peer.sends ? NNG_OPT_SENDBUF : NNG_OPT_RECVBUF, queue);
    if (status && status != NNG_ENOTSUP) check(status, "the bound of the queue");
    check(nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, 0), "NNG_OPT_RECVMAXSZ");
    check(nng_socket_set_ms(socket, peer.sends ? NNG_OPT_SENDTIMEO : NNG_OPT_RECVTIMEO, 50), "a timeout");
    char address[96];
    if (peer.bind[0]) {
        snprintf(address, sizeof address, "tcp://%s", peer.bind);
        check(nng_listen(socket, address, NULL, 0), address);
    }
    for (size_t i = 0; i < peer.connect_count; i++) {
        snprintf(address, sizeof address, "tcp://%s", peer.connect[i]);
        check(nng_dial(socket, address, NULL, 0), address);
    }
    peer_ready();
    if (peer.sends) {
        peer_wait_go();
        while (!peer_stopping()) {
            nng_msg *message;
            check(nng_msg_alloc(&message, peer.bytes), "nng_msg_alloc");
            memcpy(nng_msg_body(message), peer_slot(), peer.bytes);
            int sent;
            while ((sent = nng_sendmsg(socket, message, 0)) == NNG_ETIMEDOUT && !peer_stopping()) {}
            if (sent) break;
            peer_sent();
        }
        // It does not wait for what is queued.
        usleep(1000000);
    } else {
        size_t held_max = peer_held_max(), next = 0;
        nng_msg **held = calloc(held_max, sizeof *held);
        if (!held) peer_die("no memory for %zu messages", held_max);
        while (1) {
            nng_msg *message;
            int got = nng_recvmsg(socket, &message, 0);
            if (!got) {
                peer_received((const unsigned char *)nng_msg_body(message), nng_msg_len(message));
                if (held[next]) nng_msg_free(held[next]);
                held[next] = message;
                next = (next + 1) % held_max;
            } else if (got != NNG_ETIMEDOUT) check(got, "nng_recvmsg");
            else if (peer_over()) break;
        }
    }
    char version[64];
    snprintf(version, sizeof version, "nng %s", nng_version());
    peer_finish(version, NULL);
    nng_close(socket);
    return 0;
}
