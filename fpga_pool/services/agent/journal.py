"""The durable state of an agent: executed commands, the jobs it holds, reports not yet acknowledged, tokens used.

It is one SQLite file in the state directory. After kill -9 or power loss, a repeated command is acknowledged but not
executed again, and every report is delivered at least once. Each method is one transaction. Commands and completions
are synced to disk before they are acknowledged; state that files or repetitions can restore is not (`_transaction`).
"""

import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.gang_process import Goal, HeldProcess, Key
from fpga_pool.model.agent.objects import REMEMBERED, HeldJob, Phase
from fpga_pool.model.codec import from_text, to_text
from fpga_pool.model.exceptions import InvalidInput, StorageFull
from fpga_pool.model.messages.agents import Action, Command, HoldSlot, Report, ShapeFlow
from fpga_pool.transfer.handler import JobResult

#: SQLite's errors for a full disk: on writes of the file or its log, and of the index of the log.
_FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})

#: Each script brings a journal to the next version; SQLite's `user_version` is the number of applied scripts.
_MIGRATIONS = [
    """
CREATE TABLE fences (slot TEXT PRIMARY KEY, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL);
CREATE TABLE commands (id TEXT PRIMARY KEY);
CREATE TABLE jobs (
    uuid TEXT PRIMARY KEY, slot TEXT NOT NULL, phase TEXT NOT NULL, action TEXT NOT NULL,
    result_bytes INTEGER, result_sha256 TEXT NOT NULL, finished_at REAL, evicted_done REAL);
CREATE TABLE reports (number INTEGER PRIMARY KEY AUTOINCREMENT, report TEXT NOT NULL);
CREATE TABLE inputs (job TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE results (job TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE tokens (id TEXT PRIMARY KEY, deadline_s REAL NOT NULL);
CREATE TABLE shards (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE processes (
    name TEXT PRIMARY KEY, processor TEXT NOT NULL, wish TEXT NOT NULL, action TEXT NOT NULL);
CREATE TABLE flows (name TEXT PRIMARY KEY, action TEXT NOT NULL);
CREATE TABLE holds (slot TEXT PRIMARY KEY, action TEXT NOT NULL, ready INTEGER NOT NULL);
CREATE TABLE agent (id TEXT NOT NULL, boot INTEGER NOT NULL);
""",
]


