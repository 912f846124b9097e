import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.catalogue import extended
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.extra_specs import (
    Spread,
    consistent_extra_specs,
    inconsistencies,
    placement_traits,
    tier_extra_specs,
)
from fpga_pool.model.flavor import AcceleratorRequest, Tier, Topology, requested
from fpga_pool.model.objects.bitstreams import DesignManifest, KnownDesign

#: Its boards have three small slots and a large one; optical_flow needs the large one.
CATALOGUE = load_catalogue(installed_catalogue())

TWO_SHA256 = {
    "fpga_pool:function": "sha256",
    "fpga_pool:count": "2",
    "resources:CUSTOM_FPGA_SLOT": "2",
    "trait:CUSTOM_FPGA_FUNCTION_SHA256": "required",
}
SPREAD_SHA256 = {
    "fpga_pool:function": "sha256",
    "fpga_pool:count": "2",
    "resources_FPGA1:CUSTOM_FPGA_SLOT": "1",
    "trait_FPGA1:CUSTOM_FPGA_FUNCTION_SHA256": "required",
    "resources_FPGA2:CUSTOM_FPGA_SLOT": "1",
    "trait_FPGA2:CUSTOM_FPGA_FUNCTION_SHA256": "required",
    "group_policy": "isolate",
}

AUTO = {"fpga_pool:tier": "auto"}


def without(specs, *names):
    return {name: value for name, value in specs.items() if name not in names}


def test_pool_and_placement_are_asked_for_the_same():
    assert consistent_extra_specs(AcceleratorRequest(function="sha256", count=2)) == TWO_SHA256


def test_what_is_known_of_the_machine_is_said_without_exponents():
    request = AcceleratorRequest(
        function="aes", topology=Topology.RING, tier=Tier.BACKGROUND, runtime_s=1e7, cpu_usage_percent=12.5
    )
    assert consistent_extra_specs(request, vcpus=3) == {
        "fpga_pool:function": "aes",
        "fpga_pool:count": "1",
        "fpga_pool:topology": "ring",
        "fpga_pool:tier": "background",
        "resources:CUSTOM_FPGA_BACKGROUND_PCPU": "3",
        "fpga_pool:runtime": "10000000",
        "fpga_pool:cpu_usage": "12.5",
        "resources:CUSTOM_FPGA_SLOT": "1",
        "trait:CUSTOM_FPGA_FUNCTION_AES": "required",
    }


def test_a_design_is_asked_for_by_the_board_and_the_kind_that_it_fits():
    manifest = DesignManifest(
        name="mine", board="demo", kind="large", io_bps=1e9, b_s_per_byte=1e-9, simulates="sha256"
    )  # fmt: skip
    design = KnownDesign(function="mine.12345678", project_id="p", manifest=manifest)
    known = extended(CATALOGUE, [design])
    traits = placement_traits(known.function(design.function))
    specs = consistent_extra_specs(AcceleratorRequest(function=design.function), traits=traits)
    assert specs == {
        "fpga_pool:function": "mine.12345678",
        "fpga_pool:count": "1",
        "resources:CUSTOM_FPGA_SLOT": "1",
        "trait:CUSTOM_FPGA_BOARD_DEMO": "required",
        "trait:CUSTOM_FPGA_KIND_LARGE": "required",
    }
    assert inconsistencies(specs, known) == []
    assert inconsistencies(specs, CATALOGUE) == [
        "fpga_pool:function: 'mine.12345678' does not belong to an approved design that the project may use"
    ]
    (missing,) = inconsistencies(without(specs, "trait:CUSTOM_FPGA_KIND_LARGE"), known)
    assert missing.startswith("trait:CUSTOM_FPGA_KIND_LARGE: missing")
    (foreign,) = inconsistencies(specs | {"trait:CUSTOM_FPGA_FUNCTION_AES": "required"}, known)
    assert foreign == (
        "trait:CUSTOM_FPGA_FUNCTION_AES: belongs to another function; the traits of mine.12345678 are "
        "trait:CUSTOM_FPGA_BOARD_DEMO and trait:CUSTOM_FPGA_KIND_LARGE"
    )


