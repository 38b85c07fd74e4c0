"""Policies, sources and sinks of one's own: programs, contracts, and breaches of them that are found."""

import json
import os
import random
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import sheaf


@pytest.mark.parametrize("kind", ["policy", "source", "sink"])
def test_the_tests_of_a_new_package_pass(kind, tmp_path):
    sheaf.run("new", kind, "north", "--folder", tmp_path / "north")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "north", env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


PROGRAM = """
    import sheaf

    class Highest:
        def __init__(self, seed):
            self.calls = 0

        def choose(self, job, targets):
            self.calls += 1
            if self.calls > {calls}:
                raise ValueError("no more choices")
            return max((target.id for target in targets if target.fits), default=None)

    sheaf.register_policy("highest", Highest)
    sheaf.main()
"""


@pytest.fixture
def program(tmp_path):
    """Writes a program with a policy that raises an exception after some calls, and returns its command line."""

    def write(calls: float) -> list[str]:
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(PROGRAM).format(calls=calls if calls != float("inf") else "float('inf')"))
        return [sys.executable, str(file)]

    return write


def live(program: list[str], tmp_path: Path) -> tuple[dict, str]:
    """Runs a live farm whose ICN is `program`; returns its books and the log of the ICN."""
    config = {
        "run": {"timeframes": 100},
        "icn.scheduler": {"policy": "highest"},
        "epn.sink": {"kind": "discard"},
    }
    with sheaf.farm(2, 3, source="generator", config=config, icn=program, folder=tmp_path / "farm") as farm:
        farm.wait()
        return farm.verify(), (farm.folder / "icn-0.log").read_text()


def test_a_policy_in_python_decides_in_a_live_icn(program, tmp_path):
    books, log = live(program(float("inf")), tmp_path)
    assert books["complete"] == 100
    assert "raised an exception" not in log
    built = [(tmp_path / f"farm/epn-{epn}.events").read_text().count('"event":"delivered"') for epn in range(3)]
    # A generator of small TFs: the EPN with the highest index always has room.
    assert built == [0, 0, 100]


def test_an_icn_whose_policy_raises_goes_on_with_the_default_policy(program, tmp_path):
    books, log = live(program(10), tmp_path)
    assert books["complete"] == 100
    assert log.count("raised an exception") == 1
    assert "ValueError: no more choices" in log and "earliest-finish" in log


EXPERIMENT = """
    name = "own"
    question = "Does a policy of a program run in the lab?"
    source = "sim"
    flps = 2
    epns = 3
    load = 0.5
    duration_s = 2
    [processing]
    ms = 10
    [matrix]
    policy = ["highest", "round-robin"]
"""


