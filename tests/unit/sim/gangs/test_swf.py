import gzip

import numpy as np
import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.gangs.swf import FIELDS, Swf, read_swf, write_swf
from fpga_pool.sim.gangs.trace import read_trace

LINE = "1 0 -1 100 4 -1 -1 4 200 -1 1 7 -1 -1 -1 -1 -1 -1"


def line(**fields) -> str:
    values = dict(zip(FIELDS, LINE.split(), strict=True)) | {name: str(value) for name, value in fields.items()}
    return " ".join(values.values())


@pytest.fixture
def write(tmp_path):
    def written(*lines, name="trace.swf"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return written


def test_reads_all_fields_and_the_header_with_lines_that_go_on(write):
    path = write("; Version: 2.2", ";  Note: first", ";   and more", "; Note: second", "; MaxProcs: 100", ";", "", LINE)
    swf = read_swf(path)
    assert swf.table.tolist() == [[float(word) for word in LINE.split()]]
    assert swf.column("user").tolist() == [7]
    assert swf.header == (("Version", "2.2"), ("Note", "first\nand more"), ("Note", "second"), ("MaxProcs", "100"))


@pytest.mark.parametrize("name", ["again.swf", "again.swf.gz"])
def test_what_is_written_reads_the_same(tmp_path, name):
    table = np.full((2, 18), -1.0)
    table[:, 0], table[1, 1], table[:, 3] = (1, 2), 0.25, 12
    header = (("Version", "2.2"), ("Note", "one\ntwo"), ("Note", "three"))
    write_swf(tmp_path / name, Swf(table, header))
    again = read_swf(tmp_path / name)
    assert (again.table == table).all()
    assert again.header == header
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_compressed_files_are_the_same_bytes_each_time(tmp_path):
    for name in ("a.swf.gz", "b.swf.gz"):
        write_swf(tmp_path / name, Swf(np.full((3, 18), 1.0)))
    assert (tmp_path / "a.swf.gz").read_bytes() == (tmp_path / "b.swf.gz").read_bytes()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("1 2 3", "line 4: expected 18 fields, found 3"),
        (LINE + " 5", "line 4: expected 18 fields, found 19"),
        (line(run_s="ten"), "line 4: run_s: expected a number, found 'ten'"),
        (line(submit_s="nan"), "line 4: submit_s: expected a number, found 'nan'"),
        ("; Version: 3.0", "line 4: Version: 3.0 is newer than 2.2"),
        ("; Version: new", "line 4: Version: expected a number such as 2.2, found 'new'"),
        ("1" * 5000, "line 4: longer than 4096 characters"),
    ],
)
def test_a_broken_line_is_named_by_its_number(write, broken, message):
    with pytest.raises(InvalidInput, match=message):
        read_swf(write("; Note: x", LINE, "", broken, line(job=2)))


def test_broken_lines_beyond_the_first_block_are_named(write):
    lines = [line(job=i) for i in range(20_005)]
    with pytest.raises(InvalidInput, match="line 20006: expected 18 fields, found 1"):
        read_swf(write(*lines, "end"))


def test_cut_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "cut.swf.gz"
    path.write_bytes(gzip.compress(LINE.encode() * 100)[:-20])
    with pytest.raises(InvalidInput, match=r"cut\.swf\.gz"):
        read_swf(path)
    with pytest.raises(InvalidInput, match="No such file"):
        read_swf(tmp_path / "none.swf")


def test_a_trace_has_the_jobs_that_can_run_in_order_of_submission(write):
    path = write(
        line(job=1, submit_s=50),
        line(job=2, submit_s=9, processors=-1, requested_processors=3),
        line(job=4, submit_s=9, run_s=300),  # runs longer than its estimate of 200, which becomes 300
        line(job=3, submit_s=9, requested_s=-1),
        line(job=5, processors=9),  # too wide for 8 processors
        line(job=6, run_s=0),
        line(job=7, processors=-1, requested_processors=-1),
    )
    trace, left_out = read_trace(path, 8)
    assert trace.job.tolist() == [2, 3, 4, 1]
    assert trace.width.tolist() == [3, 4, 4, 4]
    assert trace.estimate_s.tolist() == [200, 100, 300, 200]
    assert left_out == 3


def test_a_job_that_is_there_twice_is_refused(write):
    with pytest.raises(InvalidInput, match="duplicate job 1"):
        read_trace(write(LINE, LINE), 8)


def test_load_is_scaled_by_the_times_between_submissions(write):
    # 4 * 100 + 4 * 100 of work on 8 processors in 200 s is a load of 0.5; for a load of 0.25 the times double.
    trace, _ = read_trace(write(line(job=1, submit_s=100), line(job=2, submit_s=300)), 8)
    assert trace.load(8) == 0.5
    assert trace.with_load(0.25, 8).submit_s.tolist() == [100, 500]
    with pytest.raises(ValueError, match="submitted at the same time"):
        read_trace(write(LINE), 8)[0].with_load(0.5, 8)
