"""Every operation of the API is requested by one method of the client and by one command."""

import contextlib
import uuid

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.api.http.server import ApiServer
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.client import Client
from fpga_pool.client.inputs import Subtask
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.messages.requests import Receipt, TicketRequest
from fpga_pool.model.messages.work import JobRequest, ShareRequest, SubtaskRequest
from fpga_pool.model.objects.quotas import QuotaLimits
from support.permissions import BODIES

ONE = str(uuid.UUID(int=1))
JOB = JobRequest(uuid=str(uuid.uuid4()), function="sha256", requester="node-1", input_bytes=5)
SUBTASK = SubtaskRequest(uuid=str(uuid.uuid4()), name="a", function="sha256", requester="node-1", input_bytes=5)
SHARE = ShareRequest(uuid=str(uuid.uuid4()), requester="node-1", input_bytes=5)
TICKET = TicketRequest(job=ONE, purpose="send", source_address="127.0.0.1", source_port=1)
MANIFEST = {name: value for name, value in BODIES["create_design"].items() if name != "bitstream"}
#: The client method that requests each operation, and its arguments; a trailing dict holds keyword arguments. The named
#: objects need not exist.
METHODS = {
    "create_batch": ("create_batch", [JOB]),
    "list_batches": ("batches",),
    "show_batch": ("batch_detail", ONE),
    "cancel_batch": ("cancel", ONE),
    "change_batch": ("change_batch", ONE),
    "list_batch_jobs": ("jobs", ONE),
    "create_tickets": ("tickets", ONE, [TICKET]),
    "confirm_results": ("confirm", ONE, [Receipt(job=ONE, sha256="ab" * 32)]),
    "plan_batch": ("plan", [JOB]),
    "plan_gang": ("dry_run_gang", 1, 60.0, 0.5),
    "plan_pipeline": ("dry_run_pipeline", [Subtask("a", "sha256", b"12345", "node-1")]),
    "plan_task": ("dry_run_task", "sha256", [b"12345"], {"requester": "node-1"}),
    "create_gang": ("create_gang", 1, 60.0, 0.5),
    "list_gangs": ("gangs",),
    "show_gang": ("gang", ONE),
    "cancel_gang": ("cancel_gang", ONE),
    "create_pipeline": ("create_pipeline", [SUBTASK]),
    "list_pipelines": ("pipelines",),
    "show_pipeline": ("pipeline", ONE),
    "cancel_pipeline": ("cancel_pipeline", ONE),
    "create_task": ("create_task", "sha256", [SHARE]),
    "list_tasks": ("tasks",),
    "show_task": ("task", ONE),
    "cancel_task": ("cancel_task", ONE),
    "list_jobs": ("project_jobs",),
    "show_job": ("job", ONE),
    "list_events": ("pool_events",),
    "list_slots": ("slots",),
    "show_slot": ("slot", ONE),
    "change_slot": ("drain", ONE),
    "list_cards": ("cards",),
    "show_card": ("card", ONE),
    "change_card": ("drain_card", ONE),
    "remove_card": ("remove_card", ONE),
    "list_hosts": ("hosts",),
    "show_host": ("host", "node-1"),
    "list_processors": ("processors",),
    "show_processor": ("processor", ONE),
    "show_instance": ("instance", ONE),
    "list_counters": ("counters",),
    "list_services": ("services",),
    "show_service": ("service", ONE),
    "show_pool": ("pool_counts",),
    "count_work": ("work_counts",),
    "list_flows": ("flows",),
    "list_functions": ("functions",),
    "show_function": ("function", "sha256"),
    "calibration": ("calibration",),
    "list_bitstreams": ("bitstreams",),
    "show_bitstream": ("bitstream", ONE),
    "create_design": ("create_design", MANIFEST, b"hello"),
    "list_designs": ("designs",),
    "show_design": ("design", ONE),
    "show_design_bitstream": ("design_bitstream", ONE),
    "change_design": ("change_design", ONE),
    "delete_design": ("delete_design", ONE),
    "show_quota": ("quota",),
    "show_project_quota": ("quota", "demo"),
    "set_quota": ("set_quota", "demo", QuotaLimits(jobs=5)),
    "unset_quota": ("unset_quota", "demo"),
    "show_usage": ("usage",),
    "purge_work": ("purge", 0.0),
    **{f"list_{noun}_events": ("events", nouns, ONE) for noun, nouns in (
        ("batch", "batches"), ("gang", "gangs"), ("pipeline", "pipelines"), ("task", "tasks"), ("job", "jobs"),
        ("slot", "slots"), ("host", "hosts"), ("instance", "instances"), ("design", "designs"),
        ("card", "cards"), ("function", "functions"), ("quota", "quotas"))},
}  # fmt: skip
#: The command that requests each operation.
COMMANDS = {
    "create_batch": "batch create --function sha256 --requester node-1 --hold FILE",
    "list_batches": "batch list",
    "show_batch": f"batch show {ONE}",
    "cancel_batch": f"batch cancel {ONE}",
    "change_batch": f"batch hold {ONE}",
    "list_batch_jobs": "batch show <batch>",
    "plan_batch": "plan create --function sha256 --requester node-1 FILE",
    "plan_gang": "plan create gang --processes 1 --runtime 60",
    "plan_pipeline": "plan create pipeline PIPELINE",
    "plan_task": "plan create task --function none --requester node-1 FILE",
    "create_gang": "gang create --processes 1 --runtime 60",
    "list_gangs": "gang list",
    "show_gang": f"gang show {ONE}",
    "cancel_gang": f"gang cancel {ONE}",
    "create_pipeline": "pipeline create PIPELINE",
    "list_pipelines": "pipeline list",
    "show_pipeline": f"pipeline show {ONE}",
    "cancel_pipeline": f"pipeline cancel {ONE}",
    "create_task": "task create --function none --requester node-1 FILE",
    "list_tasks": "task list",
    "show_task": f"task show {ONE}",
    "cancel_task": f"task cancel {ONE}",
    "list_jobs": "job list",
    "show_job": f"job show {ONE}",
    "list_events": "event list",
    "list_slots": "slot list",
    "show_slot": "slot show node-1/card-0/r0",
    "change_slot": "slot resume node-1/card-0/r0",
    "list_cards": "card list",
    "show_card": "card show node-1/card-0",
    "change_card": "card resume node-1/card-0",
    "remove_card": "card remove node-1/card-0 --timeout 0.1",
    "list_hosts": "host list",
    "show_host": "host show node-1",
    "list_processors": "processor list",
    "show_processor": "processor show node-1/pcpu/0",
    "show_instance": f"instance show {ONE}",
    "list_counters": "host show node-1",
    "list_services": "service list",
    "show_service": "service show node-1",
    "show_pool": "pool show",
    "count_work": "pool stats",
    "list_flows": "flow list",
    "list_functions": "function list",
    "show_function": "function show sha256",
    "calibration": "function calibrate",
    "list_bitstreams": "bitstream list",
    "show_bitstream": "bitstream show kintex7/small/sha256",
    "create_design": "design create MANIFEST FILE",
    "list_designs": "design list",
    "show_design": f"design show {ONE}",
    "show_design_bitstream": f"design save {ONE} NEW",
    "change_design": f"design approve {ONE}",
    "delete_design": f"design delete {ONE}",
    "show_quota": "quota show",
    "show_project_quota": "quota show demo",
    "set_quota": "quota set demo --jobs 5",
    "unset_quota": "quota unset demo",
    "show_usage": "usage show",
    "purge_work": "work purge --before 30d --dry-run",
    "list_slot_events": "event list slot node-1/card-0/r0",
    "list_host_events": "event list host node-1",
    "list_card_events": "event list card node-1/card-0",
    "list_function_events": "event list function sha256",
    "list_quota_events": "event list quota demo",
    **{f"list_{noun}_events": f"event list {noun} {ONE}"
       for noun in ("batch", "gang", "pipeline", "task", "job", "instance", "design")},
}  # fmt: skip
#: The operations for which there is no separate command, and why.
NO_COMMAND = {
    "create_tickets": "`batch create` and others ask for tickets when they send and fetch",
    "confirm_results": "`batch fetch` and others say so when they have a result",
}


