"""The provider of the pool from which a candidate of Nova takes its slots."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from nova_hosts import candidate

from fpga_pool.model.flavor import provider_uuid
from fpga_pool.model.rules.instance.explaining import on_one_card
from fpga_pool.nova_plugin.candidates import UNKNOWN, only_rows

ROWS = {provider_uuid("a", "c0", "small"): 0, provider_uuid("a", "c1", "small"): 1}


def test_each_candidate_has_the_row_of_its_only_provider():
    candidates = [
        candidate("a", "c1"),
        candidate("a"),
        candidate("a", "c0", "c1"),
        candidate("a", "another", "c0"),
        candidate("b", "c0"),
    ]
    assert only_rows(candidates, ROWS).tolist() == [1, UNKNOWN, UNKNOWN, 0, UNKNOWN]
    assert only_rows([], ROWS).tolist() == []


def test_a_provider_that_gives_some_slots_of_several_groups_is_not_the_only_one():
    candidates = [candidate("a", "c0", count=3), candidate("a", "c0", count=1), candidate("a", "c0", "another")]
    assert only_rows(candidates, ROWS, divided=3).tolist() == [0, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("groups", "one_card"), [([""], True), (["1"], True), (["_A"], True), (["1", "2"], False), (["", "1"], False)]
)
def test_slots_of_one_group_are_on_one_card(groups, one_card):
    extra_specs = {f"resources{group}:CUSTOM_FPGA_SLOT": "1" for group in groups} | {"resources:VCPU": "1"}
    assert on_one_card(extra_specs) is one_card
