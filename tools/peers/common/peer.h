// What all peers of `sheaf bench transport` in C and C++ have in common: command line, words on the standard input,
// stamps, checks, counts, one line of JSON. The same as the Rust crate in ../harness; ../README.md describes both.
//
// A peer calls peer_start, makes its sockets, and calls peer_ready. A sender then calls peer_wait_go and, until
// peer_stopping, peer_slot for each message and peer_sent when the library has it. A receiver calls peer_received for
// each message, keeps the last peer_held_max of them, and goes on until peer_over. Both end with peer_finish.

#ifndef SHEAF_PEER_H
#define SHEAF_PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PEER_ADDRESSES_MAX 1024
#define PEER_SENDERS_MAX 1024
#define PEER_MARKS_MAX 4
#define PEER_STAMP_BYTES 16
#define PEER_TIMED_BYTES 65536
#define PEER_SILENCE_NS 300000000ull
#define PEER_BUCKETS 1024
#define PEER_RELAXED __ATOMIC_RELAXED

typedef struct {
    double t_s, cpu_s, busy_s, last_t_s;
    uint64_t messages;
    uint64_t by_sender[PEER_SENDERS_MAX];
} peer_mark;

static struct {
    const char *name;
    int sends;
    char bind[64];
    char *connect[PEER_ADDRESSES_MAX];
    size_t connect_count, peers, bytes, queue, pool_bytes, memory_bytes;
    uint64_t id;
    const char *congestion;
    unsigned char *pool;
    size_t slots;
    // What is counted.
    uint64_t messages, skipped, last_ns, heard_ns;
    uint64_t by_sender[PEER_SENDERS_MAX], next[PEER_SENDERS_MAX];
    uint64_t times[PEER_BUCKETS], time_max_ns;
    int went, stopping, measuring, marks_count;
    peer_mark marks[PEER_MARKS_MAX];
} peer;

__attribute__((format(printf, 1, 2), noreturn)) static void peer_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", peer.name ? peer.name : "peer");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static inline uint64_t peer_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t peer_now_ns(void) { return peer_clock_ns(CLOCK_MONOTONIC); }

// The index-th output of SplitMix64 with seed 0 (Steele, Lea, Flood, OOPSLA 2014).
static inline uint64_t peer_word(uint64_t index) {
    uint64_t z = (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// A receiver keeps half of its memory of messages, as a process does that builds something of them.
static inline size_t peer_held_max(void) {
    size_t messages = peer.memory_bytes / 2 / peer.bytes;
    return messages ? messages : 1;
}

static inline size_t peer_offset(uint64_t sequence) { return (size_t)(sequence % peer.slots) * peer.bytes; }

static size_t peer_number(const char *name, const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end) peer_die("%s is \"%s\", expected a number", name, text);
    return (size_t)value;
}

static void peer_start(const char *name, int argc, char **argv) {
    peer.name = name;
    peer.peers = 1;
    peer.queue = 5;
    peer.pool_bytes = peer.memory_bytes = 256u << 20;
    if (argc < 2 || (strcmp(argv[1], "send") && strcmp(argv[1], "receive")))
        peer_die("expected `send` or `receive` first; tools/peers/README.md has the rest");
    peer.sends = !strcmp(argv[1], "send");
    for (int i = 2; i < argc; i += 2) {
        const char *word = argv[i];
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) peer_die("%s has no value", word);
        if (!strcmp(word, "--bind")) snprintf(peer.bind, sizeof peer.bind, "%s", value);
        else if (!strcmp(word, "--connect")) {
            for (char *one = strtok(value, ","); one; one = strtok(NULL, ",")) {
                if (peer.connect_count == PEER_ADDRESSES_MAX) peer_die("more than %d addresses", PEER_ADDRESSES_MAX);
                peer.connect[peer.connect_count++] = one;
            }
        } else if (!strcmp(word, "--peers")) peer.peers = peer_number(word, value);
        else if (!strcmp(word, "--bytes")) peer.bytes = peer_number(word, value);
        else if (!strcmp(word, "--queue")) peer.queue = peer_number(word, value);
        else if (!strcmp(word, "--pool-bytes")) peer.pool_bytes = peer_number(word, value);
        else if (!strcmp(word, "--memory-bytes")) peer.memory_bytes = peer_number(word, value);
        else if (!strcmp(word, "--id")) peer.id = peer_number(word, value);
        else if (!strcmp(word, "--congestion")) peer.congestion = value;
        else peer_die("%s is not known", word);
    }
    if (peer.bytes < PEER_STAMP_BYTES || peer.pool_bytes < peer.bytes)
        peer_die("--bytes is %zu, expected %d to --pool-bytes", peer.bytes, PEER_STAMP_BYTES);
    if (!peer.peers || peer.peers > PEER_SENDERS_MAX || !peer.queue || peer.id >= PEER_SENDERS_MAX)
        peer_die("--peers and --id are below %d, --queue is at least 1", PEER_SENDERS_MAX);
    if (!peer.bind[0] && peer.connect_count != peer.peers) peer_die("--connect names %zu of %zu peers", peer.connect_count, peer.peers);
    peer.slots = peer.pool_bytes / peer.bytes;
    if (!peer.sends) return;
    size_t bytes = (peer.pool_bytes + 7) / 8 * 8;
    void *pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool == MAP_FAILED) peer_die("cannot map a pool of %zu bytes", bytes);
    madvise(pool, bytes, MADV_HUGEPAGE);
    peer.pool = (unsigned char *)pool;
    for (size_t i = 0; i < bytes / 8; i++) ((uint64_t *)pool)[i] = peer_word(i);
}