@pytest.fixture
def reached():
    """Return the list to which the names of requested operations are appended."""
    return []


@pytest.fixture
def url(pool, reached):
    """Serve the API of a pool that records the requested operations; return the URL."""
    from flask import request

    app = create_app(pool)
    app.before_request(lambda: reached.append(request.endpoint))
    server = ApiServer(app, port=0)
    yield server.start()
    server.stop()


def test_the_tables_of_this_test_name_every_operation():
    names = {operation.name for operation in OPERATIONS}
    assert METHODS.keys() == names
    assert COMMANDS.keys() | NO_COMMAND.keys() == names
    assert not COMMANDS.keys() & NO_COMMAND.keys()


def test_every_operation_is_requested_by_one_method_of_the_client(url, reached):
    found = {}
    with Client(url) as client:
        for operation, (method, *arguments) in METHODS.items():
            reached.clear()
            by_name = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            with contextlib.suppress(FpgaPoolError):
                getattr(client, method)(*arguments, **by_name)
            found[operation] = set(reached)
    assert found == {operation: {operation} for operation in METHODS}


LISTS = {command for command in (" ".join(words.split()[:2]) for words in COMMANDS.values()) if "list" in command}


@pytest.mark.parametrize("command", [*sorted(LISTS), "function calibrate", "usage show"])
def test_a_command_that_lists_has_the_options_of_pages(commands, command):
    help_text = commands.find_command(command.split())[0](None, None).get_parser("").format_help()
    assert [option for option in ("--limit", "--marker", "--sort") if option not in help_text] == []


def test_every_operation_is_requested_by_a_command(run, url, reached, tmp_path, pool):
    files = {name: tmp_path / name.lower() for name in ("FILE", "PIPELINE", "MANIFEST", "NEW")}
    files["FILE"].write_bytes(b"12345")
    files["PIPELINE"].write_text(
        'requester = "node-1"\n[[subtasks]]\nname = "one"\nfunction = "none"\ninput = "file"\n'
    )
    files["MANIFEST"].write_text("\n".join(f"{name} = {value!r}" for name, value in MANIFEST.items()))
    with Client(url) as client:
        batch = client.create_batch([JOB], held=True).uuid
    missed = {}
    for operation, command in COMMANDS.items():
        words = [str(files.get(word, word)) for word in command.replace("<batch>", batch).split()]
        reached.clear()
        answer = run(*words, endpoint=url)
        if operation not in reached:
            missed[operation] = (words, reached[:], answer.err)
    assert missed == {}
