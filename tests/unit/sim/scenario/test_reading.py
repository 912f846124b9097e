"""Scenario files: what is read, and that errors are reported with their place."""

import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.scenario.arrivals import arrivals
from fpga_pool.sim.scenario.reading import Policies, check_scenario, read_scenario
from fpga_pool.sim.scenario.values import Spread

POLICIES = Policies(
    batch=["ect", "makespan"], online=["benefit", "benefit_plus"], gang=["measy_plus"], task=["lattice_plus"]
)
HOST = '[hosts.node]\nboard = "fast"\n'
JOBS = 'function = "aes"\ninput_bytes = 1000\nrequester = "node"\n'
BATCH = f'[[batches]]\nname = "a"\n[[batches.jobs]]\n{JOBS}'
ONLINE = f'[[online]]\nname = "o"\n{JOBS}'
TASK = f'[[tasks]]\nname = "t"\nslots = 2\n{JOBS}'
GANG = '[[gangs]]\nname = "g"\nprocesses = 2\nruntime_s = 10\n'
INSTANCE = '[[instances]]\nname = "vm"\nfunction = "aes"\n'
EVENT = "[[events]]\nat_s = 1\n"


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    return make_catalogue({"aes": (1.0, "small"), "flow": (4.0, "large")}, slots=["small", "large"], load_s=0.5)


@pytest.fixture
def read(tmp_path, catalogue):
    def read(text):
        path = tmp_path / "s.toml"
        path.write_text(text)
        found = read_scenario(path)
        check_scenario(found, catalogue, POLICIES)
        return found

    return read


def test_what_is_not_said_has_its_default(read):
    found = read(HOST + BATCH)
    assert (found.pool.seed, found.pool.until_s, found.scheduler.default_policy) == (0, 86400.0, "makespan")
    (batch,) = found.batches
    assert (batch.arrives_s, batch.project, batch.policy, batch.parts[0].takes) == (0.0, "demo", "", Spread(1.0, 1.0))


