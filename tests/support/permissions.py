"""The permissions of each persona, as in doc/source/admin/policy.rst, and a valid request for each operation."""

from typing import Any

from fpga_pool.api.operation import Operation
from fpga_pool.model.codec import hints_of
from support.personas import OTHER_PROJECT, PROJECT

#: Kinds of work.
NOUNS = ("batch", "gang", "pipeline", "task")
#: Kinds of objects that belong to a project.
OF_PROJECTS = {*NOUNS, "design", "instance", "job"}
#: Operations of admins on the designs of any project, by id only.
OF_ANY_PROJECT = {"change_design", "show_design_bitstream"}
ALL_PROJECTS = "all"

OWN = {"reader", "member", "manager", "admin"}
USE = {"member", "manager", "admin"}
OPERATE = {"admin", "system admin"}
#: Personas of system scope: they have no project, and see the objects of all projects.
SYSTEM = {"system reader", "system manager", "system admin"}
INSPECT = {*OPERATE, *SYSTEM, "service"}
CATALOGUE = {*OWN, *INSPECT}
#: Allowed personas by operation; all are written out, so that a changed table of operations is noticed here.
ALLOWED = {
    **{f"{verb}_{noun}": USE for verb in ("create", "cancel") for noun in NOUNS},
    **{f"list_{nouns}": OWN for nouns in ("batches", "gangs", "pipelines", "tasks", "jobs", "batch_jobs")},
    **{f"show_{noun}": OWN for noun in (*NOUNS, "job")},
    **{f"list_{noun}_events": OWN for noun in (*NOUNS, "instance", "job")},
    "show_instance": OWN,
    "list_card_events": INSPECT,
    "list_function_events": CATALOGUE,
    "list_quota_events": INSPECT,
    "show_processor": INSPECT,
    "show_service": INSPECT,
    "list_events": OWN,
    "list_slot_events": INSPECT,
    "create_design": USE,
    "delete_design": USE,
    **dict.fromkeys(["list_designs", "show_design", "list_design_events"], OWN | SYSTEM),
    "change_design": OPERATE,
    "show_design_bitstream": OPERATE,
    "list_host_events": CATALOGUE,
    "change_batch": USE,
    "create_tickets": USE,
    "plan_batch": USE,
    "plan_gang": USE,
    "plan_pipeline": USE,
    "plan_task": USE,
    "confirm_results": USE,
    "list_slots": INSPECT,
    "show_slot": INSPECT,
    "change_slot": OPERATE,
    "list_bitstreams": CATALOGUE,
    "show_bitstream": CATALOGUE,
    "list_cards": INSPECT,
    "show_card": INSPECT,
    "change_card": OPERATE,
    "remove_card": OPERATE,
    "show_quota": OWN,
    "show_usage": OWN,
    "show_project_quota": INSPECT,
    "set_quota": OPERATE,
    "unset_quota": OPERATE,
    "list_services": INSPECT,
    "list_counters": INSPECT,
    "list_processors": INSPECT,
    "show_pool": INSPECT,
    "count_work": OWN,
    "purge_work": OPERATE,
    "list_flows": OWN,
    "list_hosts": CATALOGUE,
    "show_host": CATALOGUE,
    "list_functions": CATALOGUE,
    "show_function": CATALOGUE,
    "calibration": CATALOGUE,
}

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
BODIES: dict[str, dict[str, Any]] = {
    "create_batch": {"jobs": [JOB]},
    "change_batch": {"held": False},
    "create_gang": {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5},
    "create_task": {"function": "sha256", "shares": [{"requester": "node-1", "input_bytes": 5}]},
    "create_pipeline": {"subtasks": [JOB | {"name": "a"}]},
    "create_design": {
        "name": "mine",
        "board": "kintex7",
        "kind": "small",
        "io_bps": 1e9,
        "b_s_per_byte": 1e-9,
        "simulates": "sha256",
        "bitstream": "aGVsbG8=",
    },
    "change_design": {"state": "APPROVED"},
    "change_slot": {"drain": False},
    "change_card": {"drain": False},
    "set_quota": {"jobs": 5},
    "purge_work": {"ended_before": "2026-01-01T00:00:00Z"},
}
BODIES |= {f"plan_{noun}": BODIES[f"create_{noun}"] for noun in ("batch", "gang", "pipeline", "task")}
SOURCE = {"source_address": "127.0.0.1", "source_port": 1}
#: Requests that may name an object of another project outside their path: kind of the object, method, path and body.
NAMED_ELSEWHERE = [
    ("batch", "POST", "/v1/batches", {"jobs": [JOB], "after": ["<uuid>"]}),
    ("batch", "POST", "/v1/plans", {"jobs": [JOB], "after": ["<uuid>"]}),
    ("job", "POST", "/v1/batches/<own>/tickets", {"tickets": [{"job": "<uuid>", "purpose": "fetch", **SOURCE}]}),
    ("job", "POST", "/v1/batches/<own>/receipts", {"receipts": [{"job": "<uuid>", "sha256": "ab" * 32}]}),
    ("batch", "GET", "/v1/jobs?batch_uuid=<uuid>", None),
    *(("batch", "GET", f"/v1/{nouns}?marker=<uuid>", None) for nouns in ("batches", "jobs", "events")),
    *((noun, "GET", f"/v1/events?kind={noun}&name=<uuid>", None) for noun in NOUNS),
    ("function", "GET", "/v1/functions/<uuid>", None),
    ("function", "GET", "/v1/functions/<uuid>/events", None),
    ("function", "GET", "/v1/functions/calibration?function=<uuid>", None),
    ("function", "POST", "/v1/batches", {"jobs": [JOB | {"function": "<uuid>"}]}),
    ("function", "POST", "/v1/pipelines", {"subtasks": [JOB | {"name": "a", "function": "<uuid>"}]}),
    ("function", "POST", "/v1/tasks", BODIES["create_task"] | {"function": "<uuid>"}),
    ("function", "POST", "/v1/plans/pipelines", {"subtasks": [JOB | {"name": "a", "function": "<uuid>"}]}),
    ("function", "POST", "/v1/plans/tasks", BODIES["plan_task"] | {"function": "<uuid>"}),
    ("function", "POST", "/v1/designs", BODIES["create_design"] | {"name": "copy", "simulates": "<uuid>"}),
]

