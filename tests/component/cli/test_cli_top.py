"""`fpga-pool pool`: counts of work, and the view of the pool in a terminal."""

import threading
import time
from importlib.metadata import version
from uuid import uuid4

import pytest

from fpga_pool.cli.client import top
from fpga_pool.cli.client.pool import BATCHES, GANGS
from fpga_pool.client import Client
from fpga_pool.model.exceptions import Forbidden, InvalidInput, ServiceUnavailable
from fpga_pool.model.messages.requests import WorkCount
from fpga_pool.model.messages.work import JobRequest


@pytest.fixture
def work(pool, client):
    """Create an instance, and one more batch and gang than `top` lists; return the batches."""
    pool.instance_on("node-2")
    batches = [
        client.create_batch(
            [
                JobRequest(uuid=str(uuid4()), name="a", function="sha256", requester="node-1", input_bytes=9)
                for _ in range(2)
            ],
            name=f"batch-{n}",
        )
        for n in range(BATCHES + 1)
    ]
    for n in range(GANGS + 1):
        client.create_gang(2, 3600.0, 0.5, name=f"gang-{n}-" + "x" * 80)
    return batches


def test_a_pool_is_shown(run):
    shown = run("pool", "show", "-f", "json").json
    assert (shown["hosts"], shown["slots"]) == ({"alive": 2, "lost": 0}, {"kintex7": 2})
    assert shown["release"] == version("fpga_pool")
    assert shown["services"] == {"schedulers up": 1, "agents up": 2}
    assert "sha256 1.0" in shown["functions"]
    assert "| 2 agents up, 1 scheduler up " in run("pool", "show").out


def test_work_is_counted(run, work):
    shown = run("pool", "stats", "-f", "json").json
    assert sum(shown["jobs"].values()) == 2 * (BATCHES + 1)
    assert sum(shown["slots"].values()) == sum(shown["functions"].values()) == 2
    assert shown["leases"] == {"instance": 1}
    other = run("--project", "another", "pool", "stats", "-f", "json").json
    assert other["jobs"] == {}
    assert run("pool", "stats", "--all-projects", "-f", "json").json["jobs"] == shown["jobs"]


@pytest.mark.parametrize("columns", [80, 200])
def test_top_prints_once_where_there_is_no_terminal(run, work, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = run("pool", "top")
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(answer.out.split())
    assert "slots 2: 1 EMPTY, 1 READY; leased: 1 instance functions 1 sha256 (0 BUSY) jobs 12 WAITING_INPUT" in words
    assert [line.split()[0] for line in lines if line.startswith("batch-")] == [f"batch-{n}" for n in range(BATCHES)]
    assert "0 of 2, 0 %" in answer.out
    assert {"... and more batches", "... and more gangs"} <= set(lines)
    assert "node-1 R 1 sha256 node-2 E" in words
    assert "gang-0-xxx" in words


def test_a_tenant_sees_the_own_work_without_the_slots(run, work, monkeypatch):
    def refuse(self, *_, **__):
        raise Forbidden("no")

    for name in ("pool_counts", "slots"):
        monkeypatch.setattr(Client, name, refuse)
    out = " ".join(run("pool", "top").out.split())
    assert "slots your roles do not allow to see them jobs 12 WAITING_INPUT" in out
    assert "batch-0" in out


def test_the_oldest_wait_is_that_of_the_jobs_without_a_place(run, monkeypatch):
    created = {"PENDING": 90.0, "STAGED": 500.0}
    work = [WorkCount(kind="job", state=state, count=3, oldest_at=time.time() - ago) for state, ago in created.items()]
    monkeypatch.setattr(Client, "work_counts", lambda self, project_id=None: work)
    assert 90 <= run("pool", "stats", "-f", "json").json["oldest_wait_s"] < 500
    assert "3 PENDING, 3 STAGED; the oldest has waited" in run("pool", "top").out


@pytest.mark.parametrize("words", [["--interval", "0"], ["--interval", "nan"], ["--project-id", "a", "--all-projects"]])
def test_wrong_usage_of_top(run, words):
    assert run("pool", "top", *words).status == 2


def test_a_pool_that_is_not_there_is_one_line(run):
    answer = run("pool", "top", endpoint="http://127.0.0.1:9", tty=True)
    assert (answer.status, answer.err.count("\n")) == (1, 1)


class Answers:
    """The answers of a pool, in order. The last one is repeated."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = threading.Event()

    def __call__(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if len(self.answers) == 1:
            self.asked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_silence_is_told_until_the_pool_answers_again():
    answers = Answers("first", ServiceUnavailable("no pool responds"))
    looking = top._Poller(answers, 0.01)
    looking.start()
    assert answers.asked.wait(60)
    while not looking.silence:
        looking.join(0.01)
    assert looking.note().startswith("no answer for ")
    assert looking.note().endswith("s, the data below are outdated: no pool responds")
    answers.answers = ["second"]
    while looking.silence:
        looking.join(0.01)
    assert (looking.latest, looking.note()) == ("second", "")
    looking.close()
    looking.join(60)
    assert not looking.is_alive()


def test_an_error_that_does_not_pass_ends_it():
    looking = top._Poller(Answers("first", InvalidInput("no such project")), 0.01)
    looking.start()
    looking.join(60)
    assert (str(looking.error), looking.latest) == ("no such project", "first")