def test_hosts_of_a_kind_are_numbered(read):
    assert read(HOST + "count = 3\n" + "[hosts.sender]\n").host_names == ("node-1", "node-2", "node-3", "sender")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "hosts: missing; expected a table [hosts.NAME] for each host, or kind of host"),
        ("format_version = 2\n" + HOST, "format_version: expected 1, found 2"),
        ("[nodes.a]\n" + HOST, "nodes: unknown table; tables are format_version, pool, scheduler, agent, delays, ho"),
        (HOST + "color = 1\n", "hosts.node: color: unknown key; keys are count, board"),
        (HOST + "count = 0\n", "hosts.node: count: expected a whole number, 1 to 1000000, found 0"),
        (HOST + "egress_mbps = nan\n", "hosts.node: egress_mbps: expected a finite number above 0, found nan"),
        (HOST + "egress_mbps = -1\n", "hosts.node: egress_mbps: expected a finite number above 0, found -1"),
        (HOST + 'links = "star"\n', "hosts.node: links: expected line, ring, full or none, found 'star'"),
        (HOST + 'enclosures = ["a ring sim0,sim7"]\n', "hosts.node: enclosures: enclosure a: no card 'sim7'"),
        ("[hosts.sender]\ncards = 2\n", "hosts.sender: cards: has no effect without a board"),
        ('[hosts."a/b"]\n', "hosts: name of a table: expected a name of letters"),
        ('[hosts.node]\nboard = "slow"\n', "hosts.node: board: no board of the catalogue 'slow'"),
        (HOST + "count = 2\n[hosts.node-1]\n", "hosts.node-1: name: 'node-1' is also used by hosts.node"),
        ("[pool]\nseed = -1\n" + HOST, "pool: seed: expected a whole number, 0 or more, found -1"),
        ("[pool]\nuntil_s = inf\n" + HOST, "pool: until_s: expected a finite number above 0, found inf"),
        ("[scheduler]\nload_ahead = 1\n" + HOST, "scheduler: load_ahead: expected true or false, found 1"),
        ("[scheduler]\ntenant_share = 1.5\n" + HOST, "scheduler: tenant_share: expected a number, 0.001 to 1"),
        ('[scheduler]\ngang_policy = "x"\n' + HOST, "scheduler: gang_policy: no gang policy 'x'; available:"),
        ("[policy_x]\n" + HOST, "policy_x: no policy 'x'; available: benefit, benefit_plus, ect"),
        ("[policy_ect]\na = nan\n" + HOST, "policy_ect: a: expected a finite number, found nan"),
        (HOST + "[batches]\n", "batches: expected a list of tables [[batches]], found {}"),
        (HOST + '[[batches]]\nname = "a"\n', "batches[0] (a): jobs: missing; expected a non-empty list of tables"),
        (HOST + BATCH + 'late = 1\n', "batches[0] (a): jobs[0]: late: unknown key; keys are function"),
        (HOST + BATCH + 'takes = 0\n', "batches[0] (a): jobs[0]: takes: expected a number above 0, or a range"),
        (HOST + BATCH + 'late_s = [2, 1]\n', "batches[0] (a): jobs[0]: late_s: expected seconds, 0 or more, or a"),
        (HOST + BATCH.replace('"aes"', '"sha"'), "jobs[0]: function: no function of the catalogue 'sha'"),
        (HOST + BATCH.replace('"node"', '"nod"'), "batches[0] (a): jobs[0]: requester: no host 'nod'"),
        (HOST + BATCH.replace("1000", "-5"), "jobs[0]: input_bytes: expected a whole number, 0 or more, or a range"),
        (HOST + BATCH.replace('"a"', '"a"\npolicy = "x"'), "batches[0] (a): policy: no policy for batches"),
        (HOST + BATCH.replace('"a"', '"a"\narrives_s = -1'), "arrives_s: expected finite seconds, 0 or more, found -1"),
        (HOST + BATCH + ONLINE.replace('"o"', '"a"'), "online[0] (a): name: 'a' is also used by batches[0] (a)"),
        (HOST + ONLINE + "every_s = 1\nrate_per_s = 1\ncount = 2\n", "every_s: excludes rate_per_s"),
        (HOST + ONLINE + "rate_per_s = 1\n", "online[0] (o): rate_per_s: has no effect if count is 1"),
        (HOST + ONLINE.replace('"aes"', "{aes = 0}"), "online[0] (o): function: expected a name, or a table of names"),
        (HOST + TASK + 'topology = "star"\n', "tasks[0] (t): topology: expected any, line or ring, found 'star'"),
        (HOST + TASK.replace("slots = 2", "slots = 0"), "tasks[0] (t): slots: expected a whole number, 1 to 1000000"),
        (HOST + TASK + "shapes = [[1, 2, 3]]\n", "tasks[0] (t): shapes: expected a list of numbers of slots, each"),
        (HOST + GANG.replace("processes = 2\n", ""), "gangs[0] (g): processes: missing; expected it or swf"),
        (HOST + GANG + 'swf = "x"\n', "gangs[0] (g): processes: excluded by swf"),
        (HOST + GANG + "most = 2\n", "gangs[0] (g): most: has no effect without swf"),
        (HOST + GANG + "cpu_usage = 1.1\n", "gangs[0] (g): cpu_usage: expected a number above 0, 1 at most, found 1.1"),
        (HOST + INSTANCE + 'host = "x"\n', "instances[0] (vm): host: no host 'x'; available: node"),
        (HOST + INSTANCE.replace('"aes"', '"x"'), "instances[0] (vm): function: no function of the catalogue"),
        (HOST + BATCH + f"takes = 1{'0' * 5000}\n", "integer string conversion"),
        (HOST + BATCH + f"takes = {'[' * 5000}{']' * 5000}\n", "s.toml: nested too deeply; a scenario has tables of v"),
        (HOST + f"[pool]\nseed{'.a' * 5000} = 1\n", "s.toml: nested too deeply; a scenario has tables of values"),
        (HOST + BATCH + f"takes = 0x1{'0' * 5000}\n", "takes: expected a number above 0, or a range [low, high] of"),
        (f"[policy_ect]\na = 0x1{'0' * 5000}\n" + HOST, "policy_ect: a: expected a whole number of 64 bits, found a"),
        ('[pool]\ncatalogue = "a\\u0000b"\n' + HOST, "pool: catalogue: expected a non-empty string without con"),
        (HOST + '[[gangs]]\nname = "g"\nswf = "a\\u0000b"\n', "gangs[0] (g): swf: expected a non-empty string"),
        (HOST + f"count = {2**53}\n", "hosts.node: count: expected a whole number, 1 to 1000000, found 9007199"),
        (HOST + "count = 1000\ncards = 1001\n", "hosts: expected 1000000 cards, CPU workers and gang processors at"),
        (HOST + "count = 600000\n[hosts.b]\ncount = 600000\n", "hosts: expected 1000000 hosts at most, found 1200000"),
        (HOST + ONLINE + f"count = {2**53}\n", "online[0] (o): count: expected a whole number, 1 to 1000000, found"),
        (HOST + BATCH.replace('"a"', '"a"\ncount = 1001') + "count = 1000\n", "batches[0] (a): expected 1000000 jobs"),
        (HOST + ONLINE + "count = 600000\n" + INSTANCE + "count = 600000\n", "expected 1000000 pieces of work at most"),
        (HOST + TASK.replace("slots = 2", f"slots = {2**53}"), "(t): slots: expected a whole number, 1 to 10000"),
        (HOST + INSTANCE + "slots = 65\n", "instances[0] (vm): slots: expected a whole number, 1 to 64, found 65"),
        (HOST + EVENT + 'kind = "explode"\n', "events[0]: kind: expected fail, drain, leave, slow, takeover, cancel,"),
        (HOST + EVENT + 'kind = "fail"\n', "events[0]: target: missing; expected the name of slots"),
        (HOST + EVENT + 'kind = "fail"\ntarget = "node/sim1"\n', "events[0]: target: no host with cards, card or slot"),
        (HOST + EVENT + 'kind = "leave"\ntarget = "x"\n', "events[0]: target: no host 'x'"),
        (HOST + EVENT + 'kind = "cancel"\ntarget = "x"\n', "events[0]: target: no work 'x'"),
        (HOST + EVENT + 'kind = "slow"\ntarget = "node"\n', "events[0]: delay_s: missing; expected"),
        (HOST + EVENT + 'kind = "takeover"\ntarget = "node"\n', "events[0]: target: not allowed for a takeover"),
        (HOST + EVENT + 'kind = "hold"\ntarget = "x"\n', "events[0]: target: no batch 'x'"),
        (HOST + BATCH + EVENT + 'kind = "cancel"\ntarget = "a"\nfor_s = 1\n', "for_s: not allowed, as a cancel"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(read, tmp_path, text, said):
    with pytest.raises(InvalidInput) as refused:
        read(text)
    assert str(refused.value).startswith(f"{tmp_path / 's.toml'}: ")
    assert said in str(refused.value)
    assert str(refused.value).count("s.toml") == 1
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[hosts", "Expected ']'"), (b"\n\xff", "line 2: not UTF-8 text"), (None, "cannot be read: No such file")],
)
def test_what_is_no_file_of_this_kind_is_refused(tmp_path, content, said):
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"s\.toml: ") as refused:
        read_scenario(path)
    assert said in str(refused.value)


