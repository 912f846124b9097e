"""The schema of release 0.1.0: every object of the pool, the outbox, and the runs that time models are fitted to.

A migration must not change when the code does, so it uses plain SQL types, not the classes of objects.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

UUID, WORD, NAME, COMMAND, STATE = (sa.String(length) for length in (36, 64, 255, 1000, 32))
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
BYTES = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
FLAG, INTEGER = sa.Boolean(), sa.BigInteger()
NUMBER: Any = sa.Double()
POSITION = INTEGER.with_variant(sa.Integer(), "sqlite")
TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """Create all tables."""
    _create_schedulers()
    _create_enrolments()
    _create_hosts()
    _create_servers()
    _create_slots()
    _create_leases()
    _create_batches()
    _create_jobs()
    _create_runs()
    _create_loads()
    _create_time_models()
    _create_tasks()
    _create_processors()
    _create_gangs()
    _create_processes()
    _create_migrations()
    _create_commands()
    _create_quotas()
    _create_policy_memories()
    _create_designs()


def _columns(kind: Any, *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _create(name: str, *columns: sa.Column[Any], **options: Any) -> None:
    op.create_table(name, *columns, **TABLE_OPTIONS, **options)


def _create_schedulers() -> None:
    _create(
        "shards",
        sa.Column("name", NAME, primary_key=True),
        *_columns(NAME, "owner"),
        *_columns(INTEGER, "epoch", "pool_generation", "generation"),
        *_columns(NUMBER, "renewed_at"),
    )
    for processes in ("schedulers", "api_processes"):
        _create(
            processes,
            sa.Column("name", NAME, primary_key=True),
            *_columns(INTEGER, "generation"),
            *_columns(NUMBER, "heard_at"),
        )


def _create_enrolments() -> None:
    _create(
        "enrolments",
        sa.Column("host", NAME, primary_key=True),
        *_columns(NAME, "data_address", "node"),
        *_columns(WORD, "key", "offered", "code_sha256"),
        *_columns(NUMBER, "code_expires_at", "changed_at"),
    )


def _create_hosts() -> None:
    _create(
        "hosts",
        sa.Column("name", NAME, primary_key=True),
        *_columns(WORD, "agent_id", "egress_driver"),
        *_columns(NAME, "data_address", "shard", "availability_zone", "node"),
        *_columns(LONG_TEXT, "history", "flows", "counters"),
        *_columns(FLAG, "alive", "data_tls"),
        *_columns(INTEGER, "data_port", "boot", "beat", "reported", "changed_in", "generation"),
        *_columns(INTEGER, "refused_streams", "refused_commands", "refused_messages"),
        *_columns(NUMBER, "heard_at", "event_at"),
        *_columns(NUMBER, "egress_bps", "ingress_bps", nullable=True),
    )
    op.create_index("ix_hosts_changed", "hosts", ["shard", "changed_in"])


def _create_servers() -> None:
    _create(
        "servers",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("host", NAME, sa.ForeignKey("hosts.name"), nullable=False),
        *_columns(UUID, "uuid"),
        *_columns(WORD, "project_id"),
        *_columns(FLAG, "held"),
        *_columns(INTEGER, "generation"),
        *_columns(NUMBER, "egress_bps", nullable=True),
    )
    op.create_index("ix_servers_host", "servers", ["host"])
    op.create_index("ix_servers_uuid", "servers", ["uuid"])


def _create_slots() -> None:
    _create(
        "slots",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("uuid", UUID, nullable=False, unique=True),
        sa.Column("host", NAME, sa.ForeignKey("hosts.name"), nullable=False),
        *_columns(UUID, "job"),
        *_columns(WORD, "board", "kind", "function"),
        *_columns(NAME, "card", "region", "links", "shard"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "reason", "history"),
        *_columns(FLAG, "drain_requested"),
        *_columns(INTEGER, "sequence", "lease_epoch", "reconfigurations", "changed_in", "generation"),
        *_columns(NUMBER, "event_at"),
        *_columns(NUMBER, "loaded_at", nullable=True),
    )
    op.create_index("ix_slots_changed", "slots", ["shard", "changed_in"])
    op.create_index("ix_slots_host", "slots", ["host"])


def _create_leases() -> None:
    _create(
        "leases",
        sa.Column("uuid", UUID, primary_key=True),
        sa.Column("slot", NAME, sa.ForeignKey("slots.name"), nullable=False),
        sa.Column("held_slot", NAME, nullable=True, unique=True),
        *_columns(WORD, "project_id", "function"),
        *_columns(NAME, "holder"),
        *_columns(STATE, "kind", "state"),
        *_columns(LONG_TEXT, "broken", "history"),
        *_columns(FLAG, "revocable"),
        *_columns(INTEGER, "epoch", "generation"),
        *_columns(NUMBER, "granted_at"),
        *_columns(NUMBER, "released_at", nullable=True),
    )
    op.create_index("ix_leases_holder", "leases", ["holder"])
    op.create_index("ix_leases_slot", "leases", ["slot"])


def _create_batches() -> None:
    _create(
        "batches",
        sa.Column("uuid", UUID, primary_key=True),
        *_columns(WORD, "project_id", "user_id", "policy"),
        *_columns(NAME, "name"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "waits_for", "history"),
        *_columns(FLAG, "cancel_requested", "held", "waits"),
        *_columns(
            INTEGER, "jobs", "priority", "jobs_completed", "jobs_failed", "jobs_cancelled", "input_bytes", "generation"
        ),
        *_columns(NUMBER, "created_at", "event_at"),
        *_columns(NUMBER, "deadline_at", "dispatched_at", "ended_at", nullable=True),
        *_columns(NUMBER, "planned_makespan_s", "lower_bound_s", nullable=True),
        *_columns(NUMBER, "planned_completion_s", "completion_bound_s", nullable=True),
    )
    op.create_index("ix_batches_last_event", "batches", ["event_at"])
    op.create_index("ix_batches_waits", "batches", ["waits"])
    op.create_index("ix_batches_newest", "batches", ["created_at", "uuid"])
    op.create_index("ix_batches_in_state_of_project", "batches", ["project_id", "state"])
    op.create_index("ix_batches_newest_of_project", "batches", ["project_id", "created_at", "uuid"])


def _create_jobs() -> None:
    _create(
        "jobs",
        sa.Column("uuid", UUID, primary_key=True),
        sa.Column("batch_uuid", UUID, sa.ForeignKey("batches.uuid"), nullable=False),
        *_columns(WORD, "project_id", "user_id", "function", "error_code", "result_sha256"),
        *_columns(NAME, "name", "requester", "shard", "host", "slot", "flow"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "reason", "predecessors", "transfer", "result_transfer", "history"),
        *_columns(FLAG, "cancel_requested"),
        *_columns(INTEGER, "index", "input_bytes", "group", "attempt", "excused", "order", "changed_in", "generation"),
        *_columns(NUMBER, "created_at", "done", "input_due_at", "event_at"),
        *_columns(INTEGER, "moved_bytes", "result_bytes", nullable=True),
        *_columns(NUMBER, "dispatched_at", "start_s", "end_s", "moved_at", "transfer_began_at", nullable=True),
        *_columns(NUMBER, "staged_at", "started_at", "finished_at", "ended_at", "compute_s", nullable=True),
    )
    op.create_index("ix_jobs_last_event", "jobs", ["event_at"])
    op.create_index("ix_jobs_in_state_of_shard", "jobs", ["state", "shard", "project_id", "created_at"])
    op.create_index("ix_jobs_in_state_on_host", "jobs", ["state", "host"])
    op.create_index("ix_jobs_in_state_on_slot", "jobs", ["state", "slot", "order"])
    op.create_index("ix_jobs_newest", "jobs", ["created_at", "uuid"])
    op.create_index("ix_jobs_newest_in_state", "jobs", ["state", "created_at", "uuid"])
    op.create_index("ix_jobs_newest_in_state_of_project", "jobs", ["project_id", "state", "created_at", "uuid"])
    op.create_index("ix_jobs_newest_on_host", "jobs", ["host", "created_at", "uuid"])
    op.create_index("ix_jobs_newest_of_project", "jobs", ["project_id", "created_at", "uuid"])
    op.create_index("ix_jobs_of_batch", "jobs", ["batch_uuid", "index"])


def _create_runs() -> None:
    _create(
        "runs",
        sa.Column("job", UUID, sa.ForeignKey("jobs.uuid"), primary_key=True),
        *_columns(WORD, "function", "board"),
        *_columns(INTEGER, "attempt", "input_bytes"),
        *_columns(NUMBER, "compute_s", "finished_at"),
    )
    op.create_index("ix_runs_finished", "runs", ["finished_at"])
    op.create_index("ix_runs_newest", "runs", ["function", "board", "finished_at"])


def _create_loads() -> None:
    _create(
        "loads",
        sa.Column("uuid", UUID, primary_key=True),
        *_columns(NAME, "slot"),
        *_columns(WORD, "project_id", "function"),
        *_columns(NUMBER, "began_at"),
    )
    op.create_index("ix_loads_began", "loads", ["began_at"])


def _create_time_models() -> None:
    _create(
        "time_models",
        sa.Column("function", WORD, primary_key=True),
        sa.Column("board", WORD, primary_key=True),
        *_columns(INTEGER, "samples"),
        *_columns(NUMBER, "a_s", "b_s_per_byte", "fitted_at"),
    )


def _create_tasks() -> None:
    _create(
        "tasks",
        sa.Column("uuid", UUID, sa.ForeignKey("batches.uuid"), primary_key=True),
        *_columns(WORD, "project_id", "user_id", "function"),
        *_columns(NAME, "name", "shard"),
        *_columns(STATE, "topology", "state"),
        *_columns(LONG_TEXT, "shapes", "reason", "history"),
        *_columns(FLAG, "cancel_requested"),
        *_columns(INTEGER, "slots", "shares", "input_bytes", "attempt", "failures", "generation"),
        *_columns(NUMBER, "created_at", "event_at"),
        *_columns(NUMBER, "ends_at", "started_at", "ended_at", nullable=True),
    )
    op.create_index("ix_tasks_in_state", "tasks", ["state", "shard"])
    op.create_index("ix_tasks_newest_of_project", "tasks", ["project_id", "created_at", "uuid"])


def _create_processors() -> None:
    _create(
        "processors",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("host", NAME, sa.ForeignKey("hosts.name"), nullable=False),
        *_columns(NAME, "shard"),
        *_columns(FLAG, "offered"),
        *_columns(INTEGER, "number", "sequence", "generation"),
    )
    op.create_index("ix_processors_host", "processors", ["host"])


def _create_gangs() -> None:
    _create(
        "gangs",
        sa.Column("uuid", UUID, primary_key=True),
        *_columns(WORD, "project_id", "user_id"),
        *_columns(NAME, "name", "image", "shard"),
        *_columns(COMMAND, "command"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "reason", "history"),
        *_columns(FLAG, "cancel_requested"),
        *_columns(INTEGER, "processes", "attempt", "failures", "migrations", "kills", "swaps", "generation"),
        *_columns(NUMBER, "runtime_s", "cpu_usage", "work_s", "created_at", "gave_way_s"),
        *_columns(NUMBER, "foreground_s", "background_s", "cpu_s", "event_at"),
        *_columns(
            NUMBER,
            "ends_at",
            "expected_s",
            "ran_s",
            "trial_ends_at",
            "started_at",
            "ended_at",
            "tier_since",
            nullable=True,
        ),
    )
    op.create_index("ix_gangs_done_of_user", "gangs", ["user_id", "ended_at"])
    op.create_index("ix_gangs_in_state", "gangs", ["state", "shard"])
    op.create_index("ix_gangs_newest_of_project", "gangs", ["project_id", "created_at", "uuid"])


def _create_processes() -> None:
    _create(
        "processes",
        sa.Column("uuid", UUID, primary_key=True),
        sa.Column("gang_uuid", UUID, sa.ForeignKey("gangs.uuid"), nullable=False),
        sa.Column("processor", NAME, sa.ForeignKey("processors.name"), nullable=False),
        sa.Column("held_place", NAME, nullable=True, unique=True),
        *_columns(NAME, "host", "shard", "saved"),
        *_columns(STATE, "tier", "state"),
        *_columns(LONG_TEXT, "reason", "history"),
        *_columns(FLAG, "exchanged"),
        *_columns(INTEGER, "index", "attempt", "generation"),
        *_columns(NUMBER, "done_s", "rate", "progress_at", "cpu_s"),
    )
    op.create_index("ix_processes_in_state", "processes", ["state", "shard"])
    op.create_index("ix_processes_in_state_on_host", "processes", ["state", "host"])
    op.create_index("ix_processes_of_gang", "processes", ["gang_uuid", "attempt", "index"])
    op.create_index("ix_processes_processor", "processes", ["processor"])


def _create_migrations() -> None:
    _create(
        "migrations",
        sa.Column("uuid", UUID, primary_key=True),
        sa.Column("gang_uuid", UUID, sa.ForeignKey("gangs.uuid"), nullable=False),
        *_columns(NAME, "shard"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "reason", "history"),
        *_columns(INTEGER, "attempt", "generation"),
        *_columns(NUMBER, "began_at"),
        *_columns(NUMBER, "ended_at", nullable=True),
    )
    op.create_index("ix_migrations_gang_uuid", "migrations", ["gang_uuid"])


def _create_commands() -> None:
    _create(
        "commands",
        sa.Column("position", POSITION, primary_key=True, autoincrement=True),
        sa.Column("id", WORD, nullable=False, unique=True),
        sa.Column("shard", NAME, sa.ForeignKey("shards.name"), nullable=False),
        *_columns(NAME, "host", "slot"),
        *_columns(WORD, "request_id", "global_request_id"),
        *_columns(LONG_TEXT, "action"),
        *_columns(INTEGER, "epoch", "sequence"),
        # Positions are never reused.
        sqlite_autoincrement=True,
    )
    op.create_index("ix_commands_host", "commands", ["host"])
    op.create_index("ix_commands_in_order", "commands", ["shard", "position"])


def _create_quotas() -> None:
    _create(
        "quotas",
        sa.Column("project_id", WORD, primary_key=True),
        *_columns(INTEGER, "jobs", "input_bytes", "task_slots", "gang_processors", nullable=True),
        *_columns(INTEGER, "tickets", "requests_per_s", "design_bytes", nullable=True),
        *_columns(INTEGER, "admissions"),
        *_columns(LONG_TEXT, "history", nullable=True),
    )
    _create(
        "usage_days",
        sa.Column("project_id", WORD, primary_key=True),
        sa.Column("function", WORD, primary_key=True),
        sa.Column("day", INTEGER, primary_key=True, autoincrement=False),
        *_columns(INTEGER, "jobs", "input_bytes", "result_bytes", "loads"),
        *_columns(NUMBER, "slot_s", "cpu_s", "instance_slot_s"),
    )


def _create_policy_memories() -> None:
    _create(
        "policy_memories",
        sa.Column("uuid", UUID, primary_key=True),
        *_columns(WORD, "family"),
        *_columns(NAME, "shard", "policy"),
        *_columns(LONG_TEXT, "state", "watched"),
        *_columns(INTEGER, "generation"),
    )


def _create_designs() -> None:
    _create(
        "designs",
        sa.Column("uuid", UUID, primary_key=True),
        *_columns(WORD, "project_id", "user_id", "name", "function", "sha256", "signer"),
        *_columns(STATE, "state"),
        *_columns(LONG_TEXT, "manifest", "reason", "history"),
        *_columns(FLAG, "public"),
        *_columns(INTEGER, "size_bytes", "generation"),
        *_columns(NUMBER, "created_at", "event_at"),
    )
    op.create_index("ix_designs_last_event", "designs", ["event_at"])
    op.create_index("ix_designs_name_in_project", "designs", ["project_id", "name"], unique=True)
    op.create_index("ix_designs_function", "designs", ["function"], unique=True)
    _create(
        "design_files",
        sa.Column("design", UUID, sa.ForeignKey("designs.uuid"), primary_key=True),
        sa.Column("begin", INTEGER, primary_key=True, autoincrement=False),
        *_columns(BYTES, "piece"),
    )