static double peer_busy_s(void) {
    FILE *file = fopen("/proc/stat", "r");
    unsigned long long user = 0, nice = 0, system = 0, irq = 0, soft = 0, steal = 0;
    int found = 0;
    if (file) {
        found = fscanf(file, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq, &soft, &steal);
        fclose(file);
    }
    return found == 6 ? (double)(user + nice + system + irq + soft + steal) / 100.0 : 0.0;
}

static void peer_mark_now(void) {
    if (peer.marks_count == PEER_MARKS_MAX) return;
    peer_mark *mark = &peer.marks[peer.marks_count];
    uint64_t last = __atomic_load_n(&peer.last_ns, PEER_RELAXED), now = peer_now_ns();
    mark->t_s = (double)now / 1e9;
    mark->cpu_s = (double)peer_clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
    mark->busy_s = peer_busy_s();
    mark->messages = __atomic_load_n(&peer.messages, PEER_RELAXED);
    mark->last_t_s = (double)(last ? last : now) / 1e9;
    for (size_t i = 0; i < peer.peers; i++) mark->by_sender[i] = __atomic_load_n(&peer.by_sender[i], PEER_RELAXED);
    peer.marks_count++;
    __atomic_store_n(&peer.measuring, peer.marks_count == 1, PEER_RELAXED);
}

static void *peer_hear(void *unused) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "go\n")) __atomic_store_n(&peer.went, 1, __ATOMIC_RELEASE);
        else if (!strcmp(line, "mark\n")) peer_mark_now();
        else break;
    }
    // Also when the parent process has gone.
    __atomic_store_n(&peer.stopping, 1, __ATOMIC_RELEASE);
    return unused;
}

static void peer_ready(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, peer_hear, NULL)) peer_die("cannot start a thread");
    pthread_detach(thread);
    puts("ready");
    fflush(stdout);
}

static inline int peer_stopping(void) { return __atomic_load_n(&peer.stopping, PEER_RELAXED); }

static void peer_wait_go(void) {
    while (!__atomic_load_n(&peer.went, __ATOMIC_ACQUIRE) && !peer_stopping()) usleep(1000);
}

// The slot of the next message.
static inline size_t peer_next_slot(void) { return (size_t)((peer.messages + peer.skipped) % peer.slots); }

// Leaves out the next sequence number, and with it its slot.
static inline void peer_skip(void) { peer.skipped++; }

// Where the next message lies, with its stamp in it. The caller ensures that the slot has no reader any more.
static inline unsigned char *peer_slot(void) {
    uint64_t sequence = peer.messages + peer.skipped, word = peer.id << 48 | sequence;
    uint64_t sent_ns = peer.bytes >= PEER_TIMED_BYTES || sequence % 64 == 0 ? peer_now_ns() : 0;
    unsigned char *slot = peer.pool + peer_offset(sequence);
    memcpy(slot, &word, 8);
    memcpy(slot + 8, &sent_ns, 8);
    return slot;
}

static inline void peer_sent(void) { __atomic_store_n(&peer.messages, peer.messages + 1, PEER_RELAXED); }

static inline void peer_time(uint64_t ns) {
    if (ns > peer.time_max_ns) peer.time_max_ns = ns;
    if (ns < 16) peer.times[ns]++;
    else {
        int power = 63 - __builtin_clzll(ns);
        peer.times[(power - 3) * 16 + (int)((ns >> (power - 4)) - 16)]++;
    }
}

