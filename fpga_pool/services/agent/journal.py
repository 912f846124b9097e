"""What an agent must not forget: executed commands, the jobs it holds, reports not yet taken, tokens used.

One SQLite file in the state directory, so that a repeat after kill -9 or power loss is answered and not executed, and a
report is delivered at least once.  Each method is one transaction.  Commands and completions are synced to disk before
anybody hears of them; what the files on disk tell as well, or a repeat mends, is not (`_transaction`).
"""

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from fpga_pool.model.agent.guests import Key
from fpga_pool.model.agent.process import Goal, HeldProcess
from fpga_pool.model.encoding import ACTIONS, REPORTS, from_plain, to_plain
from fpga_pool.model.exceptions import StorageFull
from fpga_pool.model.messages import AssignJob, Command, HoldSlot, Report, ShapeFlow

#: Commands whose repetition is answered; older ones are refused as late, which comes to the same.
REMEMBERED = 100_000

#: What SQLite says where the disk has no room: for the file or its log, for the index of the log.
_FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})

_SCHEMA = """
CREATE TABLE IF NOT EXISTS fences (slot TEXT PRIMARY KEY, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS commands (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS jobs (
    uuid TEXT PRIMARY KEY, slot TEXT NOT NULL, phase TEXT NOT NULL, action TEXT NOT NULL,
    result_bytes INTEGER, result_sha256 TEXT NOT NULL, finished_at REAL);
CREATE TABLE IF NOT EXISTS reports (number INTEGER PRIMARY KEY AUTOINCREMENT, report TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS inputs (job TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS results (job TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (id TEXT PRIMARY KEY, deadline_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS shards (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS processes (
    name TEXT PRIMARY KEY, processor TEXT NOT NULL, wish TEXT NOT NULL, action TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS flows (name TEXT PRIMARY KEY, action TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS holds (slot TEXT PRIMARY KEY, action TEXT NOT NULL, ready INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS agent (id TEXT NOT NULL, boot INTEGER NOT NULL);
"""


class Phase(StrEnum):
    """Where a job is, as its agent sees it."""

    WAITING = "waiting"
    STAGED = "staged"
    RUNNING = "running"
    HELD = "held"
    #: The attempt failed; the input is kept in case the job comes back.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """A job that this agent holds."""

    slot: str
    assignment: AssignJob
    phase: Phase = Phase.WAITING
    result_bytes: int | None = None
    result_sha256: str = ""
    finished_at: float | None = None

    @property
    def uuid(self) -> str:
        """Identity of the job."""
        return self.assignment.job

    def at(self, phase: Phase) -> "HeldJob":
        """Return the job in another phase."""
        return replace(self, phase=phase)


