"""The command line of Sheaf in this process, with what it has registered."""

import shlex
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import _sheaf


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line of `sheaf` with the policies that were registered, and ends the process with its status.

    `words` are those behind the name of the program, such as ["run", "icn", "--config", "farm.toml"]; without them
    those of the command line of this process. If a registered policy raises an exception in a node (`run`), the node
    logs it and goes on with the default policy; any other command prints it and ends with status 1. To be called once
    in a process, from its first thread.
    """
    # What stands before the words of this process starts the program again.
    own = len(sys.orig_argv) - (len(sys.argv) - 1)
    launcher = shlex.join([sys.executable, *sys.orig_argv[1:own]])
    # Commands of Sheaf look at signals themselves.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_sheaf.run_words(list(sys.argv[1:] if words is None else words), launcher))
