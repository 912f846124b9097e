"""The required settings in nova.conf on a host with tiers."""

import pytest

from fpga_pool.conf.drivers import parse_pcpus
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.services.agent.tiers.layout import check_nova_conf

GOOD = "[DEFAULT]\ncpu_allocation_ratio = 2.0\n[compute]\ncpu_shared_set = 2-5,^4\n"


@pytest.fixture
def nova_conf(tmp_path):
    return tmp_path / "nova.conf"


def test_a_right_one_passes_whatever_else_is_in_it(nova_conf):
    nova_conf.write_text(GOOD + "cpu_dedicated_set = 8-9\n[libvirt]\nvirt_type = kvm\n")
    check_nova_conf(nova_conf, {2, 3, 5})


@pytest.mark.parametrize(
    ("text", "pcpus", "what"),
    [
        (GOOD, {2, 3, 4, 5}, r"\[compute\] cpu_shared_set is 2-5,\^4; \[tiers\] pcpus is 2,3,4,5"),
        (GOOD.replace("cpu_shared_set = 2-5,^4", ""), {2}, "cpu_shared_set is not set"),
        (GOOD.replace("cpu_allocation_ratio = 2.0", ""), {2, 3, 5}, "cpu_allocation_ratio is not set; it must be 2.0"),
        (GOOD.replace("2.0", "16.0"), {2, 3, 5}, "cpu_allocation_ratio is 16.0; it must be 2.0"),
        (GOOD + "cpu_dedicated_set = 5-9\n", {2, 3, 5}, "cpu_dedicated_set overlaps with"),
        (GOOD.replace("2.0", "two"), {2, 3, 5}, "nova_conf: .*two"),
        (GOOD.replace("2-5,^4", "2-"), {2}, "'2-' is invalid"),
    ],
)
def test_a_wrong_one_is_told_with_what_is_right(nova_conf, text, pcpus, what):
    nova_conf.write_text(text)
    with pytest.raises(InvalidInput, match=what):
        check_nova_conf(nova_conf, pcpus)


def test_a_missing_one_is_told(nova_conf):
    with pytest.raises(InvalidInput, match=r"nova\.conf"):
        check_nova_conf(nova_conf, {1})


@pytest.mark.parametrize(
    ("text", "expected"), [("", set()), ("3", {3}), ("0-3,^1, 8", {0, 2, 3, 8}), ("^1,0-2", {0, 2}), ("4-4", {4})]
)
def test_sets_of_pcpus_are_read_as_nova_reads_them(text, expected):
    assert parse_pcpus(text) == expected


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-1", "^1-2", "1.5"])
def test_what_is_no_set_of_pcpus_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_pcpus(text)
