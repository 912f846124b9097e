import hashlib
import threading
import uuid

import pytest

from fpga_pool.client import Client, JobSpec
from fpga_pool.client.runner import BatchRunner
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState

JOB = {"uuid": "", "name": "x", "function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def responder(pool):
    return pool.open_data_port()


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    for path in paths:
        path.write_bytes(path.name.encode())
    return paths


@pytest.fixture
def create(run):
    return lambda *argv, **options: run(
        "batch", "create", "--function", "sha256", "--requester", "node-1", *argv, **options
    )


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_create_ends_with_a_table_of_results(create, responder, files):
    answer = create("--long", *files)
    assert answer.status == 0
    assert all(sha256(path.name.encode()) in answer.out for path in files)
    assert answer.err == ""


def test_create_in_json_leaves_numbers_numbers(create, responder, files):
    rows = create("-f", "json", *files).json
    assert rows[0] == {
        "file": str(files[0]),
        "state": rows[0]["state"],
        "slot": "node-1/card-0/r0",
        "compute_s": 0.25,
        "result": sha256(b"a.bin"),
    }


def test_create_sends_the_header_and_keeps_results_where_asked(create, responder, files, tmp_path):
    (tmp_path / "key").write_bytes(b"key")
    out = tmp_path / "out"
    answer = create("--header", tmp_path / "key", "--output-dir", out, "-f", "json", files[0])
    assert answer.json[0]["path"] == str(out / "a.bin.sha256")
    assert (out / "a.bin.sha256").read_text().strip() == sha256(b"keya.bin")


def test_create_leaves_no_directory_behind_for_small_results(create, responder, files, tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert create(*files).status == 0
    assert list(folder.iterdir()) == []


def test_create_shows_bars_where_somebody_looks(create, responder, files):
    assert "jobs" in create(*files, tty=True).err
    assert "jobs" in create("--progress", *files).err
    assert create("--no-progress", *files, tty=True).err == ""


def test_create_fails_where_a_job_failed_and_says_why(create, pool, responder, files, monkeypatch):
    plan = pool.plan

    def plan_and_break_the_second(batch_uuid):
        pool.fails[pool.tx.batch_jobs(batch_uuid)[1].uuid] = "broken"
        plan(batch_uuid)

    monkeypatch.setattr(pool, "plan", plan_and_break_the_second)
    answer = create("-f", "json", *files)
    assert answer.status == 1
    assert [row["error"] for row in answer.json] == ["", "broken"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--function", "sha3"), "'sha3' is not in the catalogue"),
        (("--requester", "elsewhere"), "no host 'elsewhere'"),
        (("--header", "/nowhere"), "--header /nowhere: cannot be read: No such file"),
    ],
)
def test_create_with_wrong_words_is_wrong_usage_in_one_line(create, files, argv, says):
    answer = create(*argv, *files)
    assert answer.status == 2
    assert says in answer.err
    assert answer.err.count("\n") == 1


def test_create_without_the_file_is_wrong_usage(create, tmp_path):
    answer = create(tmp_path / "none")
    assert (answer.status, answer.err) == (
        2,
        f"fpga-pool: {tmp_path / 'none'}: cannot be read: No such file or directory\n",
    )


def test_interrupted_create_cancels_the_batch_and_says_so(create, pool, files, monkeypatch):
    def interrupted(self):
        self._create()
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchRunner, "run", interrupted)
    answer = create(*files)
    (batch,) = pool.tx.batches()
    assert batch.cancel_requested
    assert (answer.status, answer.err) == (130, f"fpga-pool: interrupted: batch {batch.uuid} is being cancelled\n")


def test_an_interrupted_create_says_what_became_of_a_batch_that_cannot_be_cancelled(create, pool, files, monkeypatch):
    def interrupted(self):
        self._create()
        self._api.cancel(self.batch_uuid)  # as if the batch had ended in the meantime
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchRunner, "run", interrupted)
    answer = create(*files)
    (batch,) = pool.tx.batches()
    assert answer.status == 130
    assert answer.err.startswith(f"fpga-pool: interrupted: batch {batch.uuid} was not cancelled: ")
    assert answer.err.count("\n") == 1


