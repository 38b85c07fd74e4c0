"""A farm of real processes on this machine, for tests."""

import functools
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._consume import consume
from ._program import program, run
from ._sheaf import SheafError, Source, Tf


class FarmError(SheafError):
    """A node of the farm has not started or has failed; the message ends with the last lines of its log."""


# Small memory, so that a farm starts at once and several of them fit on a small machine.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "flp": {"hold_bytes": 64 << 20, "stf_bytes_max": 16 << 20},
    "icn.scheduler": {"stf_bytes_max": 16 << 20, "tf_bytes_max": 64 << 20},
    "epn.build": {"capacity_bytes": 128 << 20},
}

# How long a node may take to start, or to end when it was asked to, in seconds.
_PATIENCE = 60.0


@functools.cache
def _starter() -> ThreadPoolExecutor:
    """Returns the thread that starts nodes. The kernel ends them with the thread that has started them, not with the
    process, so that has to be one that lives as long as Python."""
    return ThreadPoolExecutor(1, "sheaf-farm")


def _popen(command: list[str], folder: Path, errors: Path) -> subprocess.Popen[str]:
    with errors.open("a") as file:
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=file, text=True)


class Farm:
    """A running farm. Make one with `farm`."""

    def __init__(
        self, folder: Path, flps: int, epns: int, source: str, icn: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        self.folder = folder
        """Folder of its farm file, logs, event logs and sockets."""
        self.path = folder / "farm.toml"
        """Farm file."""
        self.flps = flps
        self.epns = epns
        self._source = source
        self._icn = [os.fspath(word) for word in icn]
        self._nodes: dict[str, subprocess.Popen[str]] = {}

    def source(self, index: int = 0, **options: Any) -> Source:
        """Returns the source of FLP `index`, which runs in this process."""
        options.setdefault("events", self.folder / f"flp-{index}.events")
        return Source(self.path, index, **options)

    def address(self, epn: int = 0) -> str:
        """Returns the address at which consumers find EPN `epn`."""
        return f"shm:{self.folder}/epn-{epn}"

    def consume(self, epn: int = 0, **options: Any) -> Iterator[Tf]:
        """Yields the TFs of EPN `epn`."""
        options.setdefault("wait", _PATIENCE)
        return consume(self.address(epn), **options)

    def status(self) -> dict[str, Any]:
        """Returns the status of the farm, as `sheaf status --json` prints it."""
        command = [str(program()), "status", "--config", str(self.path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            status: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            raise FarmError(f"sheaf status: {done.stderr.strip()}") from None
        return status

    def kill(self, node: str) -> None:
        """Kills a node such as "epn:1" with SIGKILL."""
        process = self._node(node)
        process.kill()
        process.wait()

    def start(self, node: str) -> None:
        """Starts a node such as "epn:1" again."""
        role, index = node.split(":")
        self._start(role, int(index))

    def stop(self) -> None:
        """Ends the run: the sources stop, the farm drains, all nodes end. Raises FarmError if one has failed."""
        icn = self._nodes.get("icn:0")
        if icn is not None and icn.poll() is None:
            icn.send_signal(signal.SIGINT)
        self.wait()

    def wait(self, timeout: float = _PATIENCE) -> None:
        """Waits until all nodes have ended, as after the last TF of the run. Raises FarmError if one has failed or
        takes longer than `timeout` seconds."""
        until = time.monotonic() + timeout
        for node, process in self._nodes.items():
            try:
                status = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise FarmError(f"{node} has not ended within {timeout} s:\n{self._log(node)}") from None
            if status not in (0, -signal.SIGKILL):
                raise FarmError(f"{node} has failed with status {status}:\n{self._log(node)}")

    def verify(self, *, allow_abandoned: bool = False) -> dict[str, Any]:
        """Recomputes the books of the run from the event logs of all nodes, and returns the counts.

        Raises ProgramError if something contradicts them, or if TFs are abandoned and `allow_abandoned` is not given:
        an EPN died after it had given them to a consumer and before it had said so.
        """
        options = ["--allow-abandoned"] if allow_abandoned else []
        books: dict[str, Any] = json.loads(run("data", "verify", self.folder, "--json", "-", *options))
        return books

    def _node(self, node: str) -> subprocess.Popen[str]:
        if node not in self._nodes:
            raise ValueError(f"found {node!r}, expected one of: {' '.join(self._nodes)}")
        return self._nodes[node]

    def _log(self, node: str) -> str:
        # A node that did not come to its log says so on its standard error.
        files = [self.folder / f"{node.replace(':', '-')}.{end}" for end in ("log", "err")]
        lines = [line for file in files if file.exists() for line in file.read_text(errors="replace").splitlines()]
        return "\n".join(lines[-20:])

    def _program(self, role: str) -> list[str]:
        """Returns the command line of the program of a node."""
        return list(self._icn) if role == "icn" and self._icn else [str(program())]

    def _start(self, role: str, index: int, *arguments: str) -> str:
        """Starts a node, and returns its address if it listens."""
        node = f"{role}:{index}"
        name = f"{role}-{index}"
        command = [
            *self._program(role), "run", role, "--config", str(self.path), "--index", str(index),
            "--log-file", str(self.folder / f"{name}.log"), "--events", str(self.folder / f"{name}.events"), *arguments,
        ]  # fmt: skip
        # A test that is killed takes its farm along.
        command += ["--parent", str(os.getpid())]
        process = _starter().submit(_popen, command, self.folder, self.folder / f"{name}.err").result()
        self._nodes[node] = process
        return self._address(node, process) if role != "flp" else ""

    def _address(self, node: str, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(_PATIENCE):
                raise FarmError(f"{node} has not started within {_PATIENCE} s:\n{self._log(node)}")
        line = process.stdout.readline()
        try:
            return str(json.loads(line)["listening"])
        except (json.JSONDecodeError, KeyError):
            raise FarmError(f"{node} has not started:\n{line}{self._log(node)}") from None

    def _end(self) -> None:
        for process in self._nodes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def __repr__(self) -> str:
        return f"<sheaf.Farm of {self.flps} FLPs and {self.epns} EPNs in {self.folder}>"


@contextmanager
def farm(
    flps: int = 1,
    epns: int = 1,
    *,
    source: str = "program",
    config: Mapping[str, Mapping[str, Any]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    icn: Sequence[str | os.PathLike[str]] = (),
) -> Iterator[Farm]:
    """Starts a farm of real processes on free ports of this machine, and kills what is left of it at the end.

    `source` is the kind of the sources of its FLPs: with "program" they are made by `Farm.source` in this process, with
    another kind such as "generator" the FLPs are processes as well. EPNs lend their TFs to consumers (sink shm).
    `config` has further tables of the farm file, such as {"run": {"timeframes": 100}}. `folder` keeps the farm file,
    logs and event logs; without it they are removed. `icn` is the command line of the program that is the ICN in place
    of `sheaf`, such as [sys.executable, "my_policy.py"], which has a policy of its own. Raises FarmError if a node does
    not start.
    """
    is_kept = folder is not None
    # Paths of sockets are short: not the temporary folder of a test, which is deep.
    place = Path(folder).absolute() if folder is not None else Path(tempfile.mkdtemp(prefix="sheaf-"))
    place.mkdir(parents=True, exist_ok=True)
    running = Farm(place, flps, epns, source, icn)
    try:
        tables = _tables(running, source, config or {})
        running.path.write_text(_toml(tables))
        address = running._start("icn", 0, "--listen", "127.0.0.1:0")
        tables["icn"]["address"] = address
        running.path.write_text(_toml(tables))
        for index in range(epns):
            running._start("epn", index)
        for index in range(flps if source != "program" else 0):
            running._start("flp", index)
        yield running
    finally:
        running._end()
        if not is_kept:
            shutil.rmtree(place, ignore_errors=True)


def _tables(
    running: Farm, source: str, config: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {
        "run": {"flps": running.flps, "epns": running.epns},
        "icn": {"address": "127.0.0.1:1"},
        **{name: dict(table) for name, table in _DEFAULTS.items()},
        "flp.source": {"kind": source},
        "epn.sink": {"kind": "shm", "path": f"{running.folder}/epn-{{epn}}"},
    }
    for name, table in config.items():
        # A sink or source of another kind has other keys.
        before = {} if "kind" in table else tables.get(name, {})
        tables[name] = {**before, **table}
    return tables


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes tables of strings, numbers and booleans, for which TOML reads JSON."""
    lines: list[str] = []
    for name in sorted(tables):
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in tables[name].items()]
    return "\n".join(lines) + "\n"
