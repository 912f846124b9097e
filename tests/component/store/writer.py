"""A scheduler for tests, in a separate process: `writer.py URL EPOCH count|forever [BATCH]`.

`count` adds 50 to a batch's completed jobs, one by one, and prints how many were added. `forever` stores batches of
three jobs with their commands until it is killed, and prints the uuid of each batch once it is committed.
"""

import sys
import uuid
from dataclasses import replace

from fpga_pool.model.messages.agents import Command, ReleaseJob
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.store import Store


def count(store, epoch, batch):
    arrived = 0
    for _ in range(50):
        with store.transaction("shard-0", "scheduler-0", epoch) as tx:
            found = tx.batch(batch)
            tx.save(replace(found, jobs_completed=found.jobs_completed + 1))
        arrived += 1
    print(arrived)


def forever(store, epoch):
    tenant = {"project_id": "p", "user_id": "u", "created_at": 1.0}
    while True:
        batch = Batch(uuid=str(uuid.uuid4()), name="", policy="ect", jobs=3, **tenant)
        with store.transaction("shard-0", "scheduler-0", epoch) as tx:
            tx.add(batch)
            for index in range(3):
                known = {"function": "aes", "requester": "r", "input_bytes": 1, "name": ""}
                job = Job(uuid=str(uuid.uuid4()), batch_uuid=batch.uuid, index=index, **known, **tenant)
                tx.add(job)
                tx.send(command(job, epoch))
        print(batch.uuid, flush=True)


def command(job, epoch):
    action = ReleaseJob(job=job.uuid)
    return Command(id=job.uuid, shard="shard-0", epoch=epoch, host="h", slot="s", sequence=1, action=action)


url, epoch, what, *arguments = sys.argv[1:]
{"count": count, "forever": forever}[what](Store(url), int(epoch), *arguments)
