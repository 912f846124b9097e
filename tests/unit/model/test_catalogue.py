import copy

import pytest

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidCatalogue, NotFound, UnknownFunction

DATA = {
    "format_version": 1,
    "functions": {
        "aes": {
            "version": "1.0",
            "slot_kinds": ["small", "large"],
            "resources": {"luts": 100},
            "io_bps": 8e9,
            "preemptible": True,
            "progress_kept": True,
            "cpu_time": {"a_s": 0.0, "b_s_per_byte": 6e-9},
            "fpga_time": {
                "fast": {"a_s": 0.1, "b_s_per_byte": 1e-9},
                "slow": {"a_s": 0.1, "b_s_per_byte": 4e-9, "source": "measured"},
            },
            "source": "assumed",
        },
        "flow": {
            "version": 2,
            "slot_kinds": ["large"],
            "resources": {"luts": 900},
            "io_bps": 1e9,
            "preemptible": False,
            "speedup": 25,
            "source": "assumed",
        },
    },
    "boards": {
        name: {
            "slots": ["small", "small", "large"],
            "regions": {
                "small": {"luts": 500, "bitstream_bytes": 1000},
                "large": {"luts": 1000, "bitstream_bytes": 2000},
            },
            "configuration_bps": 16000,
            "dma_bps": 1e10,
            "source": "assumed",
        }
        for name in ("fast", "slow")
    },
}


def changed(path, value=None):
    """Return the data with one key set, or removed where `value` is None."""
    data = copy.deepcopy(DATA)
    *parents, last = path.split(".")
    entry = data
    for key in parents:
        entry = entry[key]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    return data


def read(data):
    return Catalogue.from_mapping(data, "test.toml")


def test_reads_every_figure():
    catalogue = read(DATA)
    aes = catalogue.function("aes")
    assert (aes.version, aes.slot_kinds, aes.resources) == ("1.0", ("small", "large"), {"luts": 100})
    assert (aes.io_bps, aes.preemptible, aes.progress_kept, aes.source) == (8e9, True, True, "assumed")
    assert aes.fpga_time["slow"].seconds(1e9) == pytest.approx(4.1)
    assert catalogue.function("flow").version == "2"
    assert catalogue.board("fast").slots == ("small", "small", "large")


def test_speedup_is_cpu_time_over_the_fastest_boards_time_for_a_large_input():
    # 6e-9 / min(1e-9, 4e-9)
    assert read(DATA).function("aes").speedup == pytest.approx(6)


def test_speedup_that_is_given_is_taken():
    assert read(DATA).function("flow").speedup == 25


def test_io_rate_falls_with_the_speed_of_the_board():
    # The same bytes take four times as long.
    aes = read(DATA).function("aes")
    assert aes.io_bps_on("fast") == pytest.approx(8e9)
    assert aes.io_bps_on("slow") == pytest.approx(2e9)


def test_load_time_is_size_over_the_rate_of_the_configuration_port():
    # 1000 and 2000 bytes at 16000 bit/s
    board = read(DATA).board("fast")
    assert (board.load_s("small"), board.load_s("large")) == (0.5, 1.0)


def test_fits_says_which_slots_can_hold_a_function():
    catalogue = read(DATA)
    assert catalogue.fits("aes", "fast", "small")
    assert catalogue.fits("aes", "fast", "large")
    assert not catalogue.fits("flow", "fast", "small")
    assert catalogue.fits("flow", "fast", "large")
    assert not catalogue.fits("aes", "fast", "huge")


def test_a_function_fits_no_slot_that_has_too_few_resources():
    catalogue = read(changed("functions.aes.resources", {"luts": 600}))
    assert not catalogue.fits("aes", "fast", "small")
    assert catalogue.fits("aes", "fast", "large")


def test_a_function_does_not_fit_a_board_it_has_no_time_model_for():
    assert not read(changed("functions.aes.fpga_time.slow")).fits("aes", "slow", "small")


