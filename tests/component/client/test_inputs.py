import io
import os

import pytest

from fpga_pool.client.inputs import JobSpec, grouped_by_size, job_requests, read_inputs
from fpga_pool.model.exceptions import InvalidInput


def read_sources(sources, header=b""):
    return read_inputs(JobSpec("sha256", source, "node-1", header) for source in sources)


def content(source):
    with source.open() as file:
        return file.read()


def test_path_bytes_and_file_with_a_header_can_be_read_again(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"path")
    file = io.BytesIO(b"skipped file")
    file.seek(8)
    inputs = read_sources([path, str(path), b"bytes", file], b"key:")
    expected = [b"key:path", b"key:path", b"key:bytes", b"key:file"]
    for _ in range(2):
        assert [content(source) for source in inputs] == expected
    assert [source.input_bytes for source in inputs] == [len(data) for data in expected]
    assert [source.name for source in inputs] == ["a.bin", "a.bin", "input-2", "input-3"]


def test_reads_in_small_pieces_across_the_header(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"defg")
    (source,) = read_sources([path], b"abc")
    with source.open() as file:
        assert [file.read(2) for _ in range(5)] == [b"ab", b"cd", b"ef", b"g", b""]


def test_refuses_what_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for bad, why in [("none", "No such file"), (".", "regular file"), ("pipe", "regular file")]:
        with pytest.raises(InvalidInput, match=why):
            read_sources([tmp_path / bad])


def test_refuses_a_file_that_cannot_seek():
    read_end, write_end = os.pipe()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file, pytest.raises(InvalidInput, match="be seekable"):
        read_sources([file])


def test_refuses_one_open_file_for_two_jobs():
    file = io.BytesIO(b"x")
    with pytest.raises(InvalidInput, match="given twice"):
        read_sources([file, file])


def test_groups_by_size_are_of_equal_number_and_begin_with_the_smallest():
    specs = [JobSpec("sha256", b"x" * size, "node-1") for size in (5, 1, 4, 4, 2)]
    assert [spec.group for spec in grouped_by_size(specs, 2)] == [1, 0, 0, 1, 0]
    # There are no more groups than jobs, and the order of the jobs is unchanged.
    grouped = grouped_by_size(specs, 9)
    assert [spec.source for spec in grouped] == [spec.source for spec in specs]
    assert len({spec.group for spec in grouped}) == 5
    assert [job.group for job in job_requests(read_inputs(grouped_by_size(specs, 1)))] == [0] * 5
