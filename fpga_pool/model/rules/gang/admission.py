"""Admission and cancellation of gangs."""

import re
from collections import Counter
from collections.abc import Sequence

from fpga_pool.core.gangs.gangs import predicted
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import LONGEST_S
from fpga_pool.model.lifecycle.gang import GangCancelRequested, MigrationFailed
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import ENDED_GANGS, LONGEST_COMMAND, LONGEST_IMAGE, Gang, GangState, Processor
from fpga_pool.model.objects.history import created
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.gang.changes import change_gang, change_migration, end_trial, settle_gang, stop_processes
from fpga_pool.model.rules.shared.admission import emptiest, owned
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import shared

_IMAGE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_IMAGE - 1}}}")


def create_gang(tx: Transaction, request: GangRequest, now_s: float, last_runs: int = 0) -> Gang:
    """Store a new gang.

    Raises
    ------
    InvalidInput
        If the request is invalid; the message says what is expected.
    DuplicateId
        If the gang exists already.

    """
    gang = admit_gang(tx, request, now_s, last_runs)
    tx.add(gang)
    return gang


def admit_gang(tx: Transaction, request: GangRequest, now_s: float, last_runs: int = 0) -> Gang:
    """Return a gang as `create_gang` stores it; raises InvalidInput likewise.

    The gang belongs to the least loaded shard that has enough processors. Its run time is predicted from the last
    `last_runs` gangs of its user; if this is 0 or the user has had fewer gangs, the requested run time is used.
    """
    work_s = request.runtime_s if request.work_s is None else request.work_s
    for name, seconds in (("runtime_s", request.runtime_s), ("work_s", work_s)):
        if not 0 < seconds <= LONGEST_S:
            raise InvalidInput(f"{name}: expected a number above 0, {LONGEST_S:.0f} at most, found {seconds!r}")
    if not 0 < request.cpu_usage <= 1:
        raise InvalidInput(f"cpu_usage: expected a share of a processor, above 0, 1 at most; got {request.cpu_usage!r}")
    check_guest(request.image, request.command)
    return Gang(
        **shared(request, Gang) | {"work_s": work_s},
        created_at=now_s,
        expected_s=_expected_s(tx, request, last_runs),
        shard=_shard_for(request.processes, tx.processors(), tx.open_gangs()),
        history=created(now_s, GangState.QUEUED),
    )


def _expected_s(tx: Transaction, request: GangRequest, last_runs: int) -> float | None:
    """Return the run time of a gang predicted from its user's last gangs; None if predictions are not used."""
    if not last_runs or not request.user_id:
        return None
    return predicted(tx.gang_run_times(request.user_id, last_runs), last_runs, request.runtime_s)


def check_guest(image: str, command: str) -> None:
    """Raise InvalidInput if the name of an image, or the command passed to it, is invalid."""
    if image and not _IMAGE_NAME.fullmatch(image):
        raise InvalidInput(
            f"image: expected a name of letters, digits, '.', '_' and '-', {LONGEST_IMAGE} at most; found {image!r}"
        )
    if len(command) > LONGEST_COMMAND or not command.isprintable():
        raise InvalidInput(f"command: expected one line of {LONGEST_COMMAND} characters at most; found {command!r}")


def _shard_for(width: int, processors: Sequence[Processor], gangs: Sequence[Gang]) -> str:
    size = Counter(processor.shard for processor in processors if processor.offered)
    widest = max(size.values(), default=0)
    if not 1 <= width <= widest:
        raise InvalidInput(
            f"processes: expected 1 to {widest}, found {width}"
            if widest
            else "processes: no host of the pool offers processors to gangs ([agent] gang_processors)"
        )
    asked_s: Counter[str] = Counter()
    for gang in gangs:
        asked_s[gang.shard] += int(gang.processes * gang.runtime_s)
    return emptiest((shard for shard in size if size[shard] >= width), asked_s, size)


def owned_gang(tx: Transaction, uuid: str, project_id: str | None) -> Gang:
    """Return a gang if it belongs to the project (see `owned`)."""
    return owned(tx.gang(uuid), project_id, "gang")


def cancel_gang(tx: Transaction, uuid: str, project_id: str | None, now_s: float, seen: Seen = None) -> Gang:
    """Cancel a gang; it is CANCELLED once all its processes are gone. Raises InvalidTransition if it has ended."""
    gang = owned_gang(tx, uuid, project_id)
    require_seen(gang, seen)
    if gang.cancel_requested and gang.state not in ENDED_GANGS:
        return gang
    gang = change_gang(tx, end_trial(tx, gang, now_s), GangCancelRequested(), now_s)
    if gang.state is GangState.MOVING:
        change_migration(tx, gang, MigrationFailed(reason="cancelled"), now_s)
    stop_processes(tx, gang, "cancelled", now_s)
    settle_gang(tx, uuid, now_s)
    return tx.gang(uuid)
