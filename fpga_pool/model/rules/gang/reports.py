"""Reports of agents on the processes of gangs, and reconciliation with their heartbeats."""

from dataclasses import dataclass, replace
from typing import Any

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.lifecycle.process import PROCESS
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.messages.gangs import (
    GangReport,
    ObservedProcess,
    ProcessFailed,
    ProcessSaved,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)
from fpga_pool.model.objects.gangs import HELD_PROCESSES, Process, Processor, ProcessState, process_uuid, processor_name
from fpga_pool.model.objects.pool import Host
from fpga_pool.model.rules.gang.changes import change_process, displace_gang, settle_gang
from fpga_pool.model.rules.shared.changes import send_to
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

#: Processes whose progress is reported by their agent.
_PROGRESSING = frozenset({ProcessState.STARTING, ProcessState.RUNNING, ProcessState.SAVING})
#: Processes that were commanded to end.
_TO_END = frozenset({ProcessState.STOPPING, ProcessState.SAVING})


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One reconciled difference in gangs: its subject and its reason."""

    subject: str
    reason: str


def apply_gang_report(tx: Transaction, host: str, report: GangReport, now_s: float) -> str:
    """Apply a report on a process; return the reason if it is ignored, else ""."""
    try:
        process = tx.process(process_uuid(report.gang, report.attempt, report.index))
    except NotFound:
        return f"gang {report.gang}: no process {report.index} of attempt {report.attempt}"
    subject = f"process {process.index} of attempt {process.attempt} of gang {process.gang_uuid}"
    if process.host != host:
        return f"{subject} is on host {process.host}, not on {host}"
    if not PROCESS.allows(process.state, type(report)):
        if isinstance(report, ProcessSaved) and report.saved and not _is_wanted(tx, report):
            send_to(tx, tx.processor(process.processor), _drop(report))
        return f"{subject} is {process.state}"
    was = process.state
    process = change_process(tx, process, report, now_s)
    if isinstance(report, ProcessSaved) and was is ProcessState.SAVING:
        _hand_over(tx, process, report, now_s)
    if isinstance(report, ProcessFailed) and was is not ProcessState.STOPPING:
        displace_gang(tx, tx.gang(process.gang_uuid), f"process {process.index}: {report.message}", now_s)
    else:
        settle_gang(tx, process.gang_uuid, now_s)
    return ""


def _is_wanted(tx: Transaction, report: ProcessSaved) -> bool:
    """Return whether a process is to resume from the reported saved memory."""
    return any(process.saved == report.saved for process in tx.processes(gang=report.gang))


def _drop(report: ProcessSaved) -> StopProcess:
    """Return the command that removes a saved memory from which no process will resume."""
    return StopProcess(gang=report.gang, index=report.index, attempt=report.attempt, saved=report.saved)


def _hand_over(tx: Transaction, saved: Process, report: ProcessSaved, now_s: float) -> None:
    """Pass the saved progress on to the process of the next attempt, which continues elsewhere."""
    heir = tx.process(process_uuid(saved.gang_uuid, saved.attempt + 1, saved.index))
    tx.save(replace(heir, done_s=saved.done_s, progress_at=now_s, saved=report.saved))


def lose_processes(tx: Transaction, host: Host, reason: str, now_s: float) -> None:
    """Abandon the processes on a lost host; their gangs wait for other processors."""
    for gang_uuid in dict.fromkeys(process.gang_uuid for process in tx.processes(host=host.name)):
        displace_gang(tx, tx.gang(gang_uuid), f"host {host.name}: {reason}", now_s, lost_host=host.name)


def refuse_foreign_processors(heartbeat: Heartbeat) -> None:
    """Raise InvalidInput if a processor or process in the heartbeat cannot belong to its host."""
    own = {processor_name(heartbeat.host, observed.number) for observed in heartbeat.processors}
    for name in [observed.processor for observed in heartbeat.processors]:
        if name not in own:
            raise InvalidInput(
                f"processors: {name} is not a processor of host {heartbeat.host}: expected a name that starts with the "
                "host"
            )
    for process in heartbeat.processes:
        if not process.processor.startswith(f"{heartbeat.host}/"):
            raise InvalidInput(f"processes: {process.processor} is not a processor of host {heartbeat.host}")


def compare_gangs(tx: Transaction, heartbeat: Heartbeat, now_s: float, *, returned: bool) -> list[Reconciled]:
    """Reconcile the processors and processes of a host with the desired state.

    `returned`: the host was lost, its commands were dropped and its gangs displaced, so all processes there are strays.
    """
    if not (heartbeat.processors or tx.processors(heartbeat.host)):
        return []
    reconciled = _compare_processors(tx, heartbeat)
    if heartbeat.unreported and not returned:
        return reconciled
    sequences = {observed.processor: observed.sequence for observed in heartbeat.processors}
    settled = {name for name, sequence in sequences.items() if returned or sequence >= tx.processor(name).sequence}
    observed = {_key(process): process for process in heartbeat.processes}
    known = {
        (process.gang_uuid, process.index, process.attempt): process for process in tx.processes(host=heartbeat.host)
    }
    for key, process in known.items():
        # No agent executes commands to a processor that is no longer offered.
        if process.state in HELD_PROCESSES and (process.processor in settled or process.processor not in sequences):
            reconciled += _compare_process(tx, process, observed.get(key), now_s)
    for key, stray in observed.items():
        if key not in known and stray.processor in settled:
            send_to(tx, tx.processor(stray.processor), _stop(stray))
            reconciled.append(
                Reconciled(
                    stray.gang,
                    f"{heartbeat.host} runs a process of this gang, although the process has ended or moved elsewhere",
                )
            )
    return reconciled


def _key(process: ObservedProcess) -> tuple[str, int, int]:
    return process.gang, process.index, process.attempt


def _stop(process: ObservedProcess) -> StopProcess:
    return StopProcess(gang=process.gang, index=process.index, attempt=process.attempt)


def _compare_processors(tx: Transaction, heartbeat: Heartbeat) -> list[Reconciled]:
    stored = {processor.name: processor for processor in tx.processors(heartbeat.host)}
    reconciled = []
    for observed in heartbeat.processors:
        processor = stored.pop(observed.processor, None)
        if processor is None:
            facts: dict[str, Any] = {"name": observed.processor, "host": heartbeat.host, "number": observed.number}
            # If the database was lost, continue the agent's numbering: it would take lower numbers for old commands.
            shard, offered = tx.shard.name, observed.offered
            tx.add(Processor(**facts, shard=shard, sequence=observed.sequence, offered=offered))
            reconciled.append(Reconciled(observed.processor, "newly discovered"))
        elif observed.sequence > processor.sequence or processor.offered is not observed.offered:
            sequence = max(processor.sequence, observed.sequence)
            tx.save(replace(processor, offered=observed.offered, sequence=sequence))
    for gone in stored.values():
        if gone.offered:
            tx.save(replace(gone, offered=False))
            reconciled.append(Reconciled(gone.name, "is no longer offered to gangs"))
    return reconciled


def _compare_process(
    tx: Transaction, known: Process, observed: ObservedProcess | None, now_s: float
) -> list[Reconciled]:
    process = tx.process(known.uuid)
    if process.state not in HELD_PROCESSES:  # reconciled together with another process of its gang
        return []
    if observed is None:
        return [_reconcile_missing(tx, process, now_s)]
    if process.state in _TO_END:
        if observed.ending:
            return []
        kind = StopProcess if process.state is ProcessState.STOPPING else SaveProcess
        send_to(tx, tx.processor(process.processor), kind(**process.about))
        return [Reconciled(process.gang_uuid, f"process {process.index} was not stopped as requested")]
    if observed.tier is not process.priority:
        send_to(tx, tx.processor(process.processor), SetTier(**process.about, tier=process.priority))
        return [Reconciled(process.gang_uuid, f"process {process.index} is in the {observed.tier}")]
    return []


def _reconcile_missing(tx: Transaction, process: Process, now_s: float) -> Reconciled:
    if process.state is ProcessState.STOPPING:
        change_process(tx, process, ProcessStopped(**process.about, at=now_s), now_s)
        settle_gang(tx, process.gang_uuid, now_s)
        return Reconciled(process.gang_uuid, f"process {process.index}, which was being stopped, has ended")
    message = "unknown to its agent"
    change_process(tx, process, ProcessFailed(**process.about, at=now_s, message=message), now_s)
    displace_gang(tx, tx.gang(process.gang_uuid), f"process {process.index}: {message}", now_s)
    return Reconciled(process.gang_uuid, f"process {process.index}: {message}")


def note_process_progress(tx: Transaction, heartbeat: Heartbeat) -> None:
    """Record the progress and the rate of processes as reported in a heartbeat."""
    reported = {process_uuid(seen.gang, seen.attempt, seen.index): seen for seen in heartbeat.processes}
    for process in tx.processes(host=heartbeat.host) if reported else ():
        seen = reported.get(process.uuid)
        if seen is None or process.state not in _PROGRESSING:
            continue
        news = {"done_s": seen.done_s, "rate": seen.rate, "progress_at": seen.progress_at}
        if any(getattr(process, name) != value for name, value in news.items()):
            tx.save(changed(process, **news))
