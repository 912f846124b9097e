"""What the sessions of one data port share, and what bounds them."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.dataplane.bucket import TokenBucket
from fpga_pool.dataplane.handler import TokenLedger, TransferHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times and amounts that bound what a client can hold."""

    #: For the first frame.
    hello_timeout_s: float = 5.0
    #: Not one byte for so long ends a stream.
    stall_timeout_s: float = 30.0
    #: A client whose schedule holds it says KeepAlive; after so long without data that is not enough.
    hold_timeout_s: float = 600.0
    #: How long a connection waits for the result; it can be fetched later.
    result_timeout_s: float = 3600.0
    keepalive_s: float = 10.0
    #: How long a refused client may take to read why.
    linger_s: float = 1.0
    max_connections: int = 256


@dataclass(slots=True, kw_only=True)
class Port:
    """What the sessions of one data port share; used on its event loop only."""

    host: str
    public_key: Ed25519PublicKey
    handler: TransferHandler
    ledger: TokenLedger
    #: Seconds since the epoch, for deadlines of tokens.
    clock: Callable[[], float]
    limits: Limits
    ingress: TokenBucket
    workers: Executor
    counters: Counter[str]
    #: Jobs whose input is arriving now.
    receiving: set[str] = field(default_factory=set)