def test_create_with_an_impossible_column_or_directory_runs_nothing(create, pool, files):
    answer = create("-c", "nothing", *files)
    assert (answer.status, "-c nothing: no such column; there are name, " in answer.err) == (2, True)
    answer = create("--output-dir", files[0], *files)
    assert (answer.status, f"{files[0]}: cannot be a directory of results: File exists" in answer.err) == (2, True)
    assert pool.batch_uuids() == []


def test_a_dry_run_shows_the_plan_within_80_columns_and_stores_nothing(create, pool, files):
    answer = create("--dry-run", *files)
    assert (answer.status, answer.err) == (0, "")
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "0  a.bin  node-1/card-0/r0  " in answer.out
    assert "lower_bound_s" in answer.out
    assert pool.batch_uuids() == []


def test_a_dry_run_in_json_is_one_object_with_numbers(create, files):
    plan = create("--dry-run", "--policy", "ect", "-f", "json", *files).json
    assert (plan["policy"], plan["jobs"], plan["input_bytes"]) == ("ect", 2, 10)
    assert plan["planned_makespan_s"] == max(job["end_s"] for job in plan["job_list"]) >= plan["lower_bound_s"] > 0
    assert [(job["name"], job["host"]) for job in plan["job_list"]] == [("a.bin", "node-1"), ("b.bin", "node-2")]
    assert plan["ends_at"].endswith("+00:00")
    assert list(create("--dry-run", "-f", "json", "-c", "jobs", *files).json) == ["jobs"]


def test_a_plan_is_that_of_a_dry_run(run, create, pool, files, tmp_path):
    words = ("--function", "sha256", "--requester", "node-1", "--policy", "ect", "-f", "json", *files)
    planned, dry = run("plan", "create", *words), create("--dry-run", *words[4:])
    times = ("ends_at", "planned_completion_s", "completion_bound_s")
    plain, expected = ({name: value for name, value in one.json.items() if name not in times} for one in (planned, dry))
    assert (planned.status, planned.err, plain) == (0, "", expected)
    (tmp_path / "batch.toml").write_text('function = "sha256"\nrequester = "node-1"\n[[jobs]]\ninput = "a.bin"\n')
    assert run("plan", "create", "--jobs", tmp_path / "batch.toml", "-f", "json", "-c", "jobs").json == {"jobs": 1}
    assert run("plan", "create", *files).err.startswith("fpga-pool: jobs[0]: expected a function")
    assert pool.batch_uuids() == []


def test_a_dry_run_in_csv_has_a_row_for_each_job(create, files):
    head, *rows = create("--dry-run", "-f", "csv", *files).out.splitlines()
    assert head == '"index","name","function","host","slot","start_s","end_s"'
    assert len(rows) == 2


def test_a_dry_run_of_jobs_that_are_not_planned_says_so(create, files):
    plan = create("--dry-run", "--policy", "benefit_plus", "-f", "json", *files).json
    assert plan["planned_makespan_s"] is None
    assert "plans nothing" in plan["pending_reason"]
    table = create("--dry-run", "--policy", "benefit_plus", *files).out
    assert "0  a.bin  waits" in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize("other", [["--no-wait"], ["--output-dir", "out"]])
def test_a_dry_run_leaves_nothing_to_wait_for_or_keep(create, files, other):
    assert create("--dry-run", *other, *files).status == 2


def test_a_dry_run_is_refused_as_the_batch_would_be(create, files):
    wrong = ("--function", "sha3")
    planned, created = create(*wrong, "--dry-run", *files), create(*wrong, *files)
    assert (planned.status, planned.err) == (created.status, created.err)
    assert planned.status == 2


@pytest.fixture
def finished(pool, responder, serve, tmp_path):
    with Client(serve(pool)) as client:
        yield client.run("sha256", [b"x"], requester="node-1", name="first", output_dir=tmp_path / "r").batch


