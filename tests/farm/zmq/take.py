"""A consumer of real ZeroMQ for zmq.rs: pyzmq. The same as take.c.

    take.py pull|sub bind|connect ENDPOINT FOLDER COUNT

Prints where it is bound or connected, and `begun` when the first message has come. Writes message N to FOLDER/N, its
parts one behind the other, and ends behind COUNT of them; with a COUNT of 0 behind one that has a single part, a TF
without STFs.
"""

import pathlib
import sys

import zmq

pattern, method, endpoint, folder, count = sys.argv[1:]
context = zmq.Context()
socket = context.socket(getattr(zmq, pattern.upper()))
socket.rcvtimeo = 60_000
socket.linger = 0
if pattern == "sub":
    socket.rcvhwm = 0
    socket.subscribe(b"")
getattr(socket, method)(endpoint)
print(socket.last_endpoint.decode().rstrip("\0"), flush=True)
number, is_over = 0, False
while not is_over:
    parts = socket.recv_multipart()
    (pathlib.Path(folder) / str(number)).write_bytes(b"".join(parts))
    if number == 0:
        print("begun", flush=True)
    number += 1
    is_over = number == int(count) or (int(count) == 0 and len(parts) == 1)
socket.close()
context.term()
