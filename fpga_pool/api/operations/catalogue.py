"""Operations on functions, bitstreams and designs."""

from operator import attrgetter
from typing import Any

from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.operation import (
    LINKS,
    Call,
    Operation,
    chosen_project,
    chosen_uuid,
    events_of,
    list_of,
    named,
    paged,
    requested,
)
from fpga_pool.api.personas import CATALOGUE, DESIGNS, MEMBER, OPERATOR
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.queries import (
    BitstreamQuery,
    CalibrationQuery,
    LibraryQuery,
    NamedWorkQuery,
    NameQuery,
    ProjectQuery,
)
from fpga_pool.model.messages.requests import Calibration, FunctionInfo
from fpga_pool.model.messages.work import DesignChange, DesignContent, DesignRequest
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design, DesignState
from fpga_pool.model.rest import as_request, show

_DESIGN = "/v1/designs/<uuid>"


def _show_function(call: Call) -> FunctionInfo:
    found = {info.name: info for info in scheduler().functions(tenant().project_id)}
    if call.uuid not in found:
        raise NotFound(f"no function {call.uuid[:64]!r}")
    return found[call.uuid]


def _functions(call: Call) -> dict[str, Any]:
    return paged("functions", scheduler().functions(tenant().project_id), call.query, attrgetter("name"))


def _calibration(call: Call) -> dict[str, Any]:
    found = scheduler().calibration(call.query.function)
    return paged("calibration", found, call.query, lambda fit: f"{fit.function}/{fit.board}")


def _bitstreams(call: Call) -> dict[str, Any]:
    found = scheduler().bitstreams(call.query.host)
    wanted = {name: getattr(call.query, name) for name in ("function", "board", "kind")}
    fitting = [one for one in found if all(not some or getattr(one, name) in some for name, some in wanted.items())]
    return paged("bitstreams", fitting, call.query, attrgetter("name"))


def _show_bitstream(call: Call) -> BitstreamInfo:
    return named(call, "bitstream", scheduler().bitstreams(call.query.host))


def _create_design(call: Call) -> Design:
    return scheduler().create_design(requested(DesignRequest, call))


def _change_design(call: Call) -> Design:
    change = as_request(DesignChange, call.body, {}, chosen_uuid)
    return scheduler().change_design(call.uuid, change, call.seen)


CATALOGUE_OPERATIONS = (
    Operation(method="GET", path="/v1/functions/<name>", name="show_function", persona=CATALOGUE, noun="function",
              summary="Show the current function entry.", handle=_show_function, answer={"function": FunctionInfo}),
    events_of("function", "/v1/functions/<name>", CATALOGUE, of_project=False),
    Operation(method="GET", path="/v1/functions", name="list_functions", persona=CATALOGUE,
              query=NameQuery, handle=_functions, answer={"functions": [FunctionInfo], **LINKS},
              summary="List the current catalogue, including designs that jobs of the project may use."),
    Operation(method="GET", path="/v1/functions/calibration", name="calibration", persona=CATALOGUE,
              query=CalibrationQuery,
              summary="Show how well the time models fit observed runs, for one function or for all.",
              handle=_calibration, answer={"calibration": [Calibration], **LINKS}),
    Operation(method="GET", path="/v1/bitstreams", name="list_bitstreams", persona=CATALOGUE, query=BitstreamQuery,
              handle=_bitstreams, answer={"bitstreams": [BitstreamInfo], **LINKS}, errors=(404,),
              summary="List the bitstreams of the catalogue for the boards of the pool, as a host has them."),
    Operation(method="GET", path="/v1/bitstreams/<uuid>", name="show_bitstream", persona=CATALOGUE, noun="bitstream",
              query=LibraryQuery, handle=_show_bitstream, answer={"bitstream": BitstreamInfo},
              summary="Show a bitstream of the catalogue, as a host has it."),
    list_of("designs", Design, DesignState, NamedWorkQuery, DESIGNS,
            "List the designs of the project, newest first, a page at a time."),
    Operation(method="POST", path="/v1/designs", name="create_design", persona=MEMBER, body=DesignRequest, status=201,
              handle=_create_design, answer={"design": Design},
              summary="Submit a function with its bitstream; an operator decides whether it may be loaded."),
    Operation(method="GET", path=_DESIGN, name="show_design", persona=DESIGNS, noun="design", answer={"design": Design},
              handle=lambda call: scheduler().design(chosen_project(call.query.project_id), call.uuid),
              query=ProjectQuery,
              summary="Show a design of the project, or a public one, with its history."),
    Operation(method="GET", path=f"{_DESIGN}/bitstream", name="show_design_bitstream", persona=OPERATOR, noun="design",
              handle=lambda call: show(scheduler().design_content(call.uuid)), answer=DesignContent,
              summary="Show the bitstream of a design of any project, to decide on it."),
    events_of("design", _DESIGN, DESIGNS),
    Operation(method="PATCH", path=_DESIGN, name="change_design", persona=OPERATOR, noun="design", body=DesignChange,
              handle=_change_design, answer={"design": Design},
              summary="Approve, reject or revoke a design of any project; make it public, or private."),
    Operation(method="DELETE", path=_DESIGN, name="delete_design", persona=MEMBER, noun="design",
              handle=lambda call: scheduler().delete_design(
                  chosen_project(call.query.project_id), call.uuid, call.seen),
              query=ProjectQuery, answer={"design": Design},
              summary="Remove a design whose function is no longer used by any job or instance."),
)  # fmt: skip
