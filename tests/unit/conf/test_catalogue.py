from pathlib import Path

import pytest

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.drivers.slots.functions import function_model
from fpga_pool.model.exceptions import InvalidCatalogue

SHIPPED = Path(__file__).parents[3] / "etc/fpga_pool/catalogue.toml"


@pytest.fixture(scope="module")
def shipped():
    return load_catalogue(SHIPPED)


def test_shipped_catalogue_has_the_functions_and_boards(shipped):
    assert sorted(shipped.functions) == [
        "aes", "dnn", "gmm", "mvm", "optical_flow", "sha256", "stereo", "wordcount",
    ]  # fmt: skip
    assert sorted(shipped.boards) == ["demo", "kintex7"]


def test_shipped_speedups_are_the_assumed_set(shipped):
    speedups = {name: function.speedup for name, function in shipped.functions.items()}
    assert speedups == pytest.approx(
        {"aes": 2, "sha256": 6, "mvm": 4, "stereo": 30, "gmm": 15, "optical_flow": 25, "dnn": 20, "wordcount": 4},
        rel=1e-6,
    )


def test_six_thousand_photos_take_about_a_second(shipped):
    # The makespan paper, section 1: 12 MB of photos of 2 KB each; 6000 * 2048 bytes.
    assert shipped.function("dnn").fpga_time["kintex7"].seconds(6000 * 2048) == pytest.approx(1.0, rel=0.01)


def test_kintex7_is_the_papers_card(shipped):
    # The benefit paper, section V: DMA of 1.28 GB/s, three equal slots and one larger; ICAP: 32 bit at 100 MHz.
    board = shipped.board("kintex7")
    assert board.slots == ("small", "small", "small", "large")
    assert (board.dma_bps, board.configuration_bps) == (1.28 * 8e9, 32 * 100e6)


def test_only_aes_is_preemptible_and_only_optical_flow_needs_the_large_slot(shipped):
    assert [f.name for f in shipped.functions.values() if f.preemptible] == ["aes"]
    for board in shipped.boards:
        assert [name for name in shipped.functions if not shipped.fits(name, board, "small")] == ["optical_flow"]
        assert all(shipped.fits(name, board, "large") for name in shipped.functions)


def test_demo_board_shows_seconds(shipped):
    # 262144 and 524288 bytes at 10 Mbit/s
    board = shipped.board("demo")
    assert (board.load_s("small"), board.load_s("large")) == pytest.approx((0.21, 0.42), rel=0.01)
    for name in ("aes", "sha256", "wordcount"):
        assert 0.8 < shipped.function(name).fpga_time["demo"].seconds(8 * 2**20) < 1.6


def test_four_jobs_of_any_functions_do_not_fill_the_demo_boards_dma(shipped):
    most_bps = max(function.io_bps_on("demo") for function in shipped.functions.values())
    assert 4 * most_bps <= shipped.board("demo").dma_bps * (1 + 1e-9)


def test_every_shipped_function_has_a_software_model(shipped):
    assert all(callable(function_model(name)) for name in shipped.functions)


def test_missing_file_is_told(tmp_path):
    with pytest.raises(InvalidCatalogue, match=r"none\.toml: cannot be read: No such file"):
        load_catalogue(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"format_version = 1\n[functions\n", r"broken\.toml: .*line 2"),
        (b"format_version = 1\nx = '\xff'\n", r"broken\.toml: line 2: not UTF-8 text"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, r"broken\.toml: nested too deeply; a catalogue has tables of values"),
        (b"format_version" + b".a" * 5000 + b" = 1", r"broken\.toml: nested too deeply; a catalogue has tables"),
        (b"x = 1" + b"0" * 5000, r"broken\.toml: .*integer string conversion"),
        (b"format_version = 1\n", r"broken\.toml: functions is missing"),
    ],
)
def test_broken_file_is_told_with_the_line_or_key(tmp_path, content, message):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidCatalogue, match=message):
        load_catalogue(path)