def test_slots_of_several_cards_are_asked_for_one_by_one():
    request = AcceleratorRequest(function="sha256", count=2)
    assert consistent_extra_specs(request, Spread.APART) == SPREAD_SHA256
    assert consistent_extra_specs(request, Spread.HOST) == SPREAD_SHA256 | {"group_policy": "none"}


def test_a_single_slot_needs_no_groups():
    request = AcceleratorRequest(function="sha256")
    assert consistent_extra_specs(request, Spread.APART) == consistent_extra_specs(request)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (AcceleratorRequest(function="sha 256"), "fpga_pool:function: 'sha 256' is invalid"),
        (
            AcceleratorRequest(function="aes", count=65),
            "fpga_pool:count: '65' is invalid; expected a number of slots, 1 to",
        ),
        (
            AcceleratorRequest(function="aes", runtime_s=1e-9),
            "fpga_pool:runtime: '0' is invalid; expected seconds above 0",
        ),
        (
            AcceleratorRequest(function="aes", cpu_usage_percent=101),
            "fpga_pool:cpu_usage: '101' is invalid; expected percent",
        ),
    ],
)
def test_what_no_flavor_can_say_is_refused(request_, sentence):
    with pytest.raises(InvalidInput) as caught:
        consistent_extra_specs(request_)
    assert str(caught.value).startswith(sentence)


@given(
    function=st.sampled_from(sorted(CATALOGUE.functions)),
    count=st.integers(1, 64),
    topology=st.sampled_from(Topology),
    tier=st.sampled_from(Tier),
    runtime_s=st.none() | st.integers(1, 10**9).map(lambda micros: micros / 1000),
    cpu_usage_percent=st.none() | st.integers(0, 1000).map(lambda tenths: tenths / 10),
    spread=st.sampled_from([Spread.HOST, Spread.APART]),
)
def test_the_pool_reads_from_them_what_was_asked_and_nothing_is_wrong(spread, **asked):
    request = AcceleratorRequest(**asked)
    specs = consistent_extra_specs(request, spread)
    assert requested(specs) == request
    wrong = inconsistencies(specs, CATALOGUE)
    if request.count == 1 and request.topology != Topology.ANY:
        assert len(wrong) == 1
        assert "has no effect on 1 slot" in wrong[0]
    else:
        assert wrong == []


@pytest.mark.parametrize(
    "specs", [{}, {"hw:cpu_policy": "dedicated", "resources:VCPU": "2", "trait:HW_CPU_X86_AVX": "required"}]
)
def test_a_flavor_without_accelerators_is_none_of_our_business(specs):
    assert inconsistencies(specs, CATALOGUE) == []


def test_resources_in_groups_of_other_names_are_right_too():
    assert (
        inconsistencies(
            {
                "fpga_pool:function": "sha256",
                "fpga_pool:count": "3",
                "resources1:CUSTOM_FPGA_SLOT": "2",
                "trait1:CUSTOM_FPGA_FUNCTION_SHA256": "required",
                "trait1:CUSTOM_FPGA_KIND_SMALL": "required",
                "resources2:CUSTOM_FPGA_SLOT": "1",
                "trait2:CUSTOM_FPGA_FUNCTION_SHA256": "required",
                "trait2:CUSTOM_FPGA_KIND_SMALL": "forbidden",
                "group_policy": "none",
            },
            CATALOGUE,
        )
        == []
    )