// Checks and counts a message.
static inline void peer_received(const unsigned char *data, size_t bytes) {
    uint64_t word, sent_ns;
    if (bytes != peer.bytes) peer_die("a message of %zu bytes came, expected %zu", bytes, peer.bytes);
    memcpy(&word, data, 8);
    memcpy(&sent_ns, data + 8, 8);
    uint64_t sender = word >> 48, sequence = word & ((1ull << 48) - 1);
    if (sender >= peer.peers) peer_die("a message of sender %llu came", (unsigned long long)sender);
    if (sequence < peer.next[sender])
        peer_die("message %llu came, expected %llu", (unsigned long long)sequence, (unsigned long long)peer.next[sender]);
    peer.next[sender] = sequence + 1;
    size_t position = peer_offset(sequence) + peer.bytes - 1;
    unsigned char expected = (unsigned char)(peer_word(position / 8) >> (position % 8 * 8));
    if (bytes > PEER_STAMP_BYTES && data[bytes - 1] != expected)
        peer_die("message %llu ends with %u, expected %u", (unsigned long long)sequence, data[bytes - 1], expected);
    __atomic_store_n(&peer.messages, peer.messages + 1, PEER_RELAXED);
    __atomic_store_n(&peer.by_sender[sender], peer.by_sender[sender] + 1, PEER_RELAXED);
    if (sent_ns) {
        uint64_t now = peer_now_ns();
        if (peer.bytes >= PEER_TIMED_BYTES) __atomic_store_n(&peer.last_ns, now, PEER_RELAXED);
        if (__atomic_load_n(&peer.measuring, PEER_RELAXED)) peer_time(now > sent_ns ? now - sent_ns : 0);
    }
    if (peer_stopping()) peer.heard_ns = peer_now_ns();
}

// Whether a receiver has all there is: the order to stop came, then nothing for long. To be called when nothing came.
static inline int peer_over(void) {
    if (!peer_stopping()) return 0;
    if (!peer.heard_ns) peer.heard_ns = peer_now_ns();
    return peer_now_ns() - peer.heard_ns > PEER_SILENCE_NS;
}

static double peer_quantile_us(double share, uint64_t n) {
    uint64_t rank = (uint64_t)((double)n * share), below = 0;
    if (rank >= n) rank = n - 1;
    for (int i = 0; i < PEER_BUCKETS; i++) {
        below += peer.times[i];
        if (below > rank) {
            if (i < 16) return i / 1e3;
            return ((double)(16 + i % 16) + 0.5) * (double)(1ull << (i / 16 - 1)) / 1e3;
        }
    }
    return 0;
}

static void peer_finish(const char *version, const char *congestion) {
    // Marks come before the word to stop; one whose senders have gone may not have received them yet.
    while (!peer_stopping()) usleep(1000);
    uint64_t n = 0;
    long rss_kib = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &rss_kib);
    if (status) fclose(status);
    printf("{\"version\":\"%s\",\"messages\":%llu,\"rss_bytes_max\":%lld,\"congestion\":", version,
           (unsigned long long)peer.messages, (long long)rss_kib * 1024);
    printf(congestion ? "\"%s\"" : "null", congestion);
    printf(",\"marks\":[");
    for (int i = 0; i < peer.marks_count; i++) {
        peer_mark *mark = &peer.marks[i];
        printf("%s{\"t_s\":%.9f,\"cpu_s\":%.9f,\"busy_s\":%.2f,\"messages\":%llu,\"last_t_s\":%.9f,\"by_sender\":[", i ? "," : "",
               mark->t_s, mark->cpu_s, mark->busy_s, (unsigned long long)mark->messages, mark->last_t_s);
        for (size_t j = 0; !peer.sends && j < peer.peers; j++)
            printf("%s%llu", j ? "," : "", (unsigned long long)mark->by_sender[j]);
        printf("]}");
    }
    for (int i = 0; i < PEER_BUCKETS; i++) n += peer.times[i];
    printf("],\"latency_us\":");
    if (n)
        printf("{\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f,\"n\":%llu}", peer_quantile_us(0.5, n), peer_quantile_us(0.99, n),
               (double)peer.time_max_ns / 1e3, (unsigned long long)n);
    else printf("null");
    printf("}\n");
    fflush(stdout);
}

#endif