SLOT, CARD = "node-2/card-0/r0", "node-2/card-0"
NO_FUNCTION = "is not in the catalogue"
#: Each command: its arguments, the operations that it requests, and its error message for a caller who may request
#: them ("" = it succeeds).  "<noun>" is an object of that kind in the project; DIR is a directory.
COMMANDS = {
    "batch attach": ("<batch> --output-dir DIR", ["show_batch", "list_batch_jobs"], "the pool does not hold 1 of 1"),
    "batch cancel": ("<batch>", ["cancel_batch"], ""),
    "batch create": ("--function sha256 --requester node-1 --hold DIR/a.bin", ["create_batch"], ""),
    "batch fetch": ("<batch> DIR", ["show_batch", "list_batch_jobs"], "held by its owner"),
    "batch hold": ("<batch>", ["change_batch"], ""),
    "batch list": ("", ["list_batches"], ""),
    "batch release": ("<batch>", ["change_batch"], ""),
    "batch retry": ("<batch> DIR/a.bin", ["show_batch", "list_batch_jobs"], "expected"),
    "batch set": ("<batch> --priority -1", ["change_batch"], ""),
    "batch show": ("<batch>", ["show_batch", "list_batch_jobs"], ""),
    "batch watch": ("<batch> --timeout 0.1", ["show_batch", "list_batch_jobs"], "did not end within"),
    "bitstream list": ("", ["list_bitstreams"], ""),
    "bitstream show": ("kintex7/small/sha256", ["list_bitstreams", "show_bitstream"], ""),
    "card drain": (CARD, ["list_cards", "change_card"], ""),
    "card list": ("", ["list_cards"], ""),
    "card remove": (f"{CARD} --timeout 0.1", ["list_cards", "remove_card"], "not removed, but drained"),
    "card resume": (CARD, ["list_cards", "change_card"], ""),
    "card show": (CARD, ["list_cards", "show_card"], ""),
    "design approve": ("<design>", ["change_design"], ""),
    "design create": ("DIR/NEW.toml DIR/a.bin", ["create_design"], ""),
    "design delete": ("<design>", ["delete_design"], ""),
    "design list": ("", ["list_designs"], ""),
    "design reject": ("<design>", ["change_design"], ""),
    "design revoke": ("<design>", ["change_design"], "not possible in state SUBMITTED"),
    "design save": ("<design> DIR/NEW", ["show_design_bitstream"], ""),
    "design set": ("<design> --private", ["change_design"], "not possible in state SUBMITTED"),
    "design show": ("<design>", ["show_design"], ""),
    "event list": ("batch <batch>", ["list_batch_events"], ""),
    "flow list": ("", ["list_flows"], ""),
    "function calibrate": ("", ["calibration"], ""),
    "function list": ("", ["list_functions"], ""),
    "function show": ("sha256", ["show_function"], ""),
    "gang cancel": ("<gang>", ["cancel_gang"], ""),
    "gang create": ("--processes 1 --runtime 60", ["create_gang"], ""),
    "gang list": ("", ["list_gangs"], ""),
    "gang show": ("<gang>", ["show_gang"], ""),
    "host list": ("", ["list_hosts"], ""),
    "host show": ("node-1", ["show_host"], ""),
    "instance show": ("<instance>", ["show_instance"], ""),
    "job list": ("", ["list_jobs"], ""),
    "job show": ("<job>", ["show_job"], ""),
    "pipeline cancel": ("<pipeline>", ["cancel_pipeline"], ""),
    "pipeline create": ("DIR/pipeline.toml", ["create_pipeline"], NO_FUNCTION),
    "pipeline list": ("", ["list_pipelines"], ""),
    "pipeline show": ("<pipeline>", ["show_pipeline", "list_batch_jobs"], ""),
    "pipeline watch": ("<pipeline> --timeout 0.1", ["show_pipeline", "show_batch"], "did not end within"),
    "plan create": ("--function sha256 --requester node-1 DIR/a.bin", ["plan_batch"], ""),
    "plan create gang": ("--processes 1 --runtime 60", ["plan_gang"], ""),
    "plan create pipeline": ("DIR/pipeline.toml", ["plan_pipeline"], NO_FUNCTION),
    "plan create task": ("--function none --requester node-1 DIR/a.bin", ["plan_task"], NO_FUNCTION),
    "pool show": ("", ["show_pool", "list_services", "list_functions"], ""),
    "pool stats": ("", ["count_work", "show_usage"], ""),
    "pool top": ("", ["list_batches", "list_gangs", "count_work", "show_usage"], ""),
    "processor list": ("", ["list_processors"], ""),
    "processor show": ("node-1/pcpu/0", ["list_processors", "show_processor"], ""),
    "quota set": (f"{PROJECT} --jobs 500", ["set_quota"], ""),
    "quota show": (OTHER_PROJECT, ["show_project_quota"], ""),
    "quota unset": (OTHER_PROJECT, ["unset_quota"], ""),
    "service list": ("", ["list_services"], ""),
    "service show": ("node-1", ["list_services", "show_service"], ""),
    "slot drain": (SLOT, ["list_slots", "change_slot"], ""),
    "slot list": ("", ["list_slots"], ""),
    "slot resume": (SLOT, ["list_slots", "change_slot"], ""),
    "slot show": (SLOT, ["list_slots", "show_slot"], ""),
    "task cancel": ("<task>", ["cancel_task"], ""),
    "task create": ("--function none --requester node-1 DIR/a.bin", ["create_task"], NO_FUNCTION),
    "task list": ("", ["list_tasks"], ""),
    "task show": ("<task>", ["show_task"], ""),
    "usage export": ("", ["show_usage"], ""),
    "usage show": ("", ["show_usage"], ""),
    "work purge": ("--before 30d --dry-run", ["purge_work"], ""),
}
#: Commands of operators on the designs of any project.
COMMANDS_OF_ANY_PROJECT = {"design approve", "design reject", "design revoke", "design save", "design set"}


