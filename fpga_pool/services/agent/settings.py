"""Parameters of an agent."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Parameters of one agent and of its host."""

    #: Name of this host in the pool.
    host: str
    #: Journal, inputs and results; must survive a restart.
    state_dir: Path
    #: NIC limits of this host, bits per second.
    egress_bps: float
    ingress_bps: float
    #: Name of this host in Placement; "" = the same as `host`.
    node: str = ""
    availability_zone: str = ""
    #: Name of the egress driver, as reported to the pool; "" = none.
    egress_driver: str = ""
    #: Numbers of the pCPUs that are reserved for gangs.
    gang_processors: tuple[int, ...] = ()
    #: Address at which clients reach the data port, and the address and port on which it listens.
    data_address: str = "127.0.0.1"
    data_bind_address: str = ""
    data_port: int = 0
    heartbeat_s: float = 1.0
    #: How long a result can be fetched.
    retention_s: float = 3600.0
    #: A job hangs when it computes longer than factor x expected + grace.
    hang_factor: float = 4.0
    hang_grace_s: float = 10.0
    #: A faulted slot is offered again after a pause that doubles from the first to the second.
    fault_pause_s: tuple[float, float] = (2.0, 60.0)
    #: How long a graceful stop waits for running jobs.
    drain_timeout_s: float = 30.0
    #: Directory in which libvirt stores the PID files of guests.
    guest_pids: Path = Path("/run/libvirt/qemu")
    #: One-time code with which the pool accepts this host; "" = an operator approves its key.
    enrolment_code: str = field(default="", repr=False)
