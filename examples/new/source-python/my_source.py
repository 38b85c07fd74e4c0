"""The source my-source: the STFs of an FLP, one of each timeframe (TF)."""

import random

import sheaf


def stf(flp: int, tf: int) -> bytes | list[bytes] | None:
    """Returns the data of FLP `flp` for TF `tf`, as one buffer or several; None at the end, for good.

    The number of the TF is higher than in the last call. In a paced farm some are left out, if this was too slow.
    """
    header = tf.to_bytes(8, "little")
    samples = random.Random(f"{flp} {tf}").randbytes(100_000)
    return [header, samples]


def main() -> None:
    """Runs one FLP: `my-source farm.toml --index 0`."""
    # The one registration: the FLP asks this function.
    sheaf.run_source(stf)


if __name__ == "__main__":
    main()