class Journal:
    """The agent's journal; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._in_transaction = False
        #: Reports that are written with the next transaction.
        self._later: list[Report] = []
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        version = _version(self._db, path)
        self._db.execute("PRAGMA journal_mode=WAL")
        _migrate(self._db, version)
        #: Reads committed data while the other connection waits for the disk.
        self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        self._reader_lock = threading.Lock()

    def close(self) -> None:
        """Write the remaining reports and close the database."""
        with self._lock:
            self._write_later()
            self._db.close()
        with self._reader_lock:
            self._reader.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads from recording anything inside, so that data that was read stays valid."""
        with self._lock:
            yield

    @contextmanager
    def together(self, *, durable: bool = True) -> Iterator[None]:
        """Combine all that this thread records inside into one transaction; see `_transaction` for `durable`."""
        with self._transaction(durable=durable):
            yield

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Begin a transaction; commit it at the end, or roll it back after an error.

        Without `durable`, a power loss (not a kill) may undo the change until a durable transaction has followed.
        Raises StorageFull if the disk is full.
        """
        with _full_disk_reported(), self._lock:
            if self._in_transaction:
                yield self._db
                return
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            count = len(self._later)
            try:
                _insert_reports(self._db, self._later[:count])
                yield self._db
                self._db.execute("COMMIT")
                del self._later[:count]
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def identify(self) -> tuple[str, int]:
        """Return the agent's secret, created at its first start, and the number of its starts including this one."""
        with self._transaction() as db:
            if db.execute("UPDATE agent SET boot = boot + 1").rowcount == 0:
                db.execute("INSERT INTO agent VALUES (?, 1)", (str(uuid.uuid4()),))
            identity, boot = db.execute("SELECT id, boot FROM agent").fetchone()
        return str(identity), int(boot)

    # Commands

    def epochs(self) -> dict[str, int]:
        """Return the latest epoch of commands by shard."""
        with self._lock:
            return dict(self._db.execute("SELECT name, epoch FROM shards").fetchall())

    def commands(self) -> tuple[str, ...]:
        """Return the ids of the commands whose repetition is recognized, the oldest first."""
        with self._lock:
            return tuple(identity for (identity,) in self._db.execute("SELECT id FROM commands ORDER BY rowid"))

    def fences(self) -> dict[str, tuple[int, int]]:
        """Return epoch and sequence of the last executed command by slot or processor."""
        with self._lock:
            rows = self._db.execute("SELECT slot, epoch, sequence FROM fences").fetchall()
        return {slot: (epoch, sequence) for slot, epoch, sequence in rows}

    def executed(self, command: Command) -> bool:
        """Return whether this command was executed before."""
        with self._lock:
            row = self._db.execute("SELECT 1 FROM commands WHERE id = ?", (command.id,)).fetchone()
        return row is not None

    def fence(self, slot: str) -> tuple[int, int]:
        """Return epoch and sequence of the last command executed on a slot or processor; zeros if there was none."""
        with self._lock:
            row = self._db.execute("SELECT epoch, sequence FROM fences WHERE slot = ?", (slot,)).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    # Instructions of the agent's state machine

    def record(
        self,
        instructions: Sequence[i.Instruction],
        *,
        durable: bool = True,
        inputs: Mapping[str, bytes] | None = None,
        results: Mapping[str, JobResult] | None = None,
    ) -> None:
        """Execute all record instructions in one transaction; see `_transaction` for `durable`.

        `inputs` and `results` are the small inputs and the results to keep, by job. Raises StorageFull if the disk is
        full.
        """
        records = [one for one in instructions if isinstance(one, i.RecordInstruction)]
        now = [one for one in records if not isinstance(one, i.ReportLater)]
        if now:
            with self._transaction(durable=durable) as db:
                for one in now:
                    _record(db, one, inputs or {}, results or {})
                _insert_reports(db, [one.report for one in now if isinstance(one, i.Report)])
                if any(isinstance(one, i.KeepCommand) for one in now):
                    _forget_old_commands(db)
        # Written with the next transaction, or when reports are read; a kill may lose them until then.
        self._later += [one.report for one in records if isinstance(one, i.ReportLater)]

    def holds(self) -> dict[str, tuple[HoldSlot, bool]]:
        """Return the reservation of each slot, and whether the slot is ready."""
        with self._lock:
            rows = self._db.execute("SELECT slot, action, ready FROM holds").fetchall()
        return {slot: (from_text(Action, action), bool(ready)) for slot, action, ready in rows}

    # Flows

    def note_flow(self, command: Command, name: str) -> None:
        """Record that a command about a flow was executed."""
        with self._transaction() as db:
            _remember(db, command)
            _forget_old_commands(db)
            if isinstance(command.action, ShapeFlow):
                db.execute("INSERT OR REPLACE INTO flows VALUES (?, ?)", (name, to_text(command.action)))

    def forget_flow(self, name: str) -> None:
        """Delete a flow that is no longer limited."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM flows WHERE name = ?", (name,))

    def flow(self, name: str) -> ShapeFlow | None:
        """Return the plan of a flow, or None if it is not limited."""
        with self._lock:
            row = self._db.execute("SELECT action FROM flows WHERE name = ?", (name,)).fetchone()
        return from_text(Action, row[0]) if row else None

    def flows(self) -> list[ShapeFlow]:
        """Return the plans of all flows that are limited."""
        with self._lock:
            rows = self._db.execute("SELECT action FROM flows ORDER BY rowid").fetchall()
        return [from_text(Action, action) for (action,) in rows]

    # Processes of gangs

    def note_process(
        self, command: Command | None, keep: HeldProcess | None, forget: Key | None, reports: Sequence[Report]
    ) -> None:
        """Store the state of a process, the command that caused it, if any, and the resulting reports."""
        with self._transaction() as db:
            if command is not None:
                _remember(db, command)
                _forget_old_commands(db)
                _advance(db, command)
            if forget is not None:
                db.execute("DELETE FROM processes WHERE name = ?", (str(forget),))
            if keep is not None:
                held = (str(keep.key), keep.processor, keep.goal, to_text(keep.launch))
                db.execute("INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", held)
            _insert_reports(db, reports)

    def processes(self) -> list[HeldProcess]:
        """Return the processes held."""
        with self._lock:
            rows = self._db.execute("SELECT processor, action, wish FROM processes ORDER BY rowid").fetchall()
        return [HeldProcess(name, from_text(Action, action), Goal(goal)) for name, action, goal in rows]

    # Jobs and reports

    def jobs(self) -> list[HeldJob]:
        """Return all jobs held."""
        with self._lock:
            rows = self._db.execute(
                "SELECT slot, phase, action, result_bytes, result_sha256, finished_at, evicted_done FROM jobs"
            )
            return [
                HeldJob(
                    slot=slot,
                    phase=Phase(phase),
                    assignment=from_text(Action, action),
                    result_bytes=result_bytes,
                    result_sha256=sha256,
                    finished_at=finished_at,
                    evicted_done=evicted_done,
                )
                for slot, phase, action, result_bytes, sha256, finished_at, evicted_done in rows.fetchall()
            ]

    def _write_later(self) -> None:
        if self._later:
            with self._transaction(durable=False):
                pass

    def reports(self, limit: int) -> list[tuple[int, Report]]:
        """Return the oldest reports that are not yet delivered, each with its number."""
        with self._lock:
            self._write_later()
            rows = self._db.execute("SELECT number, report FROM reports ORDER BY number LIMIT ?", (limit,)).fetchall()
        return [(number, from_text(Report, text)) for number, text in rows]

    def taken(self, up_to: int) -> None:
        """Delete the reports up to this number: the scheduler has committed them (repetitions are ignored)."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM reports WHERE number <= ?", (up_to,))

    def unreported(self) -> int:
        """Return the number of reports that are not yet delivered."""
        with self._lock:
            (count,) = self._db.execute("SELECT COUNT(*) FROM reports").fetchone()
            return int(count) + len(self._later)

    # Small inputs and results, which are not kept in files

    def input(self, job: str) -> bytes | None:
        """Return the input of a job if it is stored here, else None."""
        return self._blob("SELECT data FROM inputs WHERE job = ?", job)

    def result(self, job: str) -> bytes | None:
        """Return the result of a job if it is stored here, else None."""
        return self._blob("SELECT data FROM results WHERE job = ?", job)

    def _blob(self, query: str, job: str) -> bytes | None:
        with self._reader_lock:
            row = self._reader.execute(query, (job,)).fetchone()
        return None if row is None else row[0]

    # Tokens

    def use(self, tokens: Sequence[tuple[str, float]]) -> list[bool]:
        """Mark tokens as used; return False for each that already was (`transfer.handler.TokenLedger`)."""
        with self._transaction(durable=False) as db:
            return [
                db.execute("INSERT INTO tokens VALUES (?, ?) ON CONFLICT DO NOTHING", token).rowcount == 1
                for token in tokens
            ]

    def forget_tokens(self, before_s: float) -> None:
        """Delete tokens that expired before a time."""
        with self._transaction(durable=False) as db:
            db.execute("DELETE FROM tokens WHERE deadline_s < ?", (before_s,))


