"""Price of a choice of a policy in Python, by the number of EPNs: a loop over targets, and NumPy on columns.

The time of a call is that of the ICN, which waits for it: with the making of its arguments and the wait for the
interpreter. It is taken in a simulated farm, where the same code asks the policy as in a live ICN.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from typing import Any

import numpy

import sheaf


class Loop:
    """Most free bytes, by a loop over the targets."""

    def __init__(self, seed: int) -> None:
        pass

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        fitting = [target for target in targets if target.fits]
        best = max(fitting, key=lambda target: (target.free_bytes, -target.id), default=None)
        return None if best is None else best.id


class Columns:
    """The same by columns of NumPy."""

    def __init__(self, seed: int) -> None:
        pass

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        free = numpy.where(numpy.asarray(targets.fits), numpy.asarray(targets.free_bytes) + 1, 0)
        best = int(free.argmax()) if len(free) else 0
        return int(targets.ids[best]) if len(free) and free[best] else None


class First:
    """The first target that fits: hardly more than the call."""

    def __init__(self, seed: int) -> None:
        pass

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        fits = numpy.asarray(targets.fits)
        first = int(fits.argmax()) if len(fits) else 0
        return int(targets.ids[first]) if len(fits) and fits[first] else None


def microseconds(policy: type, epns: int, tfs: int) -> float:
    """Returns the time of a call in µs."""
    farm: dict[str, Any] = {
        "name": "price", "question": "What does a choice cost?", "flps": 1, "epns": epns, "rate_hz": 1000,
        "duration_s": tfs / 1000, "size": {"bytes": 1000},
    }  # fmt: skip
    (told,) = sheaf.simulate(farm, policy=policy)
    return told.policy_seconds / told.policy_calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds, of which each has every row (default 15)")
    parser.add_argument("--tfs", type=int, default=1000, help="TFs a row (default 1000)")
    parser.add_argument("--json", help="write results to this file")
    given = parser.parse_args()
    rows: dict[tuple[str, int], list[float]] = {}
    for _ in range(given.rounds):
        for epns in (10, 100, 1750):
            for policy in (First, Columns, Loop):
                rows.setdefault((policy.__name__, epns), []).append(microseconds(policy, epns, given.tfs))
    results = []
    for (policy_name, epns), values in rows.items():
        ordered = sorted(values)
        low, high = ordered[min(1, len(ordered) - 1)], ordered[max(-2, -len(ordered))]
        row = {"policy": policy_name, "epns": epns, "us": statistics.median(values), "low": low, "high": high}
        results.append(row)
        print(f"{policy_name:8} {epns:5} EPNs  {row['us']:8.1f} us a choice  {low:8.1f} to {high:8.1f}")
    if given.json:
        told = {
            "command": ["bindings/python/bench/policy.py", *sys.argv[1:]], "version": sheaf.__version__,
            "python": platform.python_version(), "system": f"{platform.system()} {platform.release()}",
            "processors": os.cpu_count(), "rounds": given.rounds, "tfs": given.tfs, "rows": results,
        }  # fmt: skip
        with open(given.json, "w") as file:
            json.dump(told, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
