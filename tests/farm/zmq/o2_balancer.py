"""Processes of O2-Balancer2, as far as its channels show them, for zmq.rs: pyzmq in place of FairMQ.

    o2_balancer.py flp HEARTBEATS ITERATIONS BYTES
    o2_balancer.py epn FEEDBACK ID FLPS ENDPOINT

The FLP subscribes to the heartbeats, connects to the configured channels, and pushes a header and BYTES of payload
for each heartbeat. The EPN listens at ENDPOINT and prints it, registers, counts FLPS messages a heartbeat and
acknowledges them by its id, unless they were of different heartbeats. It ends when its standard input does, and prints
the sets that it has acknowledged, those that it has thrown away, and the messages in one that did not end.
"""

import struct
import sys

import zmq

DATA, CHANNEL = struct.Struct("<QQ?7x"), struct.Struct("<4s4xQH6x")
context = zmq.Context()


def flp(heartbeats, iterations, size):
    broadcast = context.socket(zmq.SUB)
    broadcast.rcvtimeo = 60_000
    broadcast.subscribe(b"")
    broadcast.connect(heartbeats)
    channels = {}
    for _ in range(int(iterations)):
        head, *rest = broadcast.recv_multipart()
        while DATA.unpack(head)[2]:
            for ip, index, port in map(CHANNEL.unpack, rest):
                if index not in channels:
                    channels[index] = context.socket(zmq.PUSH)
                    channels[index].linger = 60_000
                    channels[index].connect(f"tcp://{'.'.join(map(str, ip))}:{port}")
            head, *rest = broadcast.recv_multipart()
        channels[DATA.unpack(head)[1]].send_multipart([head, b"a" * int(size)])
    broadcast.close(linger=0)
    for channel in channels.values():
        channel.close()
    context.term()


def epn(feedback, name, flps, endpoint):
    data = context.socket(zmq.PULL)
    data.bind(endpoint)
    print(endpoint, flush=True)
    answers = context.socket(zmq.PUSH)
    answers.linger = 60_000
    answers.connect(feedback)
    answers.send_multipart([DATA.pack(0, 0, True), CHANNEL.pack(bytes([127, 0, 0, 1]), int(name), 5555)])
    poller = zmq.Poller()
    poller.register(data, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    current, messages, is_mixed, acknowledged, mixed = 0, 0, False, 0, 0
    while True:
        ready = dict(poller.poll())
        if data not in ready:
            break
        head, _ = data.recv_multipart()
        heartbeat = DATA.unpack(head)[0]
        if messages == 0:
            current = max(current, heartbeat)
        is_mixed |= heartbeat != current
        messages += 1
        if messages == int(flps):
            if not is_mixed:
                answers.send(name.encode())
            acknowledged, mixed = acknowledged + (not is_mixed), mixed + is_mixed
            messages, is_mixed = 0, False
    print(acknowledged, mixed, messages, flush=True)
    answers.close()
    data.close(linger=0)
    context.term()


{"flp": flp, "epn": epn}[sys.argv[1]](*sys.argv[2:])