def test_list(run, finished):
    (row,) = run("batch", "list", "-f", "json").json
    assert (row["uuid"], row["name"], row["state"], row["completed"]) == (finished.uuid, "first", "COMPLETED", 1)
    assert row["created_at"].endswith("+00:00")
    assert run("--project", "other", "batch", "list", "-f", "json").json == []
    assert run("batch", "list", "--limit", "0").status == 2


def test_show_has_the_jobs(run, finished):
    shown = run("batch", "show", finished.uuid, "-f", "json").json
    assert (shown["jobs"], shown["job_list"][0]["compute_s"]) == (1, 0.25)
    assert shown["job_list"][0]["place"] == "slot"
    assert "input-0  sha256" in run("batch", "show", finished.uuid).out
    assert "slot  node-1/card-0/r0" in run("batch", "show", finished.uuid).out


def test_watch_ends_with_the_batch(run, pool, responder, files, tmp_path, serve, eventually):
    responder.computes_at_once = False
    with Client(serve(pool)) as client:
        thread = threading.Thread(
            target=client.run, args=("sha256", files), kwargs={"requester": "node-1", "output_dir": tmp_path / "r"}
        )
        thread.start()
        eventually(lambda: pool.batch_uuids() and all(job.state is JobState.STAGED for job in pool.first_jobs()))
        uuid = pool.batch_uuids()[0]
        watching = []
        watcher = threading.Thread(target=lambda: watching.append(run("batch", "watch", uuid, "-f", "json")))
        watcher.start()
        responder.compute()
        watcher.join()
        thread.join()
    assert (watching[0].status, watching[0].json["state"]) == (0, "COMPLETED")


def test_cancel(run, pool, client):
    from fpga_pool.model.messages.work import JobRequest

    job = JobRequest(uuid=str(uuid.uuid4()), name="", function="sha256", requester="node-1", input_bytes=1)
    batch = client.create_batch([job])
    (row,) = run("batch", "cancel", batch.uuid, "-f", "json").json
    assert row["cancel_requested"] is True
    assert run("batch", "watch", batch.uuid).status == 1


def test_unknown_batch_fails_in_one_line(run):
    answer = run("batch", "show", uuid.UUID(int=1))
    assert (answer.status, answer.err) == (1, f"fpga-pool: no batch {uuid.UUID(int=1)}\n")


# ---- Retry


@pytest.fixture
def half_failed(create, pool, responder, files, monkeypatch):
    """Create a batch of two groups whose second job fails; return its uuid."""
    given = pool.create_batch

    def fails_second(request, wait_s):
        pool.fails[request.jobs[1].uuid] = "it smokes"
        return given(request, wait_s)

    monkeypatch.setattr(pool, "create_batch", fails_second)
    assert create("--name", "night", "--policy", "sjf", "--groups", 2, *files).status == 1
    monkeypatch.undo()
    return pool.batch_uuids()[0]


def test_a_retry_runs_the_jobs_that_have_failed_as_another_batch(run, pool, half_failed, files):
    answer = run("batch", "retry", half_failed, *files, "-f", "json")
    assert answer.status == 0, answer.err
    assert [(row["file"], row["result"]) for row in answer.json] == [("b.bin", sha256(b"b.bin"))]
    (again,) = set(pool.batch_uuids()) - {half_failed}
    batch = pool.tx.batch(again)
    assert (batch.name, batch.policy, batch.jobs) == ("night", "sjf", 1)
    (job,) = pool.tx.batch_jobs(again)
    assert (job.function, job.requester, job.name, job.group) == ("sha256", "node-1", "b.bin", 1)


def test_a_retry_needs_the_files_of_the_batch_and_a_failed_job(run, pool, half_failed, files):
    missing = run("batch", "retry", half_failed, files[1])
    assert (missing.status, "files: expected 2, one for each job" in missing.err) == (2, True)
    swapped = run("batch", "retry", half_failed, *files[::-1])
    assert (swapped.status, "files[0]: expected a.bin of 5 bytes" in swapped.err) == (2, True)
    (row,) = run("batch", "retry", half_failed, "--hold", *files, "-f", "json").json
    none = run("batch", "retry", row["uuid"], files[1])
    assert (none.status, none.err) == (2, f"fpga-pool: batch {row['uuid']}: of 1 job none has failed\n")


