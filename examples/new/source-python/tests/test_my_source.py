"""Tests of the source: its contract, and one STF."""

import my_source
import sheaf


def test_the_contract_of_sources():
    sheaf.check_source(my_source.stf)


def test_an_stf_begins_with_the_number_of_its_tf():
    header, samples = my_source.stf(0, 7)
    assert int.from_bytes(header, "little") == 7
    assert len(samples) == 100_000
