"""The Gantt chart of a batch shows transfers, loads, both computations, the bound and the planned end."""

from dataclasses import replace
from xml.etree import ElementTree

from fpga_pool.experiments.charts import draw_gantt, loads
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, RateSegment, Slot

BATCH = Batch(
    uuid="b", project_id="p", user_id="u", name="", policy="ect", jobs=1, created_at=0.0, lower_bound_s=3.0,
    planned_makespan_s=4.0,
)  # fmt: skip
JOB = Job(
    uuid="j", batch_uuid="b", project_id="p", user_id="u", index=0, name="n", function="aes", requester="r",
    input_bytes=10, created_at=0.0, host="node", slot="node/c/s", dispatched_at=100.0, start_s=1.0, end_s=4.0,
    transfer=(RateSegment(begin_s=0.0, end_s=1.0, bps=80.0),), staged_at=101.25, started_at=101.5, finished_at=104.5,
)  # fmt: skip
SLOT = Slot(
    name="node/c/s", host="node", card="node/c", region="s", board="demo", kind="small",
    history=(
        HistoryEntry(at=99.0, event="SlotObserved", before="EMPTY", after="LOADING", number=1),
        HistoryEntry(at=101.0, event="SlotObserved", before="LOADING", after="READY", number=2),
        HistoryEntry(at=105.0, event="SlotObserved", before="READY", after="LOADING", number=3),
    ),
)  # fmt: skip


def test_loads_are_those_that_ended():
    assert loads(SLOT) == [(99.0, 101.0)]
    assert loads(replace(SLOT, history=())) == []


def test_a_load_whose_end_was_forgotten_is_none():
    assert loads(replace(SLOT, history=(SLOT.history[0], SLOT.history[2]))) == []


def test_chart_names_what_it_shows(tmp_path):
    waiting = replace(
        JOB, uuid="k", slot="", dispatched_at=None, start_s=None, end_s=None, transfer=(), started_at=None
    )
    (path,) = draw_gantt(BATCH, [JOB, waiting], [SLOT], "one job", tmp_path / "gantt", formats=["svg"])
    comments = "".join(node.text or "" for node in _with_comments(path).iter() if node.tag is ElementTree.Comment)
    keys = ("lower bound", "planned end", "load", "aes", "planned transfer", "transfer", "input complete", "node/c/s")
    for word in keys:
        assert f" {word} " in comments, word


def test_a_transfer_whose_begin_is_known_is_drawn_beside_its_plan(tmp_path):
    def bars(job):
        (path,) = draw_gantt(BATCH, [job], [], "one job", tmp_path / "gantt", formats=["svg"])
        return sum(node.get("id", "").startswith("patch_") for node in ElementTree.parse(path).iter())

    assert bars(replace(JOB, transfer_began_at=100.5)) == bars(JOB) + 1


def _with_comments(path):
    """Return the picture with its comments, in which matplotlib writes the words of texts that it draws as outlines."""
    return ElementTree.parse(
        path, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    ).getroot()