# ---- Hold and release


def test_a_batch_that_is_created_held_runs_when_it_is_released(create, run, responder, files, tmp_path):
    created = create("--hold", "--name", "night", "-f", "json", *files)
    assert created.status == 0
    (held,) = created.json
    assert (held["name"], held["state"], held["pending_reason"]) == ("night", "PENDING", "held by its owner")
    assert run("batch", "list", "-f", "json").json[0]["pending_reason"] == "held by its owner"
    assert run("batch", "show", held["uuid"], "-f", "json").json["pending_reason"] == "held by its owner"
    job = run("batch", "show", held["uuid"], "-f", "json").json["job_list"][0]
    assert job["reason"] == run("job", "show", job["uuid"], "-f", "json").json["reason"] == "held by its owner"
    (released,) = run("batch", "release", held["uuid"], "-f", "json").json
    assert released["pending_reason"] == ""
    attached = run("batch", "attach", held["uuid"], "--output-dir", tmp_path / "out", "--files", *files)
    assert attached.status == 0


def test_a_batch_whose_files_have_not_come_can_be_held(client, run, pool, files):
    batch = client.create([JobSpec("sha256", path, "node-1") for path in files])
    assert run("batch", "hold", batch.uuid, uuid.UUID(int=1), "-f", "json").status == 1
    assert [job.reason for job in client.jobs(batch.uuid)] == ["held by its owner"] * 2


def test_the_priority_of_a_batch_is_set_and_shown(create, run, files):
    (row,) = create("--hold", "--priority", 5, "-f", "json", *files).json
    assert run("batch", "show", row["uuid"], "-f", "json").json["priority"] == 5
    assert run("batch", "set", "--priority", -5, row["uuid"]).status == 0
    assert run("batch", "show", row["uuid"], "-f", "json").json["priority"] == -5
    refused = run("batch", "set", "--priority", 101, row["uuid"])
    assert (refused.status, "priority: expected" in refused.err) == (2, True)
    assert run("batch", "set", row["uuid"]).status == 2


def test_a_batch_and_a_plan_say_by_how_much_they_miss_a_deadline(create, run, files, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)  # no time passes between two requests
    (plan,) = (create("--dry-run", "--deadline", "0.001", "-f", "json", *files).json,)
    assert plan["late_s"] > 0
    assert "| late by " in create("--dry-run", "--deadline", "0.001", *files).out
    assert create("--dry-run", "--deadline", "2100-01-31T12:00:00Z", "-f", "json", *files).json["late_s"] is None
    (row,) = create("--hold", "--deadline", "2100-01-31T12:00:00+01:00", "-f", "json", *files).json
    shown = run("batch", "show", row["uuid"], "-f", "json").json
    assert (shown["deadline_at"], shown["ends_at"], shown["late_s"]) == ("2100-01-31T11:00:00.000000+00:00", None, None)
    past = create("--hold", "--deadline", "2001-01-31T12:00:00Z", *files)
    assert (past.status, "deadline_at: expected a point in time that is yet to come" in past.err) == (2, True)
    assert create("--hold", "--deadline", "tomorrow", *files).status == 2


def test_a_batch_names_those_that_it_waits_for(create, run, client, files):
    first = client.create([JobSpec("sha256", path, "node-1") for path in files], held=True)
    (row,) = create("--hold", "--after", first.uuid, "-f", "json", *files).json
    assert row["pending_reason"] == f"held by its owner; waits for batch {first.uuid}"
    (plan,) = (create("--dry-run", "--after", first.uuid.upper(), "-f", "json", files[0]).json,)
    assert plan["pending_reason"].endswith(f"waits for batch {first.uuid}; the plan ignores this")
    answer = create("--after", uuid.UUID(int=1), *files)
    assert (answer.status, answer.err) == (1, f"fpga-pool: no batch {uuid.UUID(int=1)}\n")


# ---- Batch files


BATCH_FILE = """
name = "night"
function = "sha256"
header = "key"

[[jobs]]
input = "a.bin"

[[jobs]]
input = "b.bin"
name = "second"
requester = "node-2"
function = "aes"
group = 1
"""


