"""The public keys of all callers of a scheduler: those of hosts from the database, those of roles from files."""

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import FpgaPoolError, NotFound, StorageFull, TooManyRequests
from fpga_pool.model.fields import HostName
from fpga_pool.model.objects.hosts import Enrolment, approved, invited, offered
from fpga_pool.rpc.identity import Role, key_of_text
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: How long keys from the database are cached; a removed host is refused within this time.
KEYS_AGE_S = 2.0
#: Shortest interval at which the database is read for the key of an unknown host.
MISS_AGE_S = 0.2
#: Largest number of hosts that wait for approval, so that unknown senders cannot fill the database.
MOST_PENDING = 1000
#: Limits of new offers that wait for approval, at once and then per second: of all hosts, and of each known host.
OFFERS, OFFERS_OF_HOST = (200, 2.0), (2, 1 / 600)


class KeyRing:
    """Public keys by role and name; threads may share it."""

    def __init__(self, store: Store, of_roles: Mapping[Role, Sequence[Ed25519PublicKey]], clock: Clock) -> None:
        self._store = store
        self._of_roles = of_roles
        self._clock = clock
        self._lock = threading.Lock()
        self._of_hosts: dict[str, Ed25519PublicKey] = {}
        #: Keys by their texts, because parsing a key takes longer than reading it.
        self._parsed: dict[str, Ed25519PublicKey] = {}
        self._read_s = -KEYS_AGE_S
        self._offers = Allowance(*OFFERS)
        self._offers_of: dict[str, Allowance] = {}

    def __call__(self, role: Role, name: str) -> Sequence[Ed25519PublicKey]:
        """Return the keys of a sender; empty if it is unknown."""
        if role is not Role.AGENT:
            return self._of_roles.get(role, ())
        with self._lock:
            age_s = time.monotonic() - self._read_s
            if age_s >= KEYS_AGE_S or (name not in self._of_hosts and age_s >= MISS_AGE_S):
                self._read()
            key = self._of_hosts.get(name)
        return () if key is None else (key,)

    def enroll(self, host: str, key: str, proof: str) -> bool:
        """Store the key that an agent offers; return whether it is now the accepted key of its host."""
        key_of_text(key)
        read(HostName, host, "host")

        def change(known: Enrolment | None, pending: int) -> Enrolment:
            if known is None and pending >= MOST_PENDING:
                raise StorageFull(f"{pending} hosts wait for approval; approve or remove some (fpga-pool-manage host)")
            then = offered(known or Enrolment(host=host), key, proof, self._clock())
            if then.offered and then != known:
                self._take_offer(host, is_first=known is None)
            return then

        before, after = self._store.change_enrolment(host, change)
        accepted = after is not None and after.key == key
        if before != after:
            LOG.info("host %s %s key %s", host, "is enrolled with" if accepted else "waits for approval of", key)
        if accepted:  # so that its next call reads the keys again and is not refused
            with self._lock:
                self._read_s = -KEYS_AGE_S
        return accepted

    def _take_offer(self, host: str, *, is_first: bool) -> None:
        """Count an offer that waits for approval; raise TooManyRequests if there are too many."""
        with self._lock:
            # Only for a host in the database, so that unknown senders cannot make this table grow.
            of_host = [] if is_first else [self._offers_of.setdefault(host, Allowance(*OFFERS_OF_HOST))]
            if not all(allowance.take(time.monotonic()) for allowance in [*of_host, self._offers]):
                raise TooManyRequests(f"host {host}: too many keys are offered; one of them can wait for approval")

    def _read(self) -> None:
        self._read_s = time.monotonic()
        try:
            texts = self._store.host_keys()
        except FpgaPoolError as error:  # the cached keys stay valid meanwhile
            LOG.warning("the keys of hosts cannot be read: %s", error)
            return
        self._parsed = {text: self._parsed.get(text) or key_of_text(text) for text in texts.values()}
        self._of_hosts = {host: self._parsed[text] for host, text in texts.items()}


def invite(store: Store, host: str, now_s: float) -> str:
    """Return a new one-time code with which the pool accepts the key of a host."""
    read(HostName, host, "host")
    code = secrets.token_urlsafe(18)
    store.change_enrolment(host, lambda known, _: invited(known or Enrolment(host=host), code, now_s))
    return code


def approve(store: Store, host: str, key: str, now_s: float) -> None:
    """Accept a key for a host, in place of any other key, and the data address that its agent reports next."""
    key_of_text(key)
    store.change_enrolment(host, lambda known, _: approved(known or Enrolment(host=host), key, now_s))


def revoke(store: Store, host: str) -> None:
    """Delete the key of a host, so that the host is lost (`OwnedShard`); raise NotFound if none was ever offered."""

    def forget(known: Enrolment | None, _: int) -> None:
        if known is None:
            raise NotFound(f"host {host} is not enrolled, and has offered no key")

    store.change_enrolment(host, forget)