class Journal:
    """The agent's memory; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._in_transaction = False
        #: Reports that go with the next transaction.
        self._later: list[Report] = []
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(_SCHEMA)
        #: Reads what is committed while the other connection waits for the disk.
        self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        self._reader_lock = threading.Lock()

    def close(self) -> None:
        """End; everything is on disk already."""
        with self._lock:
            self._write_later()
            self._db.close()
        with self._reader_lock:
            self._reader.close()

    @contextmanager
    def together(self, *, durable: bool = True) -> Iterator[None]:
        """Make one transaction of all that is noted inside, in this thread; see `_transaction` for `durable`."""
        with self._transaction(durable=durable):
            yield

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Begin; commit at the end, or roll back.

        Without `durable` a power loss (not a kill) may undo the change, until a durable one has followed.
        StorageFull if there is no room for it.
        """
        with _full_disk_told(), self._lock:
            if self._in_transaction:
                yield self._db
                return
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            told = len(self._later)
            try:
                _tell(self._db, self._later[:told])
                yield self._db
                self._db.execute("COMMIT")
                del self._later[:told]
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def identify(self) -> tuple[str, int]:
        """Return the agent's secret, made at its first start, and how often it was started, this time included."""
        with self._transaction() as db:
            if db.execute("UPDATE agent SET boot = boot + 1").rowcount == 0:
                db.execute("INSERT INTO agent VALUES (?, 1)", (str(uuid.uuid4()),))
            identity, boot = db.execute("SELECT id, boot FROM agent").fetchone()
        return str(identity), int(boot)

    # Commands

    def epoch(self, shard: str) -> int:
        """Return the latest epoch of a shard in which somebody gave commands."""
        with self._lock:
            row = self._db.execute("SELECT epoch FROM shards WHERE name = ?", (shard,)).fetchone()
        return int(row[0]) if row else 0

    def note_epoch(self, shard: str, epoch: int) -> None:
        """Note who gives commands from now on."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO shards VALUES (?, ?)", (shard, epoch))

    def executed(self, command: Command) -> bool:
        """Say whether this very command was executed before."""
        with self._lock:
            row = self._db.execute("SELECT 1 FROM commands WHERE id = ?", (command.id,)).fetchone()
        return row is not None

    def fence(self, slot: str) -> tuple[int, int]:
        """Return epoch and sequence of the last command executed on a slot."""
        with self._lock:
            row = self._db.execute("SELECT epoch, sequence FROM fences WHERE slot = ?", (slot,)).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    def note_command(
        self, command: Command, keep: HeldJob | None, forget: str | None, reports: Sequence[Report]
    ) -> None:
        """Note that a command is executed, together with what it changed."""
        with self._transaction() as db:
            _remember(db, command)
            _advance(db, command)
            _store(db, keep, forget, reports)

    # Slots kept for instances

    def note_hold(self, command: Command, hold: HoldSlot | None, *, ready: bool = False) -> None:
        """Note that a command is executed, and for whom its slot is kept from now on."""
        with self._transaction() as db:
            _remember(db, command)
            _advance(db, command)
            db.execute("DELETE FROM holds WHERE slot = ?", (command.slot,))
            if hold is not None:
                db.execute("INSERT INTO holds VALUES (?, ?, ?)", (command.slot, json.dumps(to_plain(hold)), ready))

    def note_ready(self, slot: str, *, ready: bool) -> None:
        """Note whether a slot that is kept is scrubbed and loaded for its instance."""
        with self._transaction() as db:
            db.execute("UPDATE holds SET ready = ? WHERE slot = ?", (ready, slot))

    def holds(self) -> dict[str, tuple[HoldSlot, bool]]:
        """Return by slot for whom it is kept, and whether it is ready."""
        with self._lock:
            rows = self._db.execute("SELECT slot, action, ready FROM holds").fetchall()
        return {slot: (from_plain(ACTIONS, json.loads(action)), bool(ready)) for slot, action, ready in rows}

    # Flows

    def note_flow(self, command: Command, name: str) -> None:
        """Note that a command about a flow is executed."""
        with self._transaction() as db:
            _remember(db, command)
            if isinstance(command.action, ShapeFlow):
                db.execute("INSERT OR REPLACE INTO flows VALUES (?, ?)", (name, json.dumps(to_plain(command.action))))

    def forget_flow(self, name: str) -> None:
        """Forget a flow that is not held any more."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM flows WHERE name = ?", (name,))

    def flow(self, name: str) -> ShapeFlow | None:
        """Return what a flow is held to, if it is."""
        with self._lock:
            row = self._db.execute("SELECT action FROM flows WHERE name = ?", (name,)).fetchone()
        return from_plain(ACTIONS, json.loads(row[0])) if row else None

    def flows(self) -> list[ShapeFlow]:
        """Return the flows to hold."""
        with self._lock:
            rows = self._db.execute("SELECT action FROM flows ORDER BY rowid").fetchall()
        return [from_plain(ACTIONS, json.loads(action)) for (action,) in rows]

    # Processes of gangs

    def note_process(
        self, command: Command | None, keep: HeldProcess | None, forget: Key | None, reports: Sequence[Report]
    ) -> None:
        """Note what is held of a process, the command that made it so if one did, and the reports that tell of it."""
        with self._transaction() as db:
            if command is not None:
                _remember(db, command)
                _advance(db, command)
            if forget is not None:
                db.execute("DELETE FROM processes WHERE name = ?", (str(forget),))
            if keep is not None:
                held = (str(keep.key), keep.processor, keep.goal, json.dumps(to_plain(keep.launch)))
                db.execute("INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", held)
            _tell(db, reports)

    def processes(self) -> list[HeldProcess]:
        """Return the processes held."""
        with self._lock:
            rows = self._db.execute("SELECT processor, action, wish FROM processes ORDER BY rowid").fetchall()
        return [HeldProcess(name, from_plain(ACTIONS, json.loads(action)), Goal(goal)) for name, action, goal in rows]

    # Jobs and reports

    def jobs(self) -> list[HeldJob]:
        """Return all jobs held."""
        with self._lock:
            rows = self._db.execute("SELECT slot, phase, action, result_bytes, result_sha256, finished_at FROM jobs")
            return [
                HeldJob(
                    slot=slot,
                    phase=Phase(phase),
                    assignment=from_plain(ACTIONS, json.loads(action)),
                    result_bytes=result_bytes,
                    result_sha256=sha256,
                    finished_at=finished_at,
                )
                for slot, phase, action, result_bytes, sha256, finished_at in rows.fetchall()
            ]

    def is_held(self, job: str) -> bool:
        """Say whether a job's completion is recorded: the transaction at hand may be the first to see it."""
        with self._lock:
            row = self._db.execute("SELECT phase FROM jobs WHERE uuid = ?", (job,)).fetchone()
        return row is not None and row[0] == Phase.HELD

    def note(
        self,
        *,
        keep: HeldJob | None = None,
        forget: str | None = None,
        reports: Sequence[Report] = (),
        durable: bool = True,
    ) -> None:
        """Note a change of a job together with the reports that tell of it; see `_transaction` for `durable`."""
        with self._transaction(durable=durable) as db:
            _store(db, keep, forget, reports)

    def tell_later(self, reports: Sequence[Report]) -> None:
        """Have reports told with the next transaction, or when reports are read; a kill may lose them until then."""
        self._later += reports

    def _write_later(self) -> None:
        if self._later:
            with self._transaction(durable=False):
                pass

    def reports(self, limit: int) -> list[tuple[int, Report]]:
        """Return the oldest reports not yet taken, each with its number."""
        with self._lock:
            self._write_later()
            rows = self._db.execute("SELECT number, report FROM reports ORDER BY number LIMIT ?", (limit,)).fetchall()
        return [(number, from_plain(REPORTS, json.loads(text))) for number, text in rows]

    def taken(self, up_to: int) -> None:
        """Forget the reports up to this number: the scheduler has committed them (told again they are void)."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM reports WHERE number <= ?", (up_to,))

    def unreported(self) -> int:
        """Return how many reports wait."""
        with self._lock:
            (count,) = self._db.execute("SELECT COUNT(*) FROM reports").fetchone()
            return int(count) + len(self._later)

    # Small inputs and results, which are not worth a file

    def keep_input(self, job: str, data: bytes) -> None:
        """Keep the whole input of a small job until it is complete."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?)", (job, data))

    def input(self, job: str) -> bytes | None:
        """Return a small job's input, if it is here."""
        return self._blob("SELECT data FROM inputs WHERE job = ?", job)

    def keep_result(self, job: str, data: bytes) -> None:
        """Keep a small result in the place of the job's input."""
        with self._transaction() as db:
            db.execute("DELETE FROM inputs WHERE job = ?", (job,))
            db.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (job, data))

    def result(self, job: str) -> bytes | None:
        """Return a small result, if it is here."""
        return self._blob("SELECT data FROM results WHERE job = ?", job)

    def _blob(self, query: str, job: str) -> bytes | None:
        with self._reader_lock:
            row = self._reader.execute(query, (job,)).fetchone()
        return None if row is None else row[0]

    # Tokens

    def use(self, tokens: Sequence[tuple[str, float]]) -> list[bool]:
        """Mark tokens as used; False for each that was before (`dataplane.handler.TokenLedger`)."""
        with self._transaction(durable=False) as db:
            return [
                db.execute("INSERT INTO tokens VALUES (?, ?) ON CONFLICT DO NOTHING", token).rowcount == 1
                for token in tokens
            ]

    def forget_tokens(self, before_s: float) -> None:
        """Forget tokens that have expired on their own."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM tokens WHERE deadline_s < ?", (before_s,))


@contextmanager
def _full_disk_told() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") in _FULL:
            raise StorageFull("no room for the agent's journal; free space on the disk of [agent] state_dir") from error
        raise


def _remember(db: sqlite3.Connection, command: Command) -> None:
    """Note that a command is executed, and forget those that were so long ago."""
    db.execute("INSERT INTO commands VALUES (?)", (command.id,))
    db.execute("DELETE FROM commands WHERE rowid <= (SELECT MAX(rowid) FROM commands) - ?", (REMEMBERED,))


def _advance(db: sqlite3.Connection, command: Command) -> None:
    """Have a slot refuse what is older than this command."""
    db.execute(
        "INSERT INTO fences VALUES (?, ?, ?) ON CONFLICT (slot) DO UPDATE"
        " SET epoch = excluded.epoch, sequence = excluded.sequence",
        (command.slot, command.epoch, command.sequence),
    )


def _store(db: sqlite3.Connection, keep: HeldJob | None, forget: str | None, reports: Sequence[Report]) -> None:
    if forget is not None:
        for table in ("jobs WHERE uuid", "inputs WHERE job", "results WHERE job"):
            db.execute(f"DELETE FROM {table} = ?", (forget,))  # noqa: S608
    if keep is not None:
        action = json.dumps(to_plain(keep.assignment))
        db.execute(
            "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?)",
            (keep.uuid, keep.slot, keep.phase, action, keep.result_bytes, keep.result_sha256, keep.finished_at),
        )
    _tell(db, reports)


def _tell(db: sqlite3.Connection, reports: Sequence[Report]) -> None:
    db.executemany("INSERT INTO reports (report) VALUES (?)", [(json.dumps(to_plain(item)),) for item in reports])