def test_work_arrives_as_often_and_as_far_apart_as_is_said(read):
    found = arrivals(read(HOST + BATCH.replace('"a"', '"a"\narrives_s = 2\ncount = 3\nevery_s = 5')), seed=1)
    assert [(arrival.request.uuid, arrival.at_s) for arrival in found] == [("a-1", 2.0), ("a-2", 7.0), ("a-3", 12.0)]


def test_random_arrivals_have_the_rate_that_is_asked_for(read):
    found = arrivals(read(HOST + ONLINE + "count = 2000\nrate_per_s = 4\n"), seed=1)
    # 2000 exponential gaps of 0.25 s: the sum is 500 s, with a standard deviation of 0.25 sqrt(2000) = 11.2 s.
    assert found[-1].at_s == pytest.approx(500, abs=3 * 11.2)


def test_a_mix_of_functions_is_drawn_by_its_weights(read):
    text = HOST + ONLINE.replace('"aes"', "{aes = 3, flow = 1}") + "count = 2000\nevery_s = 1\n"
    functions = [arrival.request.jobs[0].function for arrival in arrivals(read(text), seed=1)]
    # 2000 draws of 3/4: 1500, with a standard deviation of sqrt(2000 x 3/16) = 19.4.
    assert functions.count("aes") == pytest.approx(1500, abs=3 * 19.4)