@contextmanager
def _full_disk_reported() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") in _FULL:
            raise StorageFull("no space for the journal; free space on the disk of [agent] state_dir") from error
        raise


def _remember(db: sqlite3.Connection, command: Command) -> None:
    """Record that a command was executed."""
    db.execute("INSERT INTO commands VALUES (?)", (command.id,))


def _forget_old_commands(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM commands WHERE rowid <= (SELECT MAX(rowid) FROM commands) - ?", (REMEMBERED,))


def _advance(db: sqlite3.Connection, command: Command) -> None:
    """Make a slot refuse commands older than this one."""
    db.execute("INSERT OR REPLACE INTO fences VALUES (?, ?, ?)", (command.slot, command.epoch, command.sequence))


def _record(
    db: sqlite3.Connection,
    instruction: i.RecordInstruction,
    inputs: Mapping[str, bytes],
    results: Mapping[str, JobResult],
) -> None:
    match instruction:
        case i.KeepEpoch(shard, epoch):
            db.execute("INSERT OR REPLACE INTO shards VALUES (?, ?)", (shard, epoch))
        case i.KeepCommand(command):
            _remember(db, command)
            _advance(db, command)
        case i.KeepJob(job):
            result = (job.result_bytes, job.result_sha256, job.finished_at)
            row = (job.uuid, job.slot, job.phase, to_text(job.assignment), *result, job.evicted_done)
            db.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        case i.KeepEviction(uuid, done):
            db.execute(
                "UPDATE jobs SET phase = ?, evicted_done = ? WHERE uuid = ? AND phase <> ?",
                (Phase.EVICTED, done, uuid, Phase.HELD),
            )
        case i.ForgetJob(uuid):
            for table in ("jobs WHERE uuid", "inputs WHERE job", "results WHERE job"):
                db.execute(f"DELETE FROM {table} = ?", (uuid,))  # noqa: S608
        case i.KeepInput(uuid):
            db.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?)", (uuid, inputs[uuid]))
        case i.KeepResult(job):
            data = results[job.uuid].data
            if data is not None:
                db.execute("DELETE FROM inputs WHERE job = ?", (job.uuid,))
                db.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (job.uuid, data))
        case i.KeepHold(slot, hold):
            values = (slot, to_text(hold.action), hold.ready)
            db.execute("INSERT OR REPLACE INTO holds VALUES (?, ?, ?)", values)
        case i.ForgetHold(slot):
            db.execute("DELETE FROM holds WHERE slot = ?", (slot,))


def _insert_reports(db: sqlite3.Connection, reports: Sequence[Report]) -> None:
    db.executemany("INSERT INTO reports (report) VALUES (?)", [(to_text(item),) for item in reports])


def check_journal(path: Path) -> None:
    """Raise InvalidInput unless this version of the agent can use a journal, which is not changed."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
        _version(db, path)


def _version(db: sqlite3.Connection, path: Path) -> int:
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise InvalidInput(f"{path}: not a journal of an agent: {error}; remove it, which loses all inputs") from None
    if version > len(_MIGRATIONS):
        raise InvalidInput(
            f"{path}: written by a later version of the agent (schema {version}, this one knows {len(_MIGRATIONS)}); "
            "install that version again, or remove the state directory, with which inputs and results are lost"
        )
    return int(version)


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Migrate a journal to the current version."""
    for number, script in enumerate(_MIGRATIONS[version:], version + 1):
        with db:  # each step is atomic
            db.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, script.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