@pytest.fixture
def batch_file(files, tmp_path):
    (tmp_path / "key").write_bytes(b"key")
    path = tmp_path / "night.toml"
    path.write_text(BATCH_FILE)
    return path


def test_a_batch_file_describes_jobs_that_differ(run, pool, batch_file):
    words = ("batch", "create", "--hold", "--requester", "node-1", "--jobs", batch_file)
    (row,) = run(*words, "-f", "json").json
    assert row["name"] == "night"
    assert [(job.name, job.function, job.requester, job.input_bytes) for job in pool.tx.batch_jobs(row["uuid"])] == [
        ("a.bin", "sha256", "node-1", 8),  # the bytes of `key` and of `a.bin`
        ("second", "aes", "node-2", 8),
    ]
    assert [job.group for job in pool.tx.batch_jobs(row["uuid"])] == [0, 1]
    (other,) = run(*words, "--name", "other", "-f", "json").json
    assert other["name"] == "other"


def test_jobs_are_divided_into_groups_by_the_size_of_their_inputs(create, run, pool, tmp_path):
    paths = [tmp_path / f"{size}.bin" for size in (3, 1, 4, 2)]
    for path in paths:
        path.write_bytes(b"x" * int(path.stem))
    (row,) = create("--hold", "--groups", 2, "-f", "json", *paths).json
    jobs = pool.tx.batch_jobs(row["uuid"])
    assert [(job.name, job.group) for job in jobs] == [("3.bin", 1), ("1.bin", 0), ("4.bin", 1), ("2.bin", 0)]
    assert run("job", "show", jobs[0].uuid, "-f", "json").json["group"] == 1
    assert create("--hold", "--groups", 0, *paths).status == 2


def test_a_batch_file_is_enough_to_attach(run, pool, responder, batch_file, tmp_path):
    (row,) = run("batch", "create", "--hold", "--requester", "node-1", "--jobs", batch_file, "-f", "json").json
    assert run("batch", "release", row["uuid"]).status == 0
    attached = run("batch", "attach", row["uuid"], "--jobs", batch_file, "--output-dir", tmp_path / "out", "-f", "json")
    assert (attached.status, [one["file"] for one in attached.json]) == (0, ["a.bin", "second"])
    assert (tmp_path / "out" / "a.bin.sha256").read_text().strip() == sha256(b"keya.bin")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--jobs", "night.toml"), "jobs[0]: expected a requester, by --requester or in the batch file"),
        (("--jobs", "night.toml", "--header", "key"), "--header is for input files; a batch file names its own"),
        (
            ("--jobs", "night.toml", "--requester", "node-1", "--groups", "2"),
            "--groups is for jobs without a group; the batch file names groups of its own",
        ),
        (("--jobs", "night.toml", "a.bin"), "expected input files or --jobs, and not both"),
        ((), "expected input files or --jobs, and not both"),
        (("a.bin",), "jobs[0]: expected a function, by --function or in the batch file"),
        (("--jobs", "none.toml"), "none.toml: cannot be read: No such file or directory"),
        (("--jobs", "a.bin"), "a.bin: not a TOML file: "),
    ],
)
def test_a_batch_without_jobs_or_all_that_they_need_is_wrong_usage(run, pool, batch_file, monkeypatch, argv, says):
    monkeypatch.chdir(batch_file.parent)
    answer = run("batch", "create", *argv)
    assert (answer.status, answer.err.startswith(f"fpga-pool: {says}"), answer.err.count("\n")) == (2, True, 1)
    assert pool.batch_uuids() == []


# ---- Submit now, fetch later


def test_what_is_submitted_is_fetched_later(create, run, responder, files, tmp_path):
    (created,) = create("--no-wait", "-f", "json", *files).json
    fetched = run("batch", "fetch", created["uuid"], tmp_path / "out", "-f", "json")
    assert fetched.status == 0
    assert [row["path"] for row in fetched.json] == [str(tmp_path / "out" / f"{path.name}.sha256") for path in files]
    assert [row["result"] for row in fetched.json] == [sha256(path.name.encode()) for path in files]


