"""What an operator does to slots."""

from fpga_pool.model.lifecycle.slot import DrainRequested, ResumeRequested
from fpga_pool.model.objects import Slot
from fpga_pool.model.pool.changes import change_slot, displace_jobs
from fpga_pool.model.transaction import Transaction


def drain_slot(tx: Transaction, name: str, reason: str, now_s: float) -> Slot:
    """Take a slot out of service: the running job ends there, the others are planned elsewhere."""
    change_slot(tx, tx.slot(name), DrainRequested(reason=reason or "drained by the operator"), now_s)
    displace_jobs(tx, name, f"slot {name} is being drained", now_s, running=False)
    return tx.slot(name)


def resume_slot(tx: Transaction, name: str, now_s: float) -> Slot:
    """Give a slot back to the pool."""
    return change_slot(tx, tx.slot(name), ResumeRequested(), now_s)
