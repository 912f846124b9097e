"""Policies as a service asks them: with as much effort as a decision is worth, and compiled beside all else."""

import logging
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec

from oslo_config import cfg

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.policy import BatchPolicy, Preparing, Searching, Sparing, TaskPolicy
from fpga_pool.model.pool.online_family import OnlineRule

LOG = logging.getLogger(__name__)

#: Effort of a task policy that searches: what it plans for later is planned again at the next event.
TASK_EFFORT = 20


def online_rule(conf: cfg.ConfigOpts) -> OnlineRule:
    """Return which policy runs online jobs; InvalidInput names those there are."""
    name = conf.scheduler.online_policy
    names = {*policy_names("online"), name} - set(policy_names("batch"))
    return OnlineRule(load_policy("online", name, conf), names.__contains__, conf.scheduler.default_policy in names)


def sparing(policies: Callable[[str], BatchPolicy], share: float) -> Callable[[str], BatchPolicy]:
    """Return batch policies by name that plan for at most about a share of the time that a batch takes."""

    def policy(name: str) -> BatchPolicy:
        found = policies(name)
        return found.sparing(share) if isinstance(found, Sparing) else found

    return policy


def quick(policy: TaskPolicy) -> TaskPolicy:
    """Return a policy that searches for a moment at most; where its loops are not compiled it does not search."""
    if not isinstance(policy, Searching):
        return policy
    return policy.searching(TASK_EFFORT if find_spec("numba") else 0, None, time.monotonic)


def prepare(policy: object) -> None:
    """Have what a policy needs compiled, or loaded, in a thread of its own; a decision that needs it waits for it."""

    def prepared(preparing: Preparing) -> None:
        began_s = time.monotonic()
        preparing.prepare()
        LOG.info("compiled loops are ready after %.1f s", time.monotonic() - began_s)

    if isinstance(policy, Preparing):
        threading.Thread(target=prepared, args=[policy], name="prepare-policy", daemon=True).start()
