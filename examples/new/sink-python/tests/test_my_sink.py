"""Tests of the sink: its contract."""

import sys

import my_sink
import sheaf


def test_the_contract_of_sinks():
    sheaf.check_sink([sys.executable, my_sink.__file__], my_sink.tfs_in)
