// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Plane `tc`: packets to a virtual address get the hardware address of their server, and leave by the interface that
// they came in at. One program of a service, as classifier of tc and as program of XDP.
//
// A table is one program: what is constant of it is in sections for reading, so the verifier takes out of the machine
// code what has nothing to do, such as the look-up of pins where there are none. A change is a further program that
// the kernel puts in the place of this one, in one step. Two maps are handed on from program to program: notes of
// connections that began while their slot was on the move or pinned, and counters.
//
// No helper of the kernel is used that asks for the GPL. Layouts are those of ../src/tc/image.rs.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ADDRESSES 8
#define SERVERS 256
#define SLOTS 65537
#define NAME 40
// Connections that are noted at most. More of them begin where they would have without a move.
#define NOTES (1 << 18)
// Slot that is not on the move, packet that no server gets, and one that is dropped.
#define NONE 0xffff
#define DROP 0xfffe
#define SEED 0x5eaf0001
// Ethernet, the longest header of IP, and TCP without options: all that is looked at.
#define HEADERS (14 + 60 + 20)

struct config {
	__u32 version;
	__u32 interface;
	// Number of slots; 0 while the service has no server.
	__u32 slots;
	__u32 addresses;
	// End of the time in which first packets wait, in ns of the monotonic clock.
	__u64 hold_until;
	__u16 port;
	__u16 first;
	__u16 last;
	__u8 by_client;
	__u8 has_pins;
	__u8 has_moving;
	__u8 spare;
	__u8 own[ETH_ALEN];
	// IPv4 as IPv6: ::ffff:10.0.0.1.
	__u32 address[ADDRESSES][4];
	char service[NAME];
};

struct server {
	__u8 mac[ETH_ALEN];
	__u8 is_used;
	__u8 spare;
	char name[NAME];
};

struct slot {
	__u16 own;
	__u16 next;
};

struct flow {
	__u32 address[4];
	__be16 port;
	__u16 spare;
};

struct pin {
	__u16 server;
	// Whether first packets wait.
	__u16 is_held;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

const volatile struct config CONFIG SEC(".rodata.config") = {};
const volatile struct server SERVER[SERVERS] SEC(".rodata.server") = {};
const volatile struct slot SLOT[SLOTS] SEC(".rodata.slot") = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow);
	__type(value, struct pin);
	__uint(max_entries, 1);
} pin SEC(".maps");

// Memory for notes that there are, and not for those that there may be.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow);
	__type(value, __u32);
	__uint(max_entries, NOTES);
} notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct counter);
	__uint(max_entries, SERVERS);
} counters SEC(".maps");

static __always_inline __u32 rotate(__u32 word, __u32 by)
{
	return (word << by) | (word >> (32 - by));
}

// Bob Jenkins' lookup3 of address and port, as Affinity::hash of the director has it.
static __always_inline __u32 hash(const struct flow *flow, int is_v4, int by_client)
{
	__u32 length = (is_v4 ? 4 : 16) + (by_client ? 0 : 4);
	__u32 a, b, c;

	a = b = c = 0xdeadbeef + length + SEED;
	if (is_v4) {
		a += flow->address[3];
		if (!by_client)
			b += flow->port;
	} else {
		a += flow->address[0];
		b += flow->address[1];
		c += flow->address[2];
		a = (a - c) ^ rotate(c, 4);
		c += b;
		b = (b - a) ^ rotate(a, 6);
		a += c;
		c = (c - b) ^ rotate(b, 8);
		b += a;
		a = (a - c) ^ rotate(c, 16);
		c += b;
		b = (b - a) ^ rotate(a, 19);
		a += c;
		c = (c - b) ^ rotate(b, 4);
		b += a;
		a += flow->address[3];
		if (!by_client)
			b += flow->port;
	}
	c = (c ^ b) - rotate(b, 14);
	a = (a ^ c) - rotate(c, 11);
	b = (b ^ a) - rotate(a, 25);
	c = (c ^ b) - rotate(b, 16);
	a = (a ^ c) - rotate(c, 4);
	b = (b ^ a) - rotate(a, 14);
	return (c ^ b) - rotate(b, 24);
}

static __always_inline int is_own(const __u32 *address)
{
	for (__u32 at = 0; at < ADDRESSES; at++) {
		if (at >= CONFIG.addresses)
			return 0;
		if (address[0] == CONFIG.address[at][0] && address[1] == CONFIG.address[at][1] &&
		    address[2] == CONFIG.address[at][2] && address[3] == CONFIG.address[at][3])
			return 1;
	}
	return 0;
}

