"""Policies as a service asks them: with as much effort as a decision is worth, and compiled beside all else."""

import threading
import time
from collections.abc import Callable
from importlib.util import find_spec

from oslo_config import cfg

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.policy import BatchPolicy, Preparing, PreparingLater, Searching, Sparing, TaskPolicy
from fpga_pool.model.pool.online_family import OnlineRule

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
        if isinstance(found, PreparingLater):
            found.put_off_preparing()
        return found.sparing(share) if isinstance(found, Sparing) else found

    return policy


def quick(policy: TaskPolicy) -> TaskPolicy:
    """Return a policy that searches for a moment at most; where its loops are not compiled it does not search."""
    if not isinstance(policy, Searching):
        return policy
    return policy.searching(TASK_EFFORT if find_spec("numba") else 0, None, time.monotonic)


class Preparation:
    """Has a policy's loops compiled, once, in a thread of its own; threads share it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, policy: object) -> None:
        """Begin to prepare a policy, unless one is being prepared or was."""
        with self._lock:
            if self._thread is None and isinstance(policy, Preparing):
                self._thread = threading.Thread(target=policy.prepare, name=self._name, daemon=True)
                self._thread.start()

    def begin_if_it_pays(self, policy: object) -> None:
        """Begin to prepare a policy once it has planned something for which that would have mattered."""
        if isinstance(policy, PreparingLater) and policy.unprepared:
            self.begin(policy)

    @property
    def ended(self) -> bool:
        """Whether nothing is being prepared."""
        return self._thread is None or not self._thread.is_alive()