def body_of(operation: str, job: str) -> dict[str, Any] | None:
    """Return the body of a valid request for an operation; some bodies name a job of the batch."""
    if operation == "create_tickets":
        return {"tickets": [{"job": job, "purpose": "send", **SOURCE}]}
    if operation == "confirm_results":
        return {"receipts": [{"job": job, "sha256": "ab" * 32}]}
    return BODIES.get(operation)


def noun_of(command: str) -> str:
    """Return the kind of the project's object that a command's arguments name; "" = none."""
    return COMMANDS[command][0].partition("<")[2].partition(">")[0]


def expected_status(operation: Operation, persona: str, owner: str, named: str | None, succeeded: int) -> int:
    """Return the expected status of a valid request; `succeeded` is the status if it is allowed.

    `owner` is the project of the object in the path, `named` the project in the parameter `project_id`.
    """
    if persona not in ALLOWED[operation.name]:
        return 403
    if named is not None and "project_id" not in hints_of(operation.query):
        return 400
    if named not in (None, PROJECT) and persona not in {"admin", *SYSTEM}:
        return 403
    seen = named or (ALL_PROJECTS if persona in SYSTEM else PROJECT)
    belongs = operation.noun in OF_PROJECTS and operation.name not in OF_ANY_PROJECT
    if belongs and owner != seen != ALL_PROJECTS:
        return 404
    return succeeded