// Reads where the packet comes from. Returns whether it is one of the service: 0 no, 1 IPv6, 2 IPv4.
static __always_inline int read(void *data, void *end, struct flow *flow, int *is_first)
{
	struct ethhdr *ethernet = data;
	struct tcphdr *tcp;
	__u32 to[4] = {};
	int found = 1;

	if ((void *)(ethernet + 1) > end)
		return 0;
	// A switch that does not know where the director is sends its packets to all, to another one as well.
	for (int at = 0; at < ETH_ALEN; at++)
		if (ethernet->h_dest[at] != CONFIG.own[at])
			return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP || ip->ihl < 5)
			return 0;
		// Fragments have no ports.
		if (ip->frag_off & bpf_htons(0x3fff))
			return 0;
		flow->address[2] = to[2] = bpf_htonl(0xffff);
		flow->address[3] = ip->saddr;
		to[3] = ip->daddr;
		tcp = (void *)ip + ip->ihl * 4;
		found = 2;
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(flow->address, &ip->saddr, 16);
		__builtin_memcpy(to, &ip->daddr, 16);
		tcp = (void *)(ip + 1);
	} else {
		return 0;
	}
	if ((void *)(tcp + 1) > end || !is_own(to))
		return 0;
	__u16 port = bpf_ntohs(tcp->dest);
	if (port != CONFIG.port && (port < CONFIG.first || port > CONFIG.last))
		return 0;
	flow->port = tcp->source;
	*is_first = tcp->syn && !tcp->ack;
	return found;
}

// Returns the server at a place of the table, if there is one.
static __always_inline const volatile struct server *server_at(__u64 place)
{
	if (place >= SERVERS)
		return 0;
	// The verifier of Linux 6.1 does not know that the comparison was about this register.
	asm volatile("%0 &= %1" : "+r"(place) : "i"(SERVERS - 1));
	return SERVER[place].is_used ? &SERVER[place] : 0;
}

// Returns the server that was noted of a connection.
static __always_inline __u32 noted(const struct flow *flow)
{
	__u32 *server = bpf_map_lookup_elem(&notes, flow);
	if (!server)
		return NONE;
	__u32 found = *server;
	return server_at(found) ? found : NONE;
}

// Notes where a connection begins. One that cannot be noted begins where its further packets go.
static __always_inline __u32 note(const struct flow *flow, __u32 server, __u32 otherwise)
{
	if (bpf_map_update_elem(&notes, flow, &server, BPF_ANY))
		return otherwise;
	return server;
}

static __always_inline __u32 choose(struct flow *flow, int is_v4, int is_first)
{
	int by_client = CONFIG.by_client;
	__u64 at = ((__u64)hash(flow, is_v4, by_client) * CONFIG.slots) >> 32;
	barrier_var(at);
	if (at >= SLOTS)
		return NONE;
	__u32 own = SLOT[at].own;
	__u32 next = CONFIG.has_moving ? SLOT[at].next : NONE;

	if (by_client) {
		int waits = is_first && (CONFIG.has_pins || next != NONE) &&
			    bpf_ktime_get_ns() < CONFIG.hold_until;
		flow->port = 0;
		struct pin *pinned = CONFIG.has_pins ? bpf_map_lookup_elem(&pin, flow) : 0;
		if (pinned)
			return waits && pinned->is_held ? DROP : pinned->server;
		return waits && next != NONE ? DROP : own;
	}
	struct pin *pinned = CONFIG.has_pins ? bpf_map_lookup_elem(&pin, flow) : 0;
	if (pinned) {
		// The client has taken the port again: it begins again at the server of its slot.
		if (is_first)
			return note(flow, next != NONE ? next : own, pinned->server);
		__u32 begun = noted(flow);
		return begun != NONE ? begun : pinned->server;
	}
	if (next == NONE)
		return own;
	if (is_first)
		return note(flow, next, own);
	__u32 begun = noted(flow);
	return begun != NONE ? begun : own;
}

static __always_inline void count(__u32 server, __u64 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &server);
	if (!counter)
		return;
	counter->packets++;
	counter->bytes += bytes;
}

// Returns the server of a packet, whose hardware addresses are rewritten then; or NONE, or DROP.
static __always_inline __u32 direct(void *data, void *end, __u64 bytes)
{
	struct flow flow = {};
	int is_first = 0;

	if (!CONFIG.slots)
		return NONE;
	int found = read(data, end, &flow, &is_first);
	if (!found)
		return NONE;
	__u32 place = choose(&flow, found == 2, is_first);
	if (place == DROP)
		return DROP;
	const volatile struct server *server = server_at(place);
	if (!server)
		return NONE;
	struct ethhdr *ethernet = data;
	for (int at = 0; at < ETH_ALEN; at++) {
		ethernet->h_dest[at] = server->mac[at];
		ethernet->h_source[at] = CONFIG.own[at];
	}
	count(place, bytes - sizeof(*ethernet));
	return place;
}

SEC("classifier")
int sheaf_tc(struct __sk_buff *packet)
{
	__u32 linear = packet->data_end - packet->data;

	// Some drivers leave headers in pages.
	if (linear < HEADERS && linear < packet->len) {
		__u32 wanted = packet->len < HEADERS ? packet->len : HEADERS;
		if (bpf_skb_pull_data(packet, wanted))
			return TC_ACT_UNSPEC;
	}
	void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
	__u32 server = direct(data, end, packet->len);
	if (server == DROP)
		return TC_ACT_SHOT;
	// Filters behind this one, and the machine itself.
	if (server == NONE)
		return TC_ACT_UNSPEC;
	return bpf_redirect(CONFIG.interface, 0);
}

SEC("xdp")
int sheaf_xdp(struct xdp_md *packet)
{
	void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
	__u32 server = direct(data, end, end - data);
	if (server == DROP)
		return XDP_DROP;
	if (server == NONE)
		return XDP_PASS;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "MIT OR Apache-2.0";
