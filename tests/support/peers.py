"""Callers of a scheduler in tests: one object for all roles, which signs each call as a role that may make it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.conf.catalogue import private_key
from fpga_pool.rpc.identity import AGENT_METHODS, SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI


def identity(keys: Path, role: Role, name: str) -> Identity:
    """Return the identity of a caller, with its role's key from `fpga-pool-manage keys create`."""
    file = {Role.SCHEDULER: "tokens", Role.API: "api", Role.NOVA: "nova"}[role]
    return Identity(role, name, private_key("key", str(keys / f"{file}.pem")))


def scheduler_gate(key: Ed25519PrivateKey) -> Gate:
    """Return the gate of a scheduler whose callers all have the same key."""
    return Gate(_only(key), SCHEDULER_METHODS)


def agent_gate(key: Ed25519PrivateKey) -> Gate:
    """Return the gate of an agent whose callers all have the same key."""
    return Gate(_only(key), AGENT_METHODS)


def _only(key: Ed25519PrivateKey) -> Callable[[Role, str], Sequence[Ed25519PublicKey]]:
    return lambda _role, _name: [key.public_key()]


class Callers:
    """A `SchedulerAPI` that calls each method as a role that may call it, with one key for all roles.

    Methods of agents are called as the agent of the host that they concern.
    """

    def __init__(self, transport: Any, key: Ed25519PrivateKey, **options: Any) -> None:
        self._transport, self._key, self._options = transport, key, options
        self._apis: dict[tuple[Role, str], SchedulerAPI] = {}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        roles = SCHEDULER_METHODS[method]

        def call(*arguments: Any, **named: Any) -> Any:
            role, name = min(roles), "test"
            if role is Role.AGENT:
                name = arguments[0].host if method == "heartbeat" else arguments[0]
            return getattr(self.by(role, name), method)(*arguments, **named)

        return call

    def by(self, role: Role, name: str) -> SchedulerAPI:
        """Return the API of the scheduler for one caller."""
        identity = Identity(role, name, self._key)
        if (role, name) not in self._apis:
            self._apis[role, name] = SchedulerAPI(self._transport, identity, **self._options)
        return self._apis[role, name]
