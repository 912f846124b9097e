"""Small results that are stored as files."""

import pytest

from fpga_pool.client.outcome import write_files


def test_files_appear_whole_and_only_their_owner_reads_them(tmp_path):
    (tmp_path / "a").write_bytes(b"older")
    write_files([(tmp_path / "a", b"one"), (tmp_path / "b", b"")])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one", "b": b""}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_of_files_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_files([(tmp_path / "a", b"one"), (tmp_path / "missing" / "b", b"two")])
    assert list(tmp_path.iterdir()) == []
