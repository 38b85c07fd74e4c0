"""A readout: one FLP, which makes an STF at each heartbeat of the farm."""

import sys

import numpy
import sheaf

SAMPLES = 50_000


def samples(flp: int, tf: int) -> numpy.ndarray:
    """Returns what this FLP has measured in a TF."""
    return numpy.random.default_rng([flp, tf]).poisson(20, SAMPLES).astype("uint16")


if __name__ == "__main__":
    flp = int(sys.argv[1])
    with sheaf.Source("farm/farm.toml", index=flp, events=f"log/flp-{flp}.events") as source:
        for tf in source.heartbeats():
            source.send(tf, samples(flp, tf))