def test_results_that_cannot_be_stored_stay_in_the_pool_and_the_command_says_so(
    create, run, responder, files, tmp_path
):
    (tmp_path / "out" / "a.bin.sha256").mkdir(parents=True)
    answer = create("--output-dir", tmp_path / "out", "-f", "json", files[0])
    assert (answer.status, answer.json[0]["error"]) == (1, "Is a directory")
    (batch,) = run("batch", "list", "-f", "json").json
    says = f"batch {batch['uuid']}: the pool holds 1 result; `batch fetch` gets what could not be stored"
    assert answer.err == f"fpga-pool: {says}\n"
    fetched = run("batch", "fetch", batch["uuid"], tmp_path / "other", "-f", "json").json
    assert fetched[0]["result"] == sha256(b"a.bin")


def test_fetch_fails_while_a_result_is_missing(create, run, responder, files, tmp_path):
    responder.computes_at_once = False
    (created,) = create("--no-wait", "-f", "json", *files).json
    fetched = run("batch", "fetch", created["uuid"], tmp_path / "out", "-f", "json")
    assert (fetched.status, [row["state"] for row in fetched.json]) == (1, ["STAGED", "STAGED"])


def test_attach_continues_where_a_killed_client_stopped(client, run, pool, responder, files, tmp_path):
    # The killed client has created the batch, but sent no input.
    client.runner([JobSpec("sha256", path, "node-1") for path in files], output_dir=tmp_path / "killed")._create()
    (uuid,) = pool.batch_uuids()
    refused = run("batch", "attach", uuid, "--output-dir", tmp_path / "out")
    assert refused.status == 2
    assert "attach with the files of the batch" in refused.err
    attached = run("batch", "attach", uuid, "--output-dir", tmp_path / "out", "-f", "json", "--files", *files)
    assert attached.status == 0
    assert (tmp_path / "out" / "a.bin.sha256").read_text().strip() == sha256(b"a.bin")


def test_interrupted_attach_leaves_the_batch_alone(create, run, pool, responder, files, tmp_path, monkeypatch):
    (created,) = create("--no-wait", "-f", "json", *files).json

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchRunner, "run", interrupted)
    answer = run("batch", "attach", created["uuid"])
    assert (answer.status, answer.err) == (130, f"fpga-pool: interrupted: batch {created['uuid']} continues\n")
    assert not pool.tx.batch(created["uuid"]).cancel_requested


# ---- Lists


def test_lists_take_filters_an_order_and_a_marker(run, client):
    made = [client.create_batch([JobRequest(**JOB | {"uuid": str(uuid.uuid4())})]).uuid for _ in range(3)]
    listed = run("batch", "list", "--state", "pending", "--since", "1h", "--sort", "created_at:asc", "-f", "json").json
    assert [row["uuid"] for row in listed] == made
    rest = run("batch", "list", "--sort", "created_at:asc", "--marker", made[0], "--limit", 1, "-f", "json").json
    assert [row["uuid"] for row in rest] == made[1:2]
    assert run("batch", "list", "--since", "2126-01-01T00:00:00Z", "-f", "json").json == []
    assert run("batch", "list", "--since", "soon").status == 2
    assert [row["function"] for row in run("job", "list", "--host", "node-1", "-f", "json").json] == ["sha256"] * 3


def test_a_list_of_all_projects_names_them(run, client):
    client.create_batch([JobRequest(**JOB | {"uuid": str(uuid.uuid4())})])
    (row,) = run("--project", "other", "batch", "list", "--all-projects", "-f", "json").json
    table = run("--project", "other", "batch", "list", "--all-projects").out
    assert f"| {row['project_id']} " in table.splitlines()[3]
    assert row["project_id"] == "demo"


@pytest.mark.parametrize("whose", [["--project-id", "demo"], ["--all-projects"]])
def test_an_admin_shows_and_cancels_work_of_another_project(run, client, whose):
    made = client.create_batch([JobRequest(**JOB | {"uuid": str(uuid.uuid4())})]).uuid
    for command in ("show", "cancel"):
        assert run("--project", "other", "batch", command, made, "--project-id", "nobody").status == 1
        assert run("--project", "other", "batch", command, made).status == 1
    shown = run("--project", "other", "batch", "show", made, *whose, "-f", "json").json
    assert (shown["uuid"], len(shown["job_list"])) == (made, 1)
    (row,) = run("--project", "other", "batch", "cancel", made, *whose, "-f", "json").json
    assert row["cancel_requested"]


