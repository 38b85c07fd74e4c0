"""Programs around a source or sink of your own, and the suites that hold them to their contracts."""

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ._consume import consume
from ._farm import Farm, farm
from ._sheaf import BadConfig, RunOver, SheafError, Source, Tf


class ContractError(SheafError):
    """A source or sink breaks its contract; the message says which rule, and at which TF."""


class Sink(Protocol):
    """A sink: an object that takes whole TFs."""

    def take(self, tf: Tf) -> None:
        """Takes one TF. When it returns, the TF is done, and its EPN releases it.

        A TF whose sink died before that comes again, with `tf.redelivered`: what was made of it must not be there
        twice.
        """


def run_source(make: Callable[[int, int], Any], words: Sequence[str] | None = None) -> None:
    """Runs a source: one FLP whose STFs `make(flp, tf)` returns, each as a buffer or a list of buffers.

    `words` are those of the command line: the farm file, whose `flp.source.kind` is "program", and --index. In a farm
    that is paced, TFs are those that the ICN calls for, with gaps where this FLP was too slow; in others they go up
    from 0. The source ends with the run, at an interrupt, or when `make` returns None.
    """
    parser = argparse.ArgumentParser(description="Gives STFs to a farm of Sheaf, as one of its FLPs.")
    parser.add_argument("farm", help="farm file, with flp.source.kind = \"program\"")
    parser.add_argument("--index", type=int, default=0, help="index of the FLP (default 0)")
    parser.add_argument("--tfs", type=int, help="end after this many TFs")
    parser.add_argument("--metrics", help="serve the page of metrics of the FLP at this address, HOST:PORT")
    parser.add_argument("--events", help="write the event log of the FLP to this file")
    given = parser.parse_args(words)
    try:
        with Source(given.farm, given.index, metrics=given.metrics, events=given.events) as source:
            sent = _feed(source, make, given.tfs)
            print(f"FLP {given.index} sent {sent} STFs", flush=True)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except SheafError as error:
        raise SystemExit(f"{parser.prog}: {error}") from None


def _numbers(source: Source) -> Iterator[int]:
    """Yields the TFs that a farm asks for, until the run is over."""
    try:
        yield from source.heartbeats()
    except BadConfig:
        # A farm that is not paced has none.
        yield from itertools.count()


def _feed(source: Source, make: Callable[[int, int], Any], tfs: int | None) -> int:
    """Sends STFs until the end of the run or of the source, and returns how many."""
    sent = 0
    with contextlib.suppress(RunOver):
        for tf in itertools.islice(_numbers(source), tfs):
            stf = make(source.index, tf)
            if stf is None:
                break
            source.send(tf, stf)
            sent += 1
    return sent


# Number of TFs after which a sink kills its process, with the last one taken and not yet done.
_DIE_AFTER = "SHEAF_SINK_DIE_AFTER"


def run_sink(sink: Callable[[Path], Sink], words: Sequence[str] | None = None) -> None:
    """Runs a sink: `sink(folder)` makes an object whose `take(tf)` is called for each TF of an EPN.

    `words` are those of the command line: the address of the EPN, such as shm:/run/sheaf/epn-0, and the folder for what
    the sink makes. Several processes may take from one EPN. An exception of `take` ends the process at once, with
    status 1 and before the TF is done: it goes to another process, or to the next one.
    """
    parser = argparse.ArgumentParser(description="Takes the TFs of an EPN of Sheaf.")
    parser.add_argument("address", help="address of the EPN: shm:PATH, or the path alone (epn.sink.path)")
    parser.add_argument("folder", type=Path, help="folder for what the sink makes")
    parser.add_argument("--wait", type=float, default=30.0, help="seconds to wait for the EPN (default 30)")
    given = parser.parse_args(words)
    die_after = int(os.environ.get(_DIE_AFTER, "0"))
    taken = 0
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        taker = sink(given.folder)
        for tf in consume(given.address, wait=given.wait):
            try:
                taker.take(tf)
            except BaseException:
                # A TF that is dropped is a TF that is done. One whose process has ended at once is not.
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            taken += 1
            if taken == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        print(f"took {taken} TFs", flush=True)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (SheafError, OSError) as error:
        raise SystemExit(f"{parser.prog}: {error}") from None