def test_the_commands_of_sheaf_know_the_policy_of_a_program(program, tmp_path):
    experiment = tmp_path / "own.toml"
    experiment.write_text(textwrap.dedent(EXPERIMENT))
    for command in ("sim", "lab"):
        for calls, status in [(float("inf"), 0), (10, 1)]:
            out = ["--out", str(tmp_path / f"of-{calls}")] if command == "lab" else []
            words = [*program(calls), command, "run", *out, str(experiment)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == status, done.stderr
            assert ("ValueError: no more choices" in done.stderr) == (status == 1), done.stderr
    # Without the policy it is none.
    with pytest.raises(sheaf.ProgramError, match="highest"):
        sheaf.run("sim", "run", experiment)


LIVE = """
    name = "own-live"
    question = "Does a policy of a program decide in live points of the lab?"
    iterations = 1
    topology = "lan-1g"
    flps = 2
    epns = 2
    rate_hz = 50
    duration_s = 2
    bytes = 10000
    policy = "highest"
    live.others_percent_max = 100
    live.pressure_percent_max = 100
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces")
def test_a_live_point_of_the_lab_has_the_policy_of_the_program(program, tmp_path):
    experiment = tmp_path / "live.toml"
    experiment.write_text(textwrap.dedent(LIVE))
    words = [*program(float("inf")), "lab", "run", str(experiment), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = json.loads((tmp_path / "out/summary.json").read_text())["points"]
    assert summary["policy"] == "highest" and summary["n"] == 1 and summary["lost_mean"] == 0, summary


def test_hosts_are_not_given_a_program_in_python(program, tmp_path):
    stand = tmp_path / "stand.toml"
    stand.write_text('name = "stand"\n[[host]]\nname = "a"\naddress = "127.0.0.1:1"\n')
    command = [*program(float("inf")), "lab", "hosts", "check", str(stand)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "found an interpreter that runs it" in done.stderr, done.stderr


def test_a_demo_starts_its_nodes_as_the_program(program):
    command = [*program(float("inf")), "demo", "--policy", "highest", "--source", "generator", "--duration", "1s", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ledger_balanced"], told
    # The script that has started the nodes is gone.
    assert not list(Path(tempfile.gettempdir()).glob("sheaf-python-*"))


def test_a_registered_name_stands_for_the_policy_in_simulations():
    class Own:
        def __init__(self, seed):
            pass

        def choose(self, job, targets):
            return next((target.id for target in targets if target.fits), None)

    sheaf.register_policy("own-of-a-test", Own)
    farm = {"name": "n", "question": "?", "flps": 2, "epns": 3, "load": 0.5, "duration_s": 1, "processing": {"ms": 10}}
    (by_name,) = sheaf.simulate(farm, policy="own-of-a-test")
    (by_class,) = sheaf.simulate(farm, policy=Own)
    assert by_name.trace_hash == by_class.trace_hash
    for name, why in [("own-of-a-test", "is taken"), ("earliest-finish", "is taken"), ("Own", "expected a letter")]:
        with pytest.raises(ValueError, match=why):
            sheaf.register_policy(name, Own)


def wrong(choose):
    """Returns the maker of a policy that chooses so."""
    return lambda seed: type("Wrong", (), {"choose": staticmethod(choose)})()


@pytest.mark.parametrize(
    ("choose", "error", "why"),
    [
        (lambda job, targets: 99_999, sheaf.PolicyError, "which is not there"),
        (lambda job, targets: None, sheaf.PolicyError, "though some target fits"),
        (lambda job, targets: min(targets.ids, default=None), sheaf.PolicyError, "has no room for it"),
        (lambda job, targets: 1 // 0, ZeroDivisionError, "zero"),
        (
            lambda job, targets: random.choice([it.id for it in targets if it.fits] or [None]),
            sheaf.PolicyError,
            "equal seeds and calls",
        ),
    ],
)
def test_a_policy_that_breaks_its_contract_is_found(choose, error, why):
    with pytest.raises(error, match=why):
        sheaf.check_policy(wrong(choose))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda flp, tf: "text", "found str, expected a buffer"),
        (lambda flp, tf: [b"a", 3], "found int, expected a buffer"),
        (lambda flp, tf: None if tf == 5 else b"a", "ended at TF 5 and made TF 6"),
    ],
)
def test_a_source_that_breaks_its_contract_is_found(make, why):
    with pytest.raises(sheaf.ContractError, match=why):
        sheaf.check_source(make, flps=1, tfs=20)


def test_a_source_that_needs_every_number_is_found_by_its_exception():
    class InOrder:
        next = 0

        def __call__(self, flp, tf):
            if tf != self.next:
                raise IndexError(f"found TF {tf}, expected {self.next}")
            self.next += 1
            # Slower than the heartbeats of the farm that is paced: some are left out.
            return random.Random(tf).randbytes(8_000_000)

    with pytest.raises(IndexError, match="found TF"):
        sheaf.check_source(InOrder(), flps=1, tfs=100)


SINK = """
    from pathlib import Path
    import sys
    import sheaf

    class Lines:
        def __init__(self, folder):
            self.file = (folder / "tfs").open("a")

        def take(self, tf):
            {take}

    def read(folder):
        return [int(line) for line in (folder / "tfs").read_text().split()]

    if __name__ == "__main__":
        sheaf.run_sink(Lines)
"""


@pytest.mark.parametrize(
    ("take", "why"),
    [
        ("print(tf.id, file=self.file, flush=True)", "found TF 9 2 times"),
        ("print(tf.id, file=self.file)", "found TF 0 0 times"),
        ("print(tf.id + 1, file=self.file, flush=True)", "found TF 0 0 times"),
        ("raise ValueError(tf.id)", "found status 1 after it was to kill itself.*ValueError"),
    ],
)
def test_a_sink_that_breaks_its_contract_is_found(take, why, tmp_path, monkeypatch):
    (tmp_path / "broken_sink.py").write_text(textwrap.dedent(SINK).format(take=take))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("broken_sink", None)
    import broken_sink

    with pytest.raises(sheaf.ContractError, match=r"(?s)" + why):
        sheaf.check_sink([sys.executable, tmp_path / "broken_sink.py"], broken_sink.read, tfs=20)


def test_a_tf_whose_sink_raises_goes_to_the_next_one(tmp_path):
    take = 'assert tf.redelivered or tf.id != 5; print(tf.id, file=self.file, flush=True)'
    file = tmp_path / "sink.py"
    file.write_text(textwrap.dedent(SINK).format(take=take))
    config = {
        "run": {"timeframes": 20},
        "icn": {"delivery": "at-least-once"},
        "epn": {"ack": "processed"},
    }
    with sheaf.farm(1, 1, source="generator", config=config) as farm:
        command = [sys.executable, str(file), farm.address(), str(tmp_path / "out")]
        first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert first.returncode == 1 and "AssertionError" in first.stderr
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 0, second.stderr
        farm.wait()
    lines = (tmp_path / "out/tfs").read_text().split()
    assert sorted(map(int, lines)) == list(range(20))
