"""The requests in extra specs, and their names in Placement."""

import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import (
    AcceleratorRequest,
    Tier,
    Topology,
    function_trait,
    kind_trait,
    provider_uuid,
    requested,
)


def test_flavor_without_accelerators_asks_for_nothing():
    assert requested({"hw:cpu_policy": "dedicated", "resources:VCPU": "2"}) is None


def test_function_alone_is_one_slot_of_it():
    assert requested({"fpga_pool:function": "sha256"}) == AcceleratorRequest(function="sha256")


def test_all_extra_specs_are_read():
    specs = {
        "fpga_pool:function": "aes",
        "fpga_pool:count": "4",
        "fpga_pool:topology": "ring",
        "fpga_pool:tier": "background",
        "fpga_pool:runtime": "0.5",
        "fpga_pool:cpu_usage": "96",
    }
    assert requested(specs) == AcceleratorRequest(
        function="aes",
        count=4,
        topology=Topology.RING,
        tier=Tier.BACKGROUND,
        runtime_s=0.5,
        cpu_usage_percent=96,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "0"),
        ("count", "65"),
        ("count", "1.5"),
        ("count", "-1"),
        ("topology", "star"),
        ("tier", "Foreground"),
        ("runtime", "0"),
        ("runtime", "0.0"),
        ("runtime", "1e3"),
        ("cpu_usage", "101"),
        ("cpu_usage", "100.5"),
        ("function", ""),
        ("function", "a b"),
        ("slots", "1"),
    ],
)
def test_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=f"^fpga_pool:{name}: "):
        requested({"fpga_pool:function": "aes", f"fpga_pool:{name}": value})


def test_other_extra_specs_need_the_function():
    with pytest.raises(InvalidInput, match=r"^fpga_pool:function: missing"):
        requested({"fpga_pool:count": "2"})


def test_traits_are_what_placement_allows():
    assert function_trait("sha256-v1.2") == "CUSTOM_FPGA_FUNCTION_SHA256_V1_2"
    assert kind_trait("large") == "CUSTOM_FPGA_KIND_LARGE"
    assert len(function_trait("x" * 300)) == 255


def test_provider_is_the_same_whenever_it_is_made_again():
    assert provider_uuid("h1", "c0", "small") == provider_uuid("h1", "c0", "small")
    assert provider_uuid("h1", "c0", "small") != provider_uuid("h1", "c0", "large")
