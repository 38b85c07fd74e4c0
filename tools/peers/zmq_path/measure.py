#!/usr/bin/env python3
"""ZeroMQ from end to end: straight, over two proxies, and through a farm of one FLP and one EPN.

    measure.py --path PROGRAM --farm NAME=SHEAF [--farm NAME=SHEAF ...] [--rounds N] [--output FILE]

PROGRAM is path.c. Every round runs all ways at every size, one after the other, in turned order. Prints a Markdown
table of medians with the lowest and highest value; --output gets every single run as JSON.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = [1_000, 10_000, 100_000, 1_000_000]
TICKS_S = os.sysconf("SC_CLK_TCK")
FARM = """
[run]
flps = 1
epns = 1
[icn]
address = "127.0.0.1:{icn}"
[icn.ledger]
backend = "memory"
[flp.source]
kind = "zmq"
endpoint = "tcp://127.0.0.1:{first}"
framing = "count"
[epn.sink]
kind = "zmq"
endpoint = "tcp://127.0.0.1:{last}"
method = "connect"
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


class Way:
    """All processes of one run."""

    def __init__(self, options, folder):
        self.options, self.folder, self.processes = options, folder, {}

    def start(self, name, command, **more):
        log = open(os.path.join(self.folder, name + ".log"), "wb")
        more = {"stdin": subprocess.DEVNULL, "stdout": log, **more}
        pinned = ["taskset", "-c", self.options.cpus]
        self.processes[name] = subprocess.Popen(pinned + command, stderr=log, **more)
        return self.processes[name]

    def run(self, way, size):
        path, pipe = self.options.path, subprocess.PIPE
        ports = free_ports(4)
        at = [f"tcp://127.0.0.1:{port}" for port in ports]
        self.receiver = self.start("receive", [path, "receive", at[0]], stdin=pipe, stdout=pipe, text=True)
        if way == "direct":
            first = at[0]
        elif way == "proxies":
            first = at[2]
            self.start("proxy-2", [path, "proxy", at[1], at[0]])
            self.start("proxy-1", [path, "proxy", at[2], at[1]])
        else:
            first = at[1]
            config = os.path.join(self.folder, "farm.toml")
            with open(config, "w", encoding="ascii") as file:
                file.write(FARM.format(icn=ports[2], first=ports[1], last=ports[0]))
            sheaf = dict(self.options.farm)[way]
            for role in ("icn", "epn", "flp"):
                index = [] if role == "icn" else ["--index", "0"]
                self.start(role, [sheaf, "run", role, "--config", config] + index)
        self.start("send", [path, "send", str(size), first])
        deadline = time.monotonic() + 30
        while self.mark()[1] == 0:
            if time.monotonic() > deadline:
                sys.exit(f"{way}: no message in 30 s, see the logs in {self.folder}")
            time.sleep(0.05)
        time.sleep(self.options.warm)
        before, cpu_before = self.mark(), self.cpu()
        time.sleep(self.options.seconds)
        after, cpu_after = self.mark(), self.cpu()
        seconds, messages = after[0] - before[0], after[1] - before[1]
        if messages == 0:
            sys.exit(f"{way}: no message in {seconds:.1f} s, see the logs in {self.folder}")
        gigabytes = messages * size / 1e9
        cpu = {name: (cpu_after[name] - cpu_before[name]) / gigabytes for name in cpu_after}
        between = sum(value for name, value in cpu.items() if name not in ("send", "receive"))
        return {
            "way": way,
            "bytes": size,
            "seconds": seconds,
            "messages": messages,
            "messages_s": messages / seconds,
            "gb_s": gigabytes / seconds,
            "cpu_s_gb": cpu,
            "cpu_s_gb_between": between,
        }

    def mark(self):
        self.receiver.stdin.write("mark\n")
        self.receiver.stdin.flush()
        seconds, messages, size = self.receiver.stdout.readline().split()
        return float(seconds), int(messages), int(size)

    def cpu(self):
        return {name: cpu_s(process.pid) for name, process in self.processes.items()}

    def end(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


def spread(values, digits):
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def table(runs, ways):
    lines = [
        "| bytes | way | messages/s | of direct | of two proxies | CPU s/GB between the ends | of these |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for size in sorted({run["bytes"] for run in runs}):
        rates = {}
        for way in ways:
            mine = [run for run in runs if (run["way"], run["bytes"]) == (way, size)]
            rates[way] = [run["messages_s"] for run in mine]
            ratios = {}
            for base in ("direct", "proxies"):
                # Of the same round, so that what else the machine did weighs on both.
                pairs = zip(rates[way], rates[base]) if base in rates else []
                ratios[base] = spread([a / b for a, b in pairs], 2) if base in rates else "–"
            names = [name for name in mine[0]["cpu_s_gb"] if name not in ("send", "receive")]
            parts = ", ".join(
                f"{name} {statistics.median([run['cpu_s_gb'][name] for run in mine]):.2f}" for name in sorted(names)
            )
            between = spread([run["cpu_s_gb_between"] for run in mine], 2) if names else "–"
            lines.append(
                f"| {size} | {way} | {spread(rates[way], 0)} | {ratios['direct']} | {ratios['proxies']} "
                f"| {between} | {parts or '–'} |"
            )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True, help="path.c, compiled")
    parser.add_argument("--farm", action="append", default=[], type=lambda text: text.split("=", 1))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=float, default=1.0)
    parser.add_argument("--cpus", default=f"0-{os.cpu_count() - 1}")
    parser.add_argument("--bytes", action="append", type=int)
    parser.add_argument("--output")
    options = parser.parse_args()
    ways = ["direct", "proxies"] + [name for name, _ in options.farm]
    runs = []
    for number in range(options.rounds):
        for size in options.bytes or SIZES:
            turned = ways[number % len(ways):] + ways[:number % len(ways)]
            for name in turned:
                with tempfile.TemporaryDirectory() as folder:
                    way = Way(options, folder)
                    try:
                        run = way.run(name, size)
                    finally:
                        way.end()
                run["round"] = number
                runs.append(run)
                print(f"{number} {size} {name} {run['messages_s']:.0f}/s", file=sys.stderr)
    if options.output:
        machine = {"kernel": platform.release(), "cpus": os.cpu_count(), "pinned": options.cpus}
        with open(options.output, "w", encoding="ascii") as file:
            json.dump({"command": sys.argv[1:], "machine": machine, "runs": runs}, file, indent=1)
            file.write("\n")
    print(table(runs, ways))


if __name__ == "__main__":
    main()
