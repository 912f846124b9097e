"""What each persona may do, as doc/source/admin/policy.rst says it; requests that are possible, for each operation."""

from typing import Any

from fpga_pool.api.operation import Operation
from fpga_pool.model.codec import hints_of
from support.personas import PROJECT

#: Kinds of work.
NOUNS = ("batch", "gang", "pipeline", "task")
#: Kinds of objects that belong to a project.
OF_PROJECTS = {*NOUNS, "design", "instance", "job"}
#: What admins do to the designs of any project, by their ids alone.
OF_ANY_PROJECT = {"change_design", "show_design_bitstream"}
ALL_PROJECTS = "all"

OWN = {"reader", "member", "manager", "admin"}
USE = {"member", "manager", "admin"}
OPERATE = {"admin", "system admin"}
#: These have no project: what they may see is of all.
SYSTEM = {"system reader", "system manager", "system admin"}
INSPECT = {*OPERATE, *SYSTEM, "service"}
CATALOGUE = {*OWN, *INSPECT}
#: Personas by the name of an operation, written out: a change of the table of operations is noticed here.
ALLOWED = {
    **{f"{verb}_{noun}": USE for verb in ("create", "cancel") for noun in NOUNS},
    **{f"list_{nouns}": OWN for nouns in ("batches", "gangs", "pipelines", "tasks", "jobs", "batch_jobs")},
    **{f"show_{noun}": OWN for noun in (*NOUNS, "job")},
    **{f"list_{noun}_events": OWN for noun in (*NOUNS, "instance", "job")},
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
}
BODIES |= {f"plan_{noun}": BODIES[f"create_{noun}"] for noun in ("batch", "gang", "pipeline", "task")}


def expected_status(operation: Operation, persona: str, owner: str, named: str | None, succeeded: int) -> int:
    """Return the status of a request that is possible and, where it is allowed, is answered with `succeeded`.

    `owner` is the project of the object of its path, `named` the project that its parameter names.
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
