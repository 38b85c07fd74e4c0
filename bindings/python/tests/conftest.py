"""Surroundings of all tests."""

import signal

import pytest


@pytest.fixture(autouse=True)
def interruptible():
    """Lets SIGINT raise KeyboardInterrupt, also where it was ignored when Python started, as behind a shell's `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