def test_values_cannot_be_changed():
    with pytest.raises(TypeError):
        read(DATA).functions["aes"] = None


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(UnknownFunction, match="'md5' is not in the catalogue; it has aes, flow"):
        read(DATA).function("md5")
    with pytest.raises(NotFound, match="'none' is not in the catalogue; it has fast, slow"):
        read(DATA).board("none")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format_version", None, "test.toml: format_version is missing"),
        ("format_version", 2, "test.toml: format_version must be 1, found 2"),
        ("fonctions", {}, "test.toml: unknown key 'fonctions'; keys are format_version, functions, boards"),
        ("functions", {}, "test.toml: functions must be a non-empty table, found {}"),
        ("functions.aes.colour", "red", "test.toml: functions.aes: unknown key 'colour'; keys are version, "),
        ("functions.aes.source", None, "test.toml: functions.aes: source is missing"),
        ("functions.aes.source", "", "test.toml: functions.aes: source must be a non-empty string, found ''"),
        ("functions.aes.preemptible", "yes", "functions.aes: preemptible must be of type boolean, found 'yes'"),
        ("functions.aes.version", 1.5, "functions.aes: version must be of type string or integer, found 1.5"),
        ("functions.aes.io_bps", -1, "functions.aes: io_bps must be >= 0, found -1"),
        ("functions.aes.io_bps", float("nan"), "functions.aes: io_bps must be finite, found nan"),
        ("functions.aes.slot_kinds", [], "functions.aes: slot_kinds must be a non-empty list, found []"),
        (
            "functions.aes.fpga_time.fast.b_s_per_byte",
            -1,
            "functions.aes.fpga_time.fast: b_s_per_byte must be >= 0, found -1",
        ),
        ("functions.aes.fpga_time.fast.c", 1, "functions.aes.fpga_time.fast: unknown key 'c'"),
        ("functions.aes.fpga_time.fast.a_s", None, "functions.aes.fpga_time.fast: a_s is missing"),
        ("functions.aes.fpga_time.fast.a_s", float("inf"), "functions.aes.fpga_time.fast: a_s must be finite"),
        (
            "functions.aes.fpga_time.fast.b_s_per_byte",
            0,
            "functions.aes.fpga_time.fast: b_s_per_byte must be > 0, as it determines the speedup",
        ),
        ("functions.aes.resources.lut", 1, "functions.aes.resources: unknown key 'lut'; keys are luts, ffs,"),
        ("functions.aes.resources.luts", 1.5, "functions.aes.resources: luts must be of type integer, found 1.5"),
        ("functions.aes.fpga_time.none", {"a_s": 0, "b_s_per_byte": 1}, "functions.aes.fpga_time.none: no such board"),
        ("functions.aes.slot_kinds", ["huge"], "functions.aes.slot_kinds: no board has slots of kind 'huge'"),
        ("functions.aes.resources.luts", 2000, "functions.aes.fpga_time.fast: fits no slot of this board"),
        ("functions.aes.speedup", 3, "functions.aes: speedup and cpu_time are both given"),
        ("functions.flow.speedup", None, "functions.flow: expected either cpu_time and fpga_time, or speedup"),
        ("functions.aes.cpu_time", None, "functions.aes: expected either cpu_time and fpga_time, or speedup"),
        ("functions.flow.speedup", 0, "functions.flow: speedup must be > 0, found 0"),
        (
            "functions.AES",
            DATA["functions"]["flow"],
            "functions: 'aes' and 'AES' have the same trait CUSTOM_FPGA_FUNCTION_AES; rename one",
        ),
        (
            "functions",
            {"net-aes": DATA["functions"]["flow"], "net_aes": DATA["functions"]["flow"]},
            "functions: 'net-aes' and 'net_aes' have the same trait CUSTOM_FPGA_FUNCTION_NET_AES; rename one",
        ),
        (
            "boards.Fast",
            DATA["boards"]["fast"],
            "boards: 'fast' and 'Fast' have the same trait CUSTOM_FPGA_BOARD_FAST; rename one",
        ),
        ("functions.a/b", DATA["functions"]["flow"], "a name of letters, digits, '_' and '-', found 'a/b'"),
        ("boards.fast.dma_bps", 0, "boards.fast: dma_bps must be > 0, found 0"),
        ("boards.fast.slots", ["small", "large", "tiny"], "boards.fast.slots: kind 'tiny' is not described"),
        ("boards.fast.slots", ["small"], "boards.fast.regions.large: the board has no slot of this kind"),
        ("boards.fast.regions.small.bitstream_bytes", 0, "boards.fast.regions.small: bitstream_bytes must be > 0"),
        ("boards.fast.regions.small.bitstream_bytes", None, "boards.fast.regions.small: bitstream_bytes is missing"),
        ("boards.fast", "x", "boards: fast must be of type object, found 'x'"),
    ],
)
def test_names_the_place_that_is_wrong(path, value, message):
    with pytest.raises(InvalidCatalogue) as error:
        read(changed(path, value))
    assert message in str(error.value)
    assert str(error.value).startswith("test.toml: ")
    assert "\n" not in str(error.value)


def test_a_catalogue_for_simulations_needs_no_boards():
    data = changed("boards")
    del data["functions"]["aes"]
    assert read(data).function("flow").speedup == 25


def test_a_kind_that_a_function_cannot_do_without_is_scarcer():
    # aes fits both kinds, flow only large slots: of the two functions, small slots serve 1/2 and large ones 1/2 + 1.
    scarcity = read(DATA).scarcity()
    assert scarcity["fast", "small"] == pytest.approx(0.25)
    assert scarcity["fast", "large"] == pytest.approx(0.75)


def test_a_kind_is_the_scarcer_the_more_a_function_that_needs_it_is_in_demand():
    # 2 slots are held for aes and 1 for flow: with 1 added, the weights are 3/5 and 2/5; large slots serve 3/5/2 + 2/5.
    scarcity = read(DATA).scarcity({"aes": 2.0, "flow": 1.0})
    assert scarcity["fast", "small"] == pytest.approx(0.3)
    assert scarcity["fast", "large"] == pytest.approx(0.7)
