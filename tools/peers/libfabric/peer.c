// libfabric: reliable datagrams (FI_EP_RDM) over the provider that the first argument names, out of the pool and into
// buffers that are posted ahead. The process spins, as programs of libfabric do.

#include "../common/peer.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define POSTED_MAX 512

static void check(ssize_t status, const char *what) {
    if (status) peer_die("%s: %s", what, fi_strerror((int)-status));
}

// Completions that came, of at most `max`.
static ssize_t completions(struct fid_cq *cq, struct fi_cq_msg_entry *entries, size_t max) {
    ssize_t n = fi_cq_read(cq, entries, max);
    if (n == -FI_EAGAIN) return 0;
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(cq, &error, 0);
        // The other side has gone: nothing more comes, and nothing is taken.
        if (peer_stopping()) return 0;
        peer_die("a completion: %s", fi_strerror(error.err));
    }
    if (n < 0) check(n, "fi_cq_read");
    return n;
}

static void send_all(struct fid_ep *ep, struct fid_cq *cq, fi_addr_t to) {
    struct fi_cq_msg_entry entries[64];
    size_t under_way = 0, most = peer.queue < peer.slots / 2 ? peer.queue : peer.slots / 2;
    if (!most) most = 1;
    peer_wait_go();
    while (!peer_stopping()) {
        ssize_t status = -FI_EAGAIN;
        if (under_way < most) status = fi_send(ep, peer_slot(), peer.bytes, NULL, to, NULL);
        if (!status) {
            under_way++;
            peer_sent();
        } else if (status != -FI_EAGAIN) check(status, "fi_send");
        if (status) under_way -= (size_t)completions(cq, entries, 64);
    }
    uint64_t until = peer_now_ns() + 1000000000ull;
    while (under_way && peer_now_ns() < until) under_way -= (size_t)completions(cq, entries, 64);
}

static void receive_all(struct fid_ep *ep, struct fid_cq *cq, size_t posted) {
    struct fi_cq_msg_entry entries[64];
    size_t held_max = peer_held_max(), buffers = posted + held_max, next = 0;
    unsigned char **held = calloc(held_max, sizeof *held);
    void *memory = mmap(NULL, buffers * peer.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!held || memory == MAP_FAILED) peer_die("no memory for %zu messages", buffers);
    madvise(memory, buffers * peer.bytes, MADV_HUGEPAGE);
    memset(memory, 0, buffers * peer.bytes);
    for (size_t i = 0; i < posted; i++) {
        unsigned char *buffer = (unsigned char *)memory + i * peer.bytes;
        check(fi_recv(ep, buffer, peer.bytes, NULL, FI_ADDR_UNSPEC, buffer), "fi_recv");
    }
    // The others stand in for messages that are held already.
    for (size_t i = 0; i < held_max; i++) held[i] = (unsigned char *)memory + (posted + i) * peer.bytes;
    peer_ready();
    while (1) {
        ssize_t n = completions(cq, entries, 64);
        if (!n && peer_over()) break;
        for (ssize_t i = 0; i < n; i++) {
            unsigned char *got = entries[i].op_context, *oldest = held[next];
            peer_received(got, entries[i].len);
            held[next] = got;
            next = (next + 1) % held_max;
            ssize_t status;
            while ((status = fi_recv(ep, oldest, peer.bytes, NULL, FI_ADDR_UNSPEC, oldest)) == -FI_EAGAIN) {}
            check(status, "fi_recv");
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 2) peer_die("expected a provider first, such as tcp");
    const char *provider = argv[1];
    peer_start("libfabric_peer", argc - 1, argv + 1);
    if (peer.peers != 1) peer_die("--peers is %zu, expected 1", peer.peers);
    if (peer.sends == !!peer.bind[0]) peer_die("the receiver binds");
    struct fi_info *hints = fi_allocinfo(), *info;
    if (!hints) peer_die("no memory");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(provider);
    char *node = peer.bind[0] ? peer.bind : peer.connect[0], *service = strrchr(node, ':');
    if (!service) peer_die("the address is \"%s\", expected HOST:PORT", node);
    *service++ = 0;
    check(fi_getinfo(FI_VERSION(1, 17), node, service, peer.bind[0] ? FI_SOURCE : 0, hints, &info), "fi_getinfo");
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    if (peer.sends) {
        fi_addr_t to;
        if (fi_av_insert(av, info->dest_addr, 1, &to, 0, NULL) != 1) peer_die("fi_av_insert");
        peer_ready();
        send_all(ep, cq, to);
    } else {
        size_t posted = info->rx_attr->size < POSTED_MAX ? info->rx_attr->size : POSTED_MAX;
        size_t half = peer.memory_bytes / 2 / peer.bytes;
        if (posted > half) posted = half ? half : 1;
        receive_all(ep, cq, posted);
    }
    char version[64];
    uint32_t number = fi_version();
    snprintf(version, sizeof version, "libfabric %u.%u %s", FI_MAJOR(number), FI_MINOR(number), provider);
    peer_finish(version, NULL);
    return 0;
}