@pytest.mark.parametrize(
    ("specs", "sentences"),
    [
        (
            TWO_SHA256 | {"fpga_pool:count": "1", "resources:CUSTOM_FPGA_SLOT": "1", "fpga_pool:topology": "ring"},
            [
                "fpga_pool:topology: 'ring' has no effect on 1 slot; remove it, or set fpga_pool:count to 2 or more",
            ],
        ),
        (
            without(TWO_SHA256, "resources:CUSTOM_FPGA_SLOT", "trait:CUSTOM_FPGA_FUNCTION_SHA256"),
            ["resources:CUSTOM_FPGA_SLOT: missing, so Placement would allocate no slot; expected 2"],
        ),
        (
            TWO_SHA256 | {"resources:CUSTOM_FPGA_SLOT": "1"},
            ["resources:CUSTOM_FPGA_SLOT: 1 in total, but fpga_pool:count is 2; they must be equal"],
        ),
        (
            without(TWO_SHA256, "fpga_pool:count"),
            ["resources:CUSTOM_FPGA_SLOT: 2 in total, but fpga_pool:count is 1; they must be equal"],
        ),
        (
            TWO_SHA256 | {"resources:CUSTOM_FPGA_SLOT": "some"},
            ["resources:CUSTOM_FPGA_SLOT: 'some' is invalid; expected a number of slots above 0"],
        ),
        (
            without(TWO_SHA256, "trait:CUSTOM_FPGA_FUNCTION_SHA256"),
            [
                "trait:CUSTOM_FPGA_FUNCTION_SHA256: missing, so Placement may allocate slots that cannot hold sha256; "
                "expected 'required'"
            ],
        ),
        (
            TWO_SHA256 | {"trait:CUSTOM_FPGA_FUNCTION_AES": "required"},
            [
                "trait:CUSTOM_FPGA_FUNCTION_AES: belongs to another function; the trait of sha256 is "
                "trait:CUSTOM_FPGA_FUNCTION_SHA256"
            ],
        ),
        (
            TWO_SHA256 | {"trait:CUSTOM_FPGA_FUNCTION_SHA256": "forbidden"},
            ["trait:CUSTOM_FPGA_FUNCTION_SHA256: 'forbidden' is invalid; expected 'required'"],
        ),
        (
            TWO_SHA256 | {"fpga_pool:tier": "gold", "fpga_pool:cout": "2"},
            [
                "fpga_pool:tier: 'gold' is invalid; expected foreground, background or auto",
                "fpga_pool:cout: not an extra spec of fpga_pool; expected one of fpga_pool:function, fpga_pool:count, "
                "fpga_pool:topology, fpga_pool:tier, fpga_pool:migrate, fpga_pool:runtime, fpga_pool:cpu_usage",
            ],
        ),
        (
            TWO_SHA256 | {"fpga_pool:function": "sha512"},
            [
                "fpga_pool:function: 'sha512' is not in the catalogue; it has "
                "aes, dnn, gmm, mvm, optical_flow, sha256, stereo, wordcount"
            ],
        ),
        (
            without(TWO_SHA256, "fpga_pool:function"),
            ["fpga_pool:function: missing, but required by fpga_pool:count"],
        ),
        (
            {"resources:CUSTOM_FPGA_SLOT": "1"},
            [
                "fpga_pool:function: missing, but required by resources:CUSTOM_FPGA_SLOT, as slots without a function "
                "are never loaded"
            ],
        ),
        (
            {
                "fpga_pool:function": "optical_flow",
                "resources:CUSTOM_FPGA_SLOT": "1",
                "trait:CUSTOM_FPGA_FUNCTION_OPTICAL_FLOW": "required",
                "trait:CUSTOM_FPGA_KIND_SMALL": "required",
            },
            [
                "trait:CUSTOM_FPGA_KIND_SMALL=required: no card has such slots that can hold optical_flow; available: "
                "demo (large), kintex7 (large)"
            ],
        ),
        (
            TWO_SHA256 | {"fpga_pool:count": "4", "resources:CUSTOM_FPGA_SLOT": "4"},
            [
                "resources:CUSTOM_FPGA_SLOT: no card has 4 slots of one kind for sha256, at most 3; spread them over "
                "groups (fpga-pool-manage flavor create --spread host)"
            ],
        ),
        (
            without(SPREAD_SHA256, "group_policy"),
            [
                "group_policy: missing; expected none if the slots of resources_FPGA1, resources_FPGA2 may come from "
                "one card, otherwise isolate"
            ],
        ),
        (
            without(SPREAD_SHA256, "trait_FPGA2:CUSTOM_FPGA_FUNCTION_SHA256")
            | {"trait:CUSTOM_FPGA_FUNCTION_SHA256": "required"},
            [
                "trait_FPGA2:CUSTOM_FPGA_FUNCTION_SHA256: missing, so Placement may allocate slots that cannot hold "
                "sha256; expected 'required'",
                "trait:CUSTOM_FPGA_FUNCTION_SHA256: no resources:CUSTOM_FPGA_SLOT in the same group, so it has no "
                "effect on the slots; put both into one group",
            ],
        ),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_told_with_what_is_right(specs, sentences):
    assert inconsistencies(specs, CATALOGUE) == sentences


BACKGROUND = {"fpga_pool:tier": "background", "resources:CUSTOM_FPGA_BACKGROUND_PCPU": "2"}


def test_a_tier_needs_no_accelerator():
    assert tier_extra_specs(Tier.BACKGROUND, 2) == BACKGROUND
    assert tier_extra_specs(Tier.FOREGROUND, 1, 60, 50.0) == {
        "fpga_pool:tier": "foreground",
        "resources:CUSTOM_FPGA_FOREGROUND_PCPU": "1",
        "fpga_pool:runtime": "60",
        "fpga_pool:cpu_usage": "50",
    }
    # Tier `auto` begins in the background.
    assert tier_extra_specs(Tier.AUTO, 1)["resources:CUSTOM_FPGA_BACKGROUND_PCPU"] == "1"
    assert tier_extra_specs(Tier.AUTO, 1, migrate=True)["fpga_pool:migrate"] == "true"
    with pytest.raises(InvalidInput, match="cpu_usage"):
        tier_extra_specs(Tier.AUTO, 1, None, 101.0)
    with pytest.raises(InvalidInput, match="requires fpga_pool:tier=auto"):
        tier_extra_specs(Tier.FOREGROUND, 1, migrate=True)


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("function", [None, "sha256"])
def test_what_is_written_for_a_tier_is_found_right(tier, function):
    if function is None:
        specs = tier_extra_specs(tier, 2)
    else:
        specs = consistent_extra_specs(AcceleratorRequest(function=function, tier=tier), vcpus=2)
    assert inconsistencies(specs, CATALOGUE, 2) == []
    assert inconsistencies(specs, CATALOGUE) == []


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        (BACKGROUND | {"hw:cpu_policy": "dedicated"}, "fpga_pool:tier: a machine whose vCPUs have dedicated pCPUs"),
        (BACKGROUND | {"resources:PCPU": "2"}, "fpga_pool:tier: a machine whose vCPUs have dedicated pCPUs"),
        (BACKGROUND | {"resources:CUSTOM_FPGA_BACKGROUND_PCPU": "3"}, "'3' is invalid; expected 2, the number of"),
        (without(BACKGROUND, "resources:CUSTOM_FPGA_BACKGROUND_PCPU"), "so Placement would allocate no pCPUs"),
        (without(BACKGROUND, "fpga_pool:tier"), "fpga_pool:tier: missing, but required by resources:CUSTOM_FPGA"),
        (
            BACKGROUND | {"resources:CUSTOM_FPGA_FOREGROUND_PCPU": "2"},
            "resources:CUSTOM_FPGA_FOREGROUND_PCPU: does not match tier background",
        ),
        (
            BACKGROUND | {"resources_A:CUSTOM_FPGA_BACKGROUND_PCPU": "2"},
            "resources_A:CUSTOM_FPGA_BACKGROUND_PCPU: does not match tier background",
        ),
        (TWO_SHA256 | BACKGROUND | {"resources:CUSTOM_FPGA_BACKGROUND_PCPU": "1"}, "'1' is invalid; expected 2"),
        (BACKGROUND | {"fpga_pool:migrate": "true"}, "fpga_pool:migrate: requires fpga_pool:tier=auto"),
        (TWO_SHA256 | BACKGROUND | AUTO | {"fpga_pool:migrate": "true"}, "and no fpga_pool:function"),
    ],
)
def test_a_tier_that_placement_is_not_asked_for_alike_is_told(specs, sentence):
    found = inconsistencies(specs, CATALOGUE, 2)
    assert len(found) == 1
    assert sentence in found[0]