def check_source(make: Callable[[int, int], Any], *, flps: int = 2, tfs: int = 100) -> None:
    """Holds a source to its contract, in farms of real processes. Raises ContractError, and what `make` raises.

    - `make(flp, tf)` returns a buffer, a list of buffers, or None at the end, and None for all that come after.
    - It makes the STF of any TF whose number is higher than the last one: a paced farm leaves out those for which it
      was too slow.
    - No STF is larger than `flp.stf_bytes_max`: here 16 MiB.
    - Two FLPs do not disturb each other. What arrives is what was made, and the books of the run are right.
    """
    paces: list[tuple[str, dict[str, Any]]] = [
        ("free-running", {}),
        ("paced", {"mode": "paced", "paced_rate_hz": 50.0}),
    ]
    for name, scheduler in paces:
        config: dict[str, dict[str, Any]] = {"run": {"timeframes": tfs}, "icn.scheduler": scheduler}
        with farm(flps, 1, config=config) as running:
            _check_source_in(running, name, make, flps, tfs)


def _check_source_in(
    running: Farm, name: str, make: Callable[[int, int], Any], flps: int, tfs: int
) -> None:
    made: dict[tuple[int, int], int] = {}
    ended: dict[int, int] = {}
    failed: list[BaseException] = []

    def noting(flp: int, tf: int) -> Any:
        stf = make(flp, tf)
        if stf is None:
            ended.setdefault(flp, tf)
        elif flp in ended:
            raise ContractError(f"{name}: FLP {flp} ended at TF {ended[flp]} and made TF {tf}")
        else:
            made[flp, tf] = _digest(stf, f"{name}: FLP {flp}, TF {tf}")
        return stf

    def feed(source: Source) -> None:
        try:
            with source:
                _feed(source, noting, None)
                if source.index in ended:
                    noting(source.index, ended[source.index] + 1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=feed, args=(running.source(flp),)) for flp in range(flps)]
    for thread in threads:
        thread.start()
    wrong = []
    for tf in running.consume():
        for part in tf.parts:
            if made.get((part.flp, tf.id)) != zlib.crc32(part.data):
                wrong.append(f"{name}: FLP {part.flp}, TF {tf.id}: the bytes that arrived are not those that were made")
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    if wrong:
        raise ContractError(wrong[0])
    running.wait()
    books = running.verify()
    if not ended and books["complete"] != tfs:
        raise ContractError(f"{name}: found {books['complete']} complete TFs, expected {tfs}: {books}")


def _digest(stf: Any, where: str) -> int:
    """Returns the CRC-32 of an STF."""
    parts = stf if isinstance(stf, list | tuple) else [stf]
    digest = 0
    for part in parts:
        try:
            # As the FLP sees it: the bytes of an array, one behind the other.
            digest = zlib.crc32(memoryview(part).cast("B"), digest)
        except TypeError as error:
            expected = "a buffer, a list of buffers, or None at the end"
            raise ContractError(f"{where}: found {type(part).__name__}, expected {expected}: {error}") from None
    return digest


def check_sink(
    program: Sequence[str | os.PathLike[str]], read: Callable[[Path], Iterable[int]], *, tfs: int = 60
) -> None:
    """Holds a sink to its contract, in a farm of real processes. Raises ContractError.

    `program` is the command line of a program that calls `run_sink`, such as [sys.executable, "my_sink.py"];
    `read(folder)` returns the TFs that a reader finds in what the sink has made.

    - Every TF is there exactly once.
    - That also holds if the process is killed when it has taken a TF and the EPN does not know yet: the TF comes again.
    - The program ends with status 0 when the run is over.
    """
    config: dict[str, dict[str, Any]] = {
        "run": {"timeframes": tfs},
        "icn": {"delivery": "at-least-once"},
        "epn": {"ack": "processed"},
        "flp.source": {"kind": "generator", "bytes_mean": 20_000},
    }
    with tempfile.TemporaryDirectory() as folder, farm(1, 1, source="generator", config=config) as running:
        place = Path(folder) / "made"
        _run_sink_in(running, program, place, tfs // 2, -signal.SIGKILL)
        _run_sink_in(running, program, place, 0, 0)
        running.wait()
        running.verify()
        found = sorted(read(place))
    for tf in range(tfs):
        count = found.count(tf)
        if count != 1:
            which = ", the one that was taken when the process was killed" if tf == tfs // 2 - 1 else ""
            raise ContractError(f"found TF {tf} {count} times in what the sink has made, expected once{which}")
    if len(found) != tfs:
        raise ContractError(f"found the TFs {sorted(set(found) - set(range(tfs)))}, expected 0 to {tfs - 1} alone")


def _run_sink_in(
    running: Farm, program: Sequence[str | os.PathLike[str]], folder: Path, die_after: int, expected: int
) -> None:
    command = [*(os.fspath(word) for word in program), running.address(), str(folder)]
    environment = {**os.environ, _DIE_AFTER: str(die_after)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != expected:
        killed = " after it was to kill itself" if die_after else ""
        raise ContractError(
            f"{' '.join(command)}: found status {done.returncode}{killed}, expected {expected}: {done.stderr.strip()}"
        )