def test_show_job_says_when_it_is_expected_to_start(run, client):
    batch = client.create_batch([JobRequest(**JOB | {"uuid": str(uuid.uuid4())})])
    (job,) = client.jobs(batch.uuid)
    shown = run("job", "show", job.uuid, "-f", "json").json
    assert (shown["state"], shown["batch_uuid"]) == ("WAITING_INPUT", batch.uuid)
    assert shown["expected_at"] is not None


def test_show_job_says_why_it_waits(run, client, pool):
    pool.plans_at_once = False
    (job,) = client.jobs(client.create_batch([JobRequest(**JOB | {"uuid": str(uuid.uuid4())})]).uuid)
    shown = run("job", "show", job.uuid, "-f", "json").json
    assert (shown["state"], shown["pending_reason"]) == ("PENDING", "it is about to be planned")
    assert shown["expected_at"] is not None


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["--host", "node-2"], ["node-2/card-0/r0"]),
        (["--state", "BUSY"], []),
        (["--limit", 1, "--sort", "name:desc"], ["node-2/card-0/r0"]),
        (["--marker", "node-1/card-0/r0"], ["node-2/card-0/r0"]),
    ],
)
def test_slots_are_listed_by_filters(run, argv, names):
    assert [row["name"] for row in run("slot", "list", *argv, "-f", "json").json] == names


@pytest.mark.parametrize("noun", ["batch", "pipeline", "task", "gang", "job", "function"])
def test_lists_fit_80_columns_unless_they_are_to_be_long(run, create, files, noun):
    assert create("--hold", *files).status == 0
    assert run("gang", "create", "--processes", 1, "--runtime", 5).status == 0
    assert max(map(len, run(noun, "list").out.splitlines())) <= 80
    short, long = ({*run(noun, "list", *more).out.splitlines()[1:2]} for more in ((), ("--long",)))
    assert noun in ("pipeline", "task") or max(map(len, long)) > max(map(len, short))


def test_what_is_said_of_a_batch_that_was_created_or_changed_fits_80_columns(run, create, files):
    (held,) = create("--hold", "-f", "json", *files).json
    assert held["pending_reason"] == "held by its owner"
    said = [create("--hold", *files).out]
    said += [run("batch", *words, held["uuid"]).out for words in (["release"], ["hold"], ["set", "--priority", "0"])]
    assert max(len(line) for text in said for line in text.splitlines()) <= 80
    assert "held by its owner" in run("batch", "hold", "--long", held["uuid"]).out


def test_work_is_named_by_a_name_that_only_one_has(create, run, client, files):
    spec = JobSpec("sha256", b"12345", "node-1")
    one = client.create([spec], name="night", held=True)
    for _ in range(2):
        client.create([spec], name="twice", held=True)
    assert run("batch", "show", "night", "-f", "json").json["uuid"] == one.uuid
    assert run("job", "list", "--batch", "night", "-f", "json").json[0]["batch_uuid"] == one.uuid
    events = [run("event", "list", "batch", name, "-f", "json").out for name in ("night", one.uuid)]
    assert events[0] == events[1]
    (later,) = create("--hold", "--after", "night", "-f", "json", *files).json
    assert later["pending_reason"].endswith(f"waits for batch {one.uuid}")
    several = run("batch", "show", "twice")
    assert (several.status, several.err) == (2, "fpga-pool: several batches are called 'twice': expected a uuid\n")
    missing = run("batch", "cancel", "night", "day", "-f", "json")
    assert missing.status == 1
    assert "no batch 'day': not a uuid" in missing.err
    assert client.batch(one.uuid).state is BatchState.CANCELLED
    for kind in ("task", "pipeline", "gang"):
        assert f"no {kind} 'day'" in run(kind, "show", "day").err
