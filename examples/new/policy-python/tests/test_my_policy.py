"""Tests of the policy: its contract, a simulated farm, a live one."""

import sys

import my_policy
import sheaf

FARM = {
    "name": "my-policy",
    "question": "Which policy waits less?",
    "flps": 10,
    "epns": 20,
    "load": 0.9,
    "duration_s": 5,
    "processing": {"distribution": "lognormal", "ms": 100, "sigma": 0.5},
}


def test_the_contract_of_policies():
    sheaf.check_policy(my_policy.MyPolicy)


def test_a_simulated_farm_loses_nothing():
    (own,) = sheaf.simulate(FARM, policy="my-policy")
    (usual,) = sheaf.simulate(FARM, policy="earliest-finish")
    # Equal seeds give both the same TFs.
    assert own.point["announced"] == usual.point["announced"]
    assert own.point["lost_mean"] == 0
    for told in (own, usual):
        print(told.point["policy"], "99 % wait less than", told.point["wait_us"]["p99"], "µs")


def test_a_live_farm_loses_nothing():
    config = {
        "run": {"timeframes": 200},
        "icn.scheduler": {"policy": "my-policy"},
        "epn.sink": {"kind": "verify"},
    }
    own = [sys.executable, my_policy.__file__]
    with sheaf.farm(2, 3, source="generator", config=config, icn=own) as farm:
        farm.wait()
        assert farm.verify()["complete"] == 200
        assert "raised an exception" not in (farm.folder / "icn-0.log").read_text()
