"""A peer of real ZeroMQ for tests/peers.rs: pyzmq. The same as peer.c.

    peer.py push|pull|pub|sub bind|connect ENDPOINT COUNT SIZE[,SIZE...]

Message N has two parts: N as 4 bytes, little-endian, and as many bytes of value N mod 256 as the sizes say in turn.
Prints where it is bound; a receiver prints `ok COUNT` when all came as they should. A PUB sends empty messages until a
line comes in on the standard input.
"""

import struct
import sys

import zmq

pattern, method, endpoint, count, sizes = sys.argv[1:]
count, sizes = int(count), [int(size) for size in sizes.split(",")]
context = zmq.Context()
socket = context.socket(getattr(zmq, pattern.upper()))
socket.linger = 60_000
socket.sndhwm = socket.rcvhwm = 0 if pattern in ("pub", "sub") else 10
socket.rcvtimeo = socket.sndtimeo = 60_000
if pattern == "sub":
    socket.subscribe(b"")
getattr(socket, method)(endpoint)
print(socket.last_endpoint.decode().rstrip("\0"), flush=True)


def message(number):
    return [struct.pack("<I", number), bytes([number % 256]) * sizes[number % len(sizes)]]


if pattern == "pub":
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while not poller.poll(10):
        socket.send(b"")
if pattern in ("push", "pub"):
    for number in range(count):
        socket.send_multipart(message(number))
else:
    for number in range(count):
        found = socket.recv_multipart()
        if found != message(number):
            sys.exit(f"message {number} is another one: {[part[:8] for part in found]}")
    print(f"ok {count}", flush=True)
socket.close()
context.term()
