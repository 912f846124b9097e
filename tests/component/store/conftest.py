import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pytest

from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.messages.agents import Command, ReleaseJob
from fpga_pool.model.objects.bitstreams import Design, DesignManifest
from fpga_pool.model.objects.gangs import Gang, Migration, Process, Processor, process_uuid
from fpga_pool.model.objects.pool import Batch, Host, Job, Lease, LeaseKind, Run, Shard, Slot
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.transaction import Transaction
from fpga_pool.store import Store

SHARD, OWNER = "shard-0", "scheduler-0"


class Make:
    """A factory of objects with different ids, whose other fields differ only as specified by a test."""

    def batch(self, **fields):
        known = {"project_id": "project-a", "user_id": "user-a", "name": "", "policy": "ect", "created_at": 1.0}
        return Batch(**{"uuid": str(uuid.uuid4()), "jobs": 1} | known | fields)

    def job(self, batch, **fields):
        known = {"batch_uuid": batch.uuid, "project_id": batch.project_id, "user_id": batch.user_id, "index": 0}
        known |= {
            "name": "",
            "function": "aes",
            "requester": "client",
            "input_bytes": 2**40,
            "created_at": 1.0,
            "shard": SHARD,
        }
        return Job(**{"uuid": str(uuid.uuid4())} | known | fields)

    def jobs(self, batch, count):
        return [self.job(batch, index=index) for index in range(count)]

    def host(self, name="host-0", **fields):
        known = {"egress_bps": 1e10, "ingress_bps": 1e10, "data_address": "127.0.0.1", "data_port": 7000}
        return Host(**{"name": name, "heard_at": 1.0} | known | fields)

    def slot(self, host="host-0", region="0", **fields):
        known = {"name": f"{host}/card-0/{region}", "host": host, "card": "card-0", "region": region}
        return Slot(**known | {"board": "vc709", "kind": "small", "shard": SHARD} | fields)

    def lease(self, slot, **fields):
        known = {"kind": LeaseKind.POOL, "holder": SHARD, "project_id": "", "epoch": 1, "revocable": True}
        return Lease(**{"uuid": str(uuid.uuid4()), "slot": slot.name, "granted_at": 1.0} | known | fields)

    def command(self, sequence=1, slot="host-0/card-0/0", **fields):
        known = {"id": str(uuid.uuid4()), "shard": SHARD, "epoch": 1, "host": slot.split("/")[0], "slot": slot}
        return Command(**known | {"sequence": sequence, "action": ReleaseJob(job="job-1")} | fields)

    def run(self, job, **fields):
        known = {"job": job.uuid, "attempt": 1, "function": job.function, "board": "vc709", "finished_at": 2.0}
        return Run(**known | {"input_bytes": job.input_bytes, "compute_s": 0.5} | fields)

    def processor(self, host="host-0", number=0, **fields):
        known = {"name": f"{host}/pcpu/{number}", "host": host, "number": number, "shard": SHARD}
        return Processor(**known | fields)

    def gang(self, **fields):
        known = {"uuid": str(uuid.uuid4()), "project_id": "project-a", "user_id": "user-a", "name": ""}
        known |= {"processes": 1, "runtime_s": 60.0, "cpu_usage": 0.5, "work_s": 50.0, "created_at": 1.0}
        return Gang(**known | {"shard": SHARD} | fields)

    def design(self, **fields):
        manifest = DesignManifest(
            name="mine", board="vc709", kind="small", io_bps=1e9, b_s_per_byte=1e-9, simulates="aes"
        )
        known = {"uuid": str(uuid.uuid4()), "project_id": "project-a", "user_id": "user-a", "function": "mine.1"}
        return Design(
            **known | {"manifest": manifest, "size_bytes": 1, "sha256": "5b" * 32, "created_at": 1.0} | fields
        )

    def task(self, batch, **fields):
        known = {"uuid": batch.uuid, "project_id": "project-a", "user_id": "user-a", "name": "", "function": "f"}
        known |= {
            "slots": 2,
            "shares": 2,
            "topology": Topology.LINE,
            "input_bytes": 10,
            "created_at": 1.0,
            "shard": SHARD,
        }
        return Task(**known | fields)

    def process(self, gang, processor, index=0, **fields):
        attempt = fields.get("attempt", 1)
        known = {"uuid": process_uuid(gang.uuid, attempt, index), "gang_uuid": gang.uuid, "index": index}
        known |= {"attempt": attempt, "processor": processor.name, "host": processor.host, "shard": SHARD}
        return Process(**known | {"tier": Tier.FOREGROUND} | fields)

    def migration(self, gang, **fields):
        known = {"uuid": str(uuid.uuid4()), "gang_uuid": gang.uuid, "attempt": 2, "began_at": 3.0, "shard": SHARD}
        return Migration(**known | fields)


@pytest.fixture
def make():
    return Make()


@pytest.fixture(params=["sqlite"])
def connection(request, tmp_path, new_database):
    """Return the URL of a migrated database, for each kind of database that the store supports."""
    return {"sqlite": lambda: new_database(tmp_path / "pool.db")}[request.param]()


@pytest.fixture
def store(connection):
    store = Store(connection)
    yield store
    store.close()


@pytest.fixture
def shard(store) -> Shard:
    store.ensure_shards([SHARD], now_s=100.0)
    return store.acquire_shard(SHARD, OWNER, now_s=100.0)


@dataclass
class Backend:
    """The backend on which the contract of Transaction is tested."""

    begin: Callable[[], AbstractContextManager[Transaction]]
    outbox: Callable[[], list[Command]]


@pytest.fixture
def backend(store, shard):
    return Backend(
        lambda: store.transaction(shard.name, shard.owner, shard.epoch),
        lambda: store.undelivered(shard.name, limit=100),
    )


@pytest.fixture
def begin(backend):
    return backend.begin


@pytest.fixture
def outbox(backend):
    return backend.outbox


@pytest.fixture
def saved(begin):
    """Return a function that stores objects and returns them."""

    def save(*things):
        with begin() as tx:
            tx.add(*things)
        return things[0] if len(things) == 1 else things

    return save


@pytest.fixture
def counted(make, saved):
    """Store a batch to be counted in; `bump` increases its count by one."""
    return saved(make.batch(jobs=10_000))


@pytest.fixture
def bump():
    return lambda batch: replace(batch, jobs_completed=batch.jobs_completed + 1)
