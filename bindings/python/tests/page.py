"""A page of the book, done as it is written: its files are made, its commands run, their output is compared.

    python3 page.py PAGE FOLDER

A block with the words `file=NAME` is a file; one of the kind `console` with the word `run` has commands behind `$ `,
and lines that they print among others.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Returns kind, words and text of each block of a page."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert found, f"{page} has no blocks"
    return [(kind, words.strip(), text) for kind, words, text in found]


def follow(page: Path, folder: Path, environment: Mapping[str, str]) -> int:
    """Does what the page says, in `folder`. Returns the number of blocks with commands.

    Raises `AssertionError` if a line that the page shows was not printed, or not in its place.
    """
    ran = 0
    for kind, words, text in blocks(page):
        if words.startswith("file="):
            (folder / words.removeprefix("file=")).write_text(text)
        elif (kind, words) == ("console", "run"):
            lines = text.splitlines()
            commands = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
            done = subprocess.run(
                ["bash", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
            )
            output = iter(done.stdout.splitlines())
            for line in lines:
                if not line.startswith("$ ") and line not in output:
                    raise AssertionError(f"{line!r} is not in:\n{done.stdout}\n{done.stderr}")
            ran += 1
    return ran


if __name__ == "__main__":
    print(follow(Path(sys.argv[1]), Path(sys.argv[2]), os.environ), "blocks of commands")
