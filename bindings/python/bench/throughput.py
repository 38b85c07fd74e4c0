"""Throughput of sources and consumers in Python beside those in Rust, and beside pyzmq.

    python3 bindings/python/bench/throughput.py --rounds 7 --json docs/results/python.json

Question: what do a source and a consumer in Python cost? Workload: TFs of one STF of 1 MB on one machine, from one
process to another; each consumer looks at the first and the last byte of a TF. Unit: MB/s from the first TF to the
last. The rows of a round run one after the other, so that a busy machine meets all of them; ratios are of one round.

    rust      a generator as FLP, `sheaf data consume --no-check` as consumer
    consumer  a generator as FLP, sheaf.consume as consumer
    both      sheaf.Source as FLP, sheaf.consume as consumer
    pyzmq     PUSH to PULL over ipc, without a copy at either end (zmq.Frame)

The median of all rounds is shown with the interval between the second lowest and the second highest.
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq

import sheaf

SPAWN = multiprocessing.get_context("spawn")


def config(tfs: int, nbytes: int) -> dict[str, dict[str, Any]]:
    return {
        "run": {"timeframes": tfs},
        "flp": {"rate_hz": 0.0, "hold_bytes": 256 << 20, "stf_bytes_max": 16 << 20},
        "flp.source": {"kind": "generator", "bytes_mean": nbytes},
        "epn.build": {"capacity_bytes": 256 << 20},
    }


def touch(data: memoryview) -> None:
    """Looks at both ends; the view is gone at the end, before the next TF is waited for."""
    data[0] ^ data[-1]


def look(address: str) -> tuple[int, float]:
    """Takes all TFs; returns their bytes behind the first one, and the seconds from the first to the last."""
    nbytes, began = 0, 0.0
    for tf in sheaf.consume(address, wait=30):
        if began == 0.0:
            began = time.perf_counter()
        else:
            nbytes += tf.nbytes
        touch(tf.parts[0].data)
    return nbytes, time.perf_counter() - began


def rust(tfs: int, nbytes: int) -> float:
    with sheaf.farm(source="generator", config=config(tfs, nbytes)) as farm:
        summary = farm.folder / "consumer.json"
        command = [sheaf.program(), "data", "consume", farm.address().removeprefix("shm:"), "--no-check", "--json", summary]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        told = json.loads(summary.read_text())
    return told["bytes"] / told["seconds"] / 1e6


def consumer(tfs: int, nbytes: int) -> float:
    with sheaf.farm(source="generator", config=config(tfs, nbytes)) as farm:
        taken, seconds = look(farm.address())
    return taken / seconds / 1e6


def consume_elsewhere(address: str, results) -> None:
    results.put(look(address))


def both(tfs: int, nbytes: int) -> float:
    tables = config(tfs, nbytes)
    del tables["flp.source"]
    payload = bytes(nbytes)
    with sheaf.farm(config=tables) as farm:
        results = SPAWN.Queue()
        process = SPAWN.Process(target=consume_elsewhere, args=[farm.address(), results])
        process.start()
        with farm.source() as source:
            for tf in range(tfs):
                source.send(tf, payload)
        taken, seconds = results.get(timeout=60)
        process.join()
    return taken / seconds / 1e6


def pull(address: str, tfs: int, results) -> None:
    socket = zmq.Context().socket(zmq.PULL)
    socket.connect(address)
    nbytes, began = 0, 0.0
    for tf in range(tfs):
        frame = socket.recv(copy=False)
        if tf == 0:
            began = time.perf_counter()
        else:
            nbytes += len(frame)
        frame.buffer[0] ^ frame.buffer[-1]
    results.put((nbytes, time.perf_counter() - began))


def pyzmq(tfs: int, nbytes: int) -> float:
    payload = bytes(nbytes)
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/zmq"
        context = zmq.Context()
        socket = context.socket(zmq.PUSH)
        socket.bind(address)
        results = SPAWN.Queue()
        process = SPAWN.Process(target=pull, args=[address, tfs, results])
        process.start()
        for _ in range(tfs):
            socket.send(payload, copy=False)
        taken, seconds = results.get(timeout=60)
        process.join()
        context.destroy(linger=0)
    return taken / seconds / 1e6


ROWS = {"rust": rust, "consumer": consumer, "both": both, "pyzmq": pyzmq}


def summed(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    inner = values[1:-1] if len(values) >= 5 else values
    return {"median": statistics.median(values), "low": inner[0], "high": inner[-1]}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--tfs", type=int, default=3000, help="TFs of each row")
    words.add_argument("--bytes", type=int, default=1_000_000, help="bytes of an STF")
    words.add_argument("--json", type=Path, help="write all figures to this file")
    asked = words.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in ROWS}
    for number in range(asked.rounds):
        for name, row in ROWS.items():
            rates[name].append(row(asked.tfs, asked.bytes))
            print(f"round {number + 1}/{asked.rounds} {name:9} {rates[name][-1]:8.0f} MB/s", flush=True)
    ratios = {
        "consumer/rust": [a / b for a, b in zip(rates["consumer"], rates["rust"])],
        "both/pyzmq": [a / b for a, b in zip(rates["both"], rates["pyzmq"])],
        "consumer/pyzmq": [a / b for a, b in zip(rates["consumer"], rates["pyzmq"])],
    }
    told = {
        "version": sheaf.__version__,
        "machine": {"cpus": multiprocessing.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "pyzmq": zmq.__version__,
        "rounds": asked.rounds,
        "tfs": asked.tfs,
        "bytes": asked.bytes,
        "mb_per_s": {name: summed(values) | {"all": values} for name, values in rates.items()},
        "ratios": {name: summed(values) | {"all": values} for name, values in ratios.items()},
    }
    for name, row in (told["mb_per_s"] | told["ratios"]).items():
        print(f"{name:15} {row['median']:10.2f}  [{row['low']:.2f}, {row['high']:.2f}]")
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
