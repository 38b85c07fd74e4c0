"""Loops over the TFs of an EPN."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator

from ._sheaf import Consumer, ConsumerError, Tf

# Longest pause between two attempts to connect, in seconds.
_PAUSE = 0.05


def _path(address: str | os.PathLike[str]) -> str:
    """Returns the path of an address such as shm:/run/sheaf/epn-0."""
    text = os.fspath(address)
    if text.startswith("shm:"):
        return text.removeprefix("shm:")
    kind, colon, _ = text.partition(":")
    if colon and "/" not in kind:
        raise ValueError(f"found {kind}: in {text!r}, expected shm:PATH or a path (epn.sink.path of the farm file)")
    return text


def _attempt(path: str, until: float) -> Consumer | None:
    """Connects; None if no EPN is there yet and there is time left."""
    try:
        return Consumer(path)
    except ConsumerError:
        if time.monotonic() >= until:
            raise
        return None


def consume(address: str | os.PathLike[str], *, wait: float = 0.0, again: bool = False) -> Iterator[Tf]:
    """Yields the TFs of the EPN at `address` (shm:PATH, or the path alone), as they come.

    Each TF goes back to its EPN when the loop goes on to the next one; `tf.keep()` prevents that. Ends when the EPN has
    ended and all that it had offered is taken. With `again` it waits for the next EPN at that address then, for ever.

    `wait` is how long the EPN may take to be there, in seconds. Raises ConsumerError if none is there by then.
    """
    path = _path(address)
    until = time.monotonic() + wait
    while True:
        while (consumer := _attempt(path, until)) is None:
            time.sleep(_PAUSE)
        with consumer:
            yield from consumer
        if not again:
            return
        until = float("inf")


async def consume_async(
    address: str | os.PathLike[str], *, wait: float = 0.0, again: bool = False
) -> AsyncIterator[Tf]:
    """Yields TFs as `consume`, for asyncio: other tasks run while there is none."""
    path = _path(address)
    until = time.monotonic() + wait
    while True:
        while (consumer := _attempt(path, until)) is None:
            await asyncio.sleep(_PAUSE)
        with consumer:
            while not consumer.ended:
                tf = consumer.next(timeout=0)
                if tf is not None:
                    yield tf
                elif not consumer.ended:
                    await _readable(consumer.fileno())
        if not again:
            return
        until = float("inf")


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, note)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
