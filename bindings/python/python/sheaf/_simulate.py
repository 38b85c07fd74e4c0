"""Simulated farms, with policies of Python among those of Sheaf."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from . import _sheaf
from ._sheaf import BadConfig, Job, Targets


class Policy(Protocol):
    """A policy: an object that chooses the target of each job."""

    def choose(self, job: Job, targets: Targets) -> int | None:
        """Returns the id of a target whose `fits` is True; None if there is none. Called once for each attempt to place a
        job, with what is known then; it must not wait."""


@dataclass(frozen=True)
class Simulation:
    """Result of one point."""

    point: dict[str, Any]
    """Row of results, as `sheaf sim run --json` writes it: times in µs, among them wait_us and turnaround_us."""
    trace_hash: str
    """Hash of all events: equal points, seeds and policies have equal ones."""
    seconds: float
    """Time that the simulation took."""
    policy_calls: int
    """Calls of a policy in Python."""
    policy_seconds: float
    """Time in them."""
    records: dict[str, list[Any]] | None = field(default=None, repr=False)
    """A row a TF as columns, with its times in ns, for pandas.DataFrame or pyarrow.table; None unless asked for."""


def simulate(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    policy: str | Callable[[int], Policy] | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    records: bool = False,
) -> list[Simulation]:
    """Simulates every point of an experiment: the path of a file, or its keys as a dictionary.

    The keys are those of docs/explanation/simulator.md, such as {"flps": 250, "epns": 1750, "load": 0.9}. `policy` is the
    name of one of Sheaf's policies, or a class whose objects are made with a seed and have `choose(job, targets)`; it
    stands in place of that of the file. Equal seeds give the same TFs to every policy. Raises BadConfig for keys that
    cannot be, PolicyError for a choice that no policy may make, and what the policy raises.
    """
    if isinstance(experiment, Mapping):
        text, folder = _toml(experiment), "."
    else:
        path = Path(experiment)
        try:
            text, folder = path.read_text(), str(path.parent)
        except OSError as error:
            raise BadConfig(f"cannot read {path}: {error.strerror}") from None
    own = None if policy is None or isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
    simulations = []
    for line in _sheaf.points_of(text, folder):
        point = json.loads(line)
        if isinstance(policy, str):
            point["policy"] = policy
        if seed is not None:
            point["seed"] = seed
        if iterations is not None:
            point["iterations"] = iterations
        told = _sheaf.simulate_point(json.dumps(point), own, records)
        row = json.loads(told["point"])
        if policy is not None:
            row["policy"] = name
        simulations.append(Simulation(**{**told, "point": row}))
    return simulations


def _toml(keys: Mapping[str, Any]) -> str:
    """Writes the keys of an experiment, tables and lists of tables, as TOML."""
    lines: list[str] = []
    _write(lines, [], keys)
    return "\n".join(lines) + "\n"


def _write(lines: list[str], path: list[str], table: Mapping[str, Any]) -> None:
    def is_tables(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)

    for key, value in table.items():
        if not isinstance(value, Mapping) and not is_tables(value):
            lines.append(f"{json.dumps(key)} = {json.dumps(value)}")
    for key, value in table.items():
        name = ".".join(json.dumps(word) for word in [*path, key])
        if isinstance(value, Mapping):
            lines.append(f"[{name}]")
            _write(lines, [*path, key], value)
        elif is_tables(value):
            for item in value:
                lines.append(f"[[{name}]]")
                _write(lines, [*path, key], item)
