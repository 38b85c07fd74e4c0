"""Policies in Python, in simulated farms."""

import json
import os
import signal
import threading
from pathlib import Path

import numpy
import pyarrow
import pytest

import sheaf

FARM = {
    "name": "a farm",
    "question": "Which policy?",
    "flps": 3,
    "epns": 6,
    "load": 0.8,
    "duration_s": 4,
    "size": {"model": "random", "bytes": 100_000},
    "processing": {"distribution": "lognormal", "ms": 20, "sigma": 0.5},
    "faults": [{"at_s": 1, "kind": "crash", "epn": 1, "for_s": 1}],
}


class LeastLoaded:
    """The policy of Sheaf of that name, once more."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        fitting = [target for target in targets if target.fits]
        # Shares of equal targets: by their free bytes.
        best = max(fitting, key=lambda it: (it.free_bytes, -it.booked_slots, -it.id), default=None)
        return None if best is None else best.id


class LeastLoadedByColumns:
    def __init__(self, seed: int) -> None:
        pass

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        fits = numpy.asarray(targets.fits)
        if not fits.any():
            return None
        free = numpy.where(fits, numpy.asarray(targets.free_bytes), 0)
        jobs = numpy.asarray(targets.booked_slots)
        best = numpy.lexsort((jobs, -free.astype("int64"), ~fits))[0]
        return int(targets.ids[best])


@pytest.mark.parametrize("policy", [LeastLoaded, LeastLoadedByColumns])
def test_a_policy_that_decides_alike_gives_the_same_run_to_the_last_event(policy):
    (expected,) = sheaf.simulate(FARM, policy="least-loaded", iterations=2)
    (found,) = sheaf.simulate(FARM, policy=policy, iterations=2)
    assert found.trace_hash == expected.trace_hash
    assert found.point["wait_us"] == expected.point["wait_us"]
    assert found.point["policy"] == policy.__name__
    assert found.policy_calls > 100 and 0 < found.policy_seconds < found.seconds
    (other,) = sheaf.simulate(FARM, policy="round-robin", iterations=2)
    assert other.trace_hash != expected.trace_hash


def test_records_are_columns_of_every_tf():
    (told,) = sheaf.simulate(FARM, policy=LeastLoaded, iterations=2, records=True)
    table = pyarrow.table(told.records)
    assert table.num_rows == 2 * told.point["announced"]
    assert set(table["seed"].to_pylist()) == {1, 2}
    assert set(table["fate"].to_pylist()) <= {"complete", "unprocessed", "died-unprocessed"}
    committed, announced = table["committed_ns"].to_pylist(), table["announced_ns"].to_pylist()
    assert all(a < b for a, b in zip(announced, committed))


def test_an_experiment_file_is_simulated():
    file = Path(__file__).parents[3] / "experiments/scenarios/small.toml"
    (told,) = sheaf.simulate(file)
    assert (told.point["flps"], told.point["epns"], told.policy_calls) == (3, 4, 0)


def choosing(choose):
    class Policy:
        def __init__(self, seed: int) -> None:
            pass

    Policy.choose = lambda self, job, targets: choose(job, targets)
    return Policy


@pytest.mark.parametrize(
    ("choose", "error", "text"),
    [
        (lambda job, targets: 77, sheaf.PolicyError, "returned target 77, which is not there"),
        (lambda job, targets: None, sheaf.PolicyError, "returned None, though some target fits"),
        (lambda job, targets: "0", TypeError, "choose returned <class 'str'>, expected the id"),
        (lambda job, targets: 1 // 0, ZeroDivisionError, "zero"),
        (lambda job, targets: targets[99], IndexError, "found index 99, expected one below 6"),
    ],
)
def test_a_wrong_choice_ends_the_simulation_and_says_why(choose, error, text):
    with pytest.raises(error, match=text):
        sheaf.simulate(FARM, policy=choosing(choose))


def test_a_choice_without_room_is_refused():
    # EPN 1 dies after a second.
    dead = choosing(lambda job, targets: 1)
    with pytest.raises(sheaf.PolicyError, match="returned target 1, which (has no room for it|is not there)"):
        sheaf.simulate(FARM | {"load": 0.1}, policy=dead)


def test_what_is_no_policy_or_no_farm_is_refused():
    with pytest.raises(TypeError, match=r"expected an object with choose\(job, targets\)"):
        sheaf.simulate(FARM, policy=lambda seed: seed)
    with pytest.raises(sheaf.BadConfig, match="policy.*best.*round-robin"):
        sheaf.simulate(FARM, policy="best")
    with pytest.raises(sheaf.BadConfig, match="unknown field"):
        sheaf.simulate(FARM | {"flips": 3})
    with pytest.raises(sheaf.BadConfig, match="cannot read /none/none.toml"):
        sheaf.simulate("/none/none.toml")


@pytest.mark.parametrize("policy", [LeastLoaded, "least-loaded"])
def test_an_interrupt_ends_a_simulation(policy):
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        sheaf.simulate(FARM | {"duration_s": 3600}, policy=policy)
    timer.join()


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    notebook = Path(__file__).parents[3] / "examples/python/policies.ipynb"
    cells = json.loads(notebook.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(sources[0], names)
    # The farm of the notebook takes a minute: this one is as it is, but small.
    names["FARM"] |= {"flps": 4, "epns": 20, "duration_s": 3}
    for source in sources[1:]:
        exec(source, names)
    assert len(names["results"]) == 10
    assert "BestOfFour" in capsys.readouterr().out
    assert (tmp_path / "policies.svg").stat().st_size > 1000
