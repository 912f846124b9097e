"""Output of `fpga-pool-sim pool`: the tables of `fpga-pool` and `fpga-pool-manage`, built from a pool in memory."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.table import TableFormatter

from fpga_pool.cli.admin.database import NOTHING_WRONG
from fpga_pool.cli.admin.instances import explanation
from fpga_pool.cli.client import batch, gang, inventory, pipeline, task
from fpga_pool.cli.client.columns import Columns, Row, Table, table
from fpga_pool.model import rest
from fpga_pool.model.codec import to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import PIPELINE_POLICY, Batch, Host, Job, Slot
from fpga_pool.model.objects.tasks import TASK_POLICY, Task
from fpga_pool.model.rules.gang.decisions import gang_detail
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.pipeline.outlook import pipeline_detail
from fpga_pool.model.rules.shared.columns import Providers
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.services.audit import audit
from fpga_pool.sim.scenario.arrivals import pool_columns
from fpga_pool.sim.scenario.run import ScenarioRun

#: Assumed run time of an instance if the scenario gives none, as in `fpga-pool-manage explain`.
STAY_S = 3600.0


class PoolReport(dict[str, Any]):
    """The report as a mapping, which `--json` prints, together with the tables that are printed without `--json`."""

    def __init__(self, run: ScenarioRun, explained: Sequence[str], limit: int) -> None:
        self.tables = _tables(run)
        self.limit = limit
        self.explained = {name: explain(run, name) for name in explained}
        with run.store.reading() as tx:
            jobs = [job for found in reversed(tx.batches()) for job in tx.batch_jobs(found.uuid)]
        unfinished = run.unfinished()
        super().__init__(
            scenario=run.scenario.path,
            seed=run.seed,
            ended_s=run.now_s,
            **{noun: as_plain(table) for noun, table in self.tables.items()},
            jobs=[to_plain(rest.show(job)) for job in jobs],
            unfinished=unfinished,
            refused=run.refused,
            failures=[asdict(failure) for failure in run.failures],
            audit=audit(run.store, idle=run.is_over and not unfinished),
            explain={name: _plain_details(found) for name, found in self.explained.items()},
            history=[asdict(happening) for happening in run.recorder.history],
        )

    def show(self) -> None:
        """Print the report as text; lists of work are cut after `limit` rows, as those of `fpga-pool` are."""
        out = sys.stdout
        print(f"{self['scenario']}: seed {self['seed']}, {self['ended_s']:.3f} s simulated", file=out)
        for noun, (columns, rows) in self.tables.items():
            if rows:
                shown = rows if noun in ("hosts", "slots", "instances") else rows[: self.limit]
                print(f"\n{noun}" + ("" if len(shown) == len(rows) else f", {len(shown)} of {len(rows)}"), file=out)
                print_table(_without_what_is_live((columns, shown)), out)
        for name, found in self.explained.items():
            print(f"\n{name}", file=out)
            if isinstance(found, dict):
                TableFormatter().emit_one(tuple(found), tuple(found.values()), out, _WIDE)
            else:
                print_table(found, out)
        if self["unfinished"]:
            print(f"\nnot ended: {', '.join(self['unfinished'][: self.limit])}", file=out)
        for line in self["refused"]:
            print(f"\nrefused: {line}", file=out)
        if self["failures"]:
            print("\nfailures", file=out)
        for failure in self["failures"]:
            print(
                f"{failure['message']}; {failure['times']} times in total, first at {failure['first_s']:.3f} s",
                file=out,
            )
        print("\naudit", file=out)
        for line in self["audit"] or [NOTHING_WRONG]:
            print(line, file=out)


def show(result: Mapping[str, Any]) -> None:
    """Print a report as text."""
    if isinstance(result, PoolReport):
        result.show()


#: Tables are not fitted to a terminal: the same scenario prints the same bytes everywhere.
_WIDE = argparse.Namespace(max_width=0, fit_width=False, print_empty=True)


#: Columns that only a live pool needs: here work has the names of the scenario, and unfinished work its own list.
_OF_LIVE_POOLS = frozenset({
    "uuid", "created_at", "heard_at", "data_address", "data_port", "data_tls", "refused_streams", "refused_commands",
    "refused_messages", "job", "drain_requested",
})  # fmt: skip


def print_table(table: Table, stream: TextIO) -> None:
    """Print a table as `fpga-pool` does."""
    columns, rows = table
    TableFormatter().emit_list(columns, rows, stream, _WIDE)


def _without_what_is_live(table: Table) -> Table:
    """Return a table without the columns that only a live pool needs; `--json` has all columns."""
    columns, rows = table
    kept = [place for place, name in enumerate(columns) if name not in _OF_LIVE_POOLS]
    return [columns[place] for place in kept], [tuple(row[place] for place in kept) for row in rows]


def as_plain(table: Table) -> list[dict[str, Any]]:
    """Return a table as `fpga-pool` prints it with `-f json`."""
    columns, rows = table
    return [_plain_row(columns, row) for row in rows]


def explain(run: ScenarioRun, name: str) -> dict[str, Any] | Table:
    """Return the details of a batch, task, gang or job, or `explain` of an instance; InvalidInput if there is none."""
    store, now_s = run.store, run.now_s
    for instance in run.instances:
        if instance.request.uuid == name:
            wanted, stay_s = instance.request.wanted, instance.request.stays_s or STAY_S
            with store.reading() as tx:
                fitting = Fitting(Providers.of(pool_columns(tx)), run.catalogue, wanted.function, stay_s)
            return explanation(fitting, name, wanted, together=False)
    with store.reading() as tx:
        if store.get(Task, name) is not None:
            columns, values = task.details(task_detail(tx, name, run.catalogue, now_s))
        elif store.get(Gang, name) is not None:
            columns, values = gang.details(gang_detail(tx, name, run.settings, run.policies.gangs, now_s))
        elif (found := store.get(Batch, name)) is not None:
            if found.policy == PIPELINE_POLICY:
                columns, values = pipeline.details(pipeline_detail(tx, found, run.catalogue, now_s))
            else:
                columns, values = batch.details(found, tx.batch_jobs(name))
        elif (job := store.get(Job, name)) is not None:
            return {
                **to_plain(rest.show(job)),
                "history": "\n".join(f"{e.at:.3f} {e.event}: {e.after}" for e in job.history),
            }
        else:
            raise InvalidInput(f"--explain: no batch, job, task, gang or instance {name!r} has arrived by {now_s:g} s")
    return dict(zip(columns, values, strict=True))


def _tables(run: ScenarioRun) -> Mapping[str, Table]:
    store = run.store
    stored = _newest_first(store.all(Batch))
    batches = [found for found in stored if found.policy not in (TASK_POLICY, PIPELINE_POLICY)]
    return {
        "hosts": table(sorted(store.all(Host), key=lambda found: found.name), inventory.HOSTS),
        "slots": table(sorted(store.all(Slot), key=lambda found: found.name), inventory.SLOTS),
        "batches": table(batches, batch.BATCHES),
        "pipelines": table([found for found in stored if found.policy == PIPELINE_POLICY], batch.BATCHES),
        "tasks": table(_newest_first(store.all(Task)), task.LISTED),
        "gangs": table(_newest_first(store.all(Gang)), gang.LISTED),
        "instances": table(run.instances, _INSTANCES),
    }


def _newest_first(found: Sequence[Any]) -> list[Any]:
    return sorted(found, key=lambda one: (one.created_at, one.uuid), reverse=True)


_INSTANCES: Columns = (
    ("name", attrgetter("request.uuid")),
    ("project", attrgetter("request.project_id")),
    ("function", attrgetter("request.wanted.function")),
    ("slots", attrgetter("request.wanted.count")),
    ("topology", attrgetter("request.wanted.topology")),
    *("state", "host", "arrived_s", "ended_s", "why"),
)


def _plain_row(columns: Sequence[str], row: Row) -> dict[str, Any]:
    return {
        column: value.machine_readable() if isinstance(value, FormattableColumn) else value
        for column, value in zip(columns, row, strict=True)
    }


def _plain_details(found: dict[str, Any] | Table) -> Any:
    return _plain_row(tuple(found), tuple(found.values())) if isinstance(found, dict) else as_plain(found)
