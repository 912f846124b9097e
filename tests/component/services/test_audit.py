from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.services.audit import audit
from fpga_pool.store.store import Store


def test_the_whole_database_is_looked_at(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.migrate()
    store.ensure_shards(["s"], 0.0)
    assert audit(store, idle=True) == []
    tenant = {"project_id": "p", "user_id": "u", "created_at": 1.0}
    batch = Batch(uuid="b", name="", policy="ect", jobs=2, **tenant)
    job = Job(
        uuid="j", batch_uuid="b", index=0, name="", function="aes", requester="h", input_bytes=1, shard="s", **tenant
    )
    with store.transaction("s") as tx:
        tx.add(batch, job)
    assert audit(store) == ["batch b: counts 2 jobs, but 1 are stored"]
    assert audit(store, idle=True) == ["batch b: counts 2 jobs, but 1 are stored", "batch b: 1 jobs have not ended"]
    store.close()
