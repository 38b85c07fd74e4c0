"""Types of the package, as a checker of types sees them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import sheaf

PACKAGE = Path(sheaf.__file__).parent

# Each line behind "# error" is wrong, and no other.
PROGRAM = """
import asyncio
import numpy
import sheaf

with sheaf.Source("farm.toml", index=0) as source:
    taken: bool = source.send(1, numpy.zeros(3), timeout=1.0, format="rdh")
    source.send(2, [b"a", bytearray(b"b"), memoryview(b"c")])
    source.send("3", b"")  # error
    source.send(3, b"", format="png")  # error
    ids: list[int] = list(source.heartbeats())

for tf in sheaf.consume("shm:/run/epn-0", wait=3):
    view: memoryview = tf.parts[0].data
    total: int = sum(part.array("uint32").sum() for part in tf.parts)
    tf.keep().give_back("muon", b"product")
    tf.tags  # error


async def main() -> None:
    async for tf in sheaf.consume_async("/run/epn-0"):
        tf.done()


class Mine:
    def __init__(self, seed: int) -> None: ...

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        return max(targets, key=lambda target: target.free_bytes).id


waits: float = sheaf.simulate({"flps": 3}, policy=Mine)[0].point["wait_us"]["p99"]
sheaf.simulate({}, policy=3)  # error
asyncio.run(main())
"""


def mypy(*arguments: str, folder: Path) -> list[str]:
    """Returns the lines with errors."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *arguments]
    # A package of PYTHONPATH is none that the checker finds; an installed one is, and may not be named.
    is_installed = str(PACKAGE.parent) in {sysconfig.get_path("platlib"), sysconfig.get_path("purelib")}
    environment = os.environ if is_installed else os.environ | {"MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def test_the_package_keeps_its_own_types(tmp_path):
    assert mypy("-p", "sheaf", folder=tmp_path) == []


def test_programs_are_checked_against_the_stubs(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# error" in line}
    found = mypy("program.py", folder=tmp_path)
    assert {int(line.split(":")[1]) for line in found} == wrong, found