def test_ranges_are_drawn_within_their_ends_and_by_the_seed(read):
    found = read(HOST + BATCH.replace("1000", "[10, 20]") + "count = 200\ntakes = [0.5, 2]\nlate_s = [0, 3]\n")
    (one,), (again,), (other,) = (arrivals(found, seed) for seed in (1, 1, 2))
    assert one == again != other
    sizes = {job.input_bytes for job in one.request.jobs}
    assert sizes == set(range(10, 21))
    assert 0.5 <= min(one.takes.values()) < 0.6 < 1.9 < max(one.takes.values()) <= 2
    assert 0 <= min(one.late_s.values()) < 0.1 < 2.9 < max(one.late_s.values()) <= 3


def test_a_group_more_changes_nothing_of_the_others(read):
    text = HOST + ONLINE + "count = 5\nrate_per_s = 1\n"
    before = arrivals(read(text), seed=3)
    after = arrivals(read(text + BATCH.replace("1000", "[10, 20]")), seed=3)
    assert [arrival for arrival in after if arrival.group == "o"] == before


def test_requesters_take_turns(read):
    text = HOST + "[hosts.other]\n" + BATCH.replace('"node"', '["node", "other"]') + "count = 3\n"
    (batch,) = arrivals(read(text), seed=0)
    assert [job.requester for job in batch.request.jobs] == ["node", "other", "node"]


def test_gangs_of_a_file_arrive_as_it_says(read, tmp_path):
    lines = ["7 100 -1 30 2 -1 -1 2 60 -1 1 4 -1 -1 -1 -1 -1 -1", "9 130 -1 5 9 -1 -1 9 9 -1 1 4 -1 -1 -1 -1 -1 -1"]
    (tmp_path / "t.swf").write_text("\n".join(lines) + "\n")
    found = read(HOST + "gang_processors = 2\n" + '[[gangs]]\nname = "g"\nswf = "t.swf"\narrives_s = 3\n')
    # The second gang is wider than the pool.
    (gang,) = arrivals(found, seed=0)
    request = gang.request
    assert (request.uuid, request.project_id, gang.at_s) == ("g-7", "user-4", 3.0)
    assert (request.processes, request.runtime_s, request.work_s) == (2, 60.0, 30.0)


def test_a_gang_of_a_file_that_is_called_as_other_work_is_refused(read, tmp_path):
    lines = [f"{job} 100 -1 30 2 -1 -1 2 60 -1 1 4 -1 -1 -1 -1 -1 -1" for job in (1, 2)]
    (tmp_path / "t.swf").write_text("\n".join(lines) + "\n")
    text = HOST + "gang_processors = 2\n" + GANG.replace('"g"', '"g-2"') + '[[gangs]]\nname = "g"\nswf = "t.swf"\n'
    with pytest.raises(InvalidInput, match=r"gangs\[1\] \(g\): name: 'g-2' is also used by gangs\[0\] \(g-2\)"):
        arrivals(read(text), seed=0)
