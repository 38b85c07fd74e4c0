"""The program `sheaf`, which comes with the package."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from ._sheaf import SheafError


class ProgramError(SheafError):
    """The program `sheaf` is not there, or has failed: `stderr` and `status` say how."""

    def __init__(self, message: str, status: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr


def program() -> Path:
    """Returns the path of the program `sheaf`.

    That is the one of the environment variable SHEAF_PROGRAM if it is set; else that of the wheel; else the first one
    in PATH. Raises ProgramError if there is none.
    """
    if given := os.environ.get("SHEAF_PROGRAM"):
        if not os.access(given, os.X_OK):
            raise ProgramError(f"SHEAF_PROGRAM: found {given!r}, expected a program that can be run")
        return Path(given)
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    found = shutil.which("sheaf", path=os.pathsep.join(folders)) or shutil.which("sheaf")
    if found is None:
        raise ProgramError(
            "the program sheaf was not found beside Python or in PATH; set SHEAF_PROGRAM to its path, or build a wheel that "
            "has it: make wheel"
        )
    return Path(found)


def run(*arguments: str | os.PathLike[str], timeout: float | None = None) -> str:
    """Runs `sheaf` with `arguments` and returns what it has printed.

    Raises ProgramError with its status and its messages if it fails, or takes longer than `timeout` seconds.
    """
    command = [str(program()), *(os.fspath(word) for word in arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{' '.join(command)}: took longer than {timeout} s") from error
    if done.returncode != 0:
        message = f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}"
        raise ProgramError(message, done.returncode, done.stderr)
    return done.stdout


def data_inspect(*files: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Returns what is in files of detector data, one dictionary a file, as `sheaf data inspect --json` prints it.

    The list is what pandas.DataFrame and pyarrow.Table.from_pylist take. A file with faults is listed with its faults.
    """
    command = [str(program()), "data", "inspect", "--json", *(os.fspath(file) for file in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Status 1: there are faults in a file, which the output has.
    if done.returncode not in (0, 1):
        raise ProgramError(done.stderr.strip(), done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]
