"""[agent]: options of the agent of one compute node, and the limits of its network card.

A limit is the configured one, or else the speed of the network card that the kernel reports.
"""

import socket
import ssl
from pathlib import Path

from oslo_config import cfg, types

from fpga_pool.conf.catalogue import KEYS, server_tls, trusted_authorities
from fpga_pool.core.lattice.topology import Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.links import NOT_LINKED, TOPOLOGIES

#: Directory of the kernel's network devices, with the speed of each (Mbit/s; -1 or an error while it is unknown).
DEVICES = Path("/sys/class/net")


def nic_limits_bps(conf: cfg.ConfigOpts, devices: Path = DEVICES) -> tuple[float, float]:
    """Return egress and ingress limit of this host in bits per second; InvalidInput names a missing or wrong option."""
    return _limit_bps(conf, "egress_mbps", devices), _limit_bps(conf, "ingress_mbps", devices)


def _limit_bps(conf: cfg.ConfigOpts, option: str, devices: Path) -> float:
    given_mbps: float | None = conf.agent[option]
    if given_mbps is not None:
        return given_mbps * 1e6
    device: str | None = conf.agent.nic
    if device is None:
        raise InvalidInput(
            f"[agent] {option}: set it, or name the network device in [agent] nic so that its speed is read"
        )
    if not (devices / device).exists():
        known = ", ".join(sorted(path.name for path in devices.iterdir()))
        raise InvalidInput(f"[agent] nic: no network device {device!r} on this host; available: {known}")
    speed_mbps = _speed_mbps(devices / device)
    if speed_mbps <= 0:
        raise InvalidInput(f"[agent] {option}: set it, the kernel does not know the speed of {device}")
    return speed_mbps * 1e6


def _speed_mbps(device: Path) -> int:
    try:
        return int((device / "speed").read_text())
    except (OSError, ValueError):  # no such file, a link that is down, or a virtual device
        return 0


#: Value of the option if there is no egress driver.
NO_EGRESS = "none"
#: Value of the option if there is no guest driver.
NO_GUESTS = "none"

GROUP = cfg.OptGroup("agent", title="Compute-node agent")
OPTS = [
    cfg.HostAddressOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<host name>",
        help="Name of this host in the pool, the same as in nova-compute. Batches refer to requesters by this name.",
    ),
    cfg.StrOpt(
        "node",
        default="",
        help="Name of this compute node in Placement, Nova's hypervisor_hostname (`openstack hypervisor list`), if it "
        "differs from host: with libvirt it is often a fully qualified domain name.",
    ),
    cfg.StrOpt(
        "availability_zone",
        default="",
        help="Availability zone of this host. With [scheduler] shard_by = availability_zone it is the shard that the "
        "host joins at its first heartbeat.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/fpga_pool/agent",
        help="Directory of the journal, inputs and results; must survive a restart and must not be shared between "
        "agents. It needs space for the inputs and results of all jobs of this host.",
    ),
    cfg.StrOpt(
        "nic",
        help="Network device that carries inputs and results. If egress_mbps or ingress_mbps is not set, the limit is "
        "the speed of this device as reported by the kernel.",
    ),
    cfg.FloatOpt("egress_mbps", min=0.001, help="Egress limit of this host, Mbit/s."),
    cfg.FloatOpt("ingress_mbps", min=0.001, help="Ingress limit of this host, Mbit/s."),
    cfg.HostAddressOpt(
        "data_address",
        help="Address at which clients reach the data port of this host. Required. The pool keeps to it: after a "
        "change an operator approves the key of the host again (fpga-pool-manage host approve).",
    ),
    cfg.IPOpt("data_bind_address", help="Address on which the data port listens; defaults to data_address."),
    cfg.PortOpt(
        "data_port", default=9512, min=0, help="TCP port of the data port; 0 selects a free port at every start."
    ),
    cfg.StrOpt(
        "slot_driver",
        default="simulated",
        help="Driver of the cards of this host: an entry point of group fpga_pool.slot_drivers.",
    ),
    cfg.MultiStrOpt(
        "enclosure",
        default=[],
        help="Linked cards of this host: NAME TOPOLOGY SERIAL,SERIAL,... in the order of the "
        "cables. TOPOLOGY is line (each to the next), ring (the last to the first as well) or full (each to each). "
        "Repeat the option for each enclosure; a card in no enclosure has no links.",
    ),
    cfg.StrOpt(
        "slot_links",
        default=Topology.FULL.name.lower(),
        choices=[*TOPOLOGIES, NOT_LINKED],
        help="Links between the slots of each card, as provided by its static region: full (each to each), line or "
        "ring in the order of its regions, or none.",
    ),
    cfg.IntOpt(
        "cpu_workers",
        default=0,
        min=0,
        max=1024,
        help="Maximum number of concurrent jobs of batches with an online policy on the CPU of this host, one vCPU "
        "each; with 0 jobs wait for slots. Use only vCPUs that Nova does not give to instances ([compute] "
        "cpu_dedicated_set, cpu_shared_set).",
    ),
    cfg.ListOpt(
        "gang_processors",
        item_type=types.Integer(min=0),
        default=[],
        help="Numbers of the pCPUs of this host that are dedicated to gangs: each runs one process in the foreground, "
        "and one in the background in the idle cycles of the foreground. Nothing else should run there. None = "
        "this host runs no gangs.",
    ),
    cfg.StrOpt(
        "gang_runner",
        default="simulated",
        help="Driver that launches the processes of gangs on this host: an entry point of group fpga_pool.runners.",
    ),
    cfg.StrOpt(
        "egress_driver",
        default=NO_EGRESS,
        choices=[
            (NO_EGRESS, "no enforcement: senders pace themselves, as the client library does"),
            (
                "tc",
                "the kernel's traffic control, see [driver_tc]; it also limits third-party senders and servers of Nova",
            ),
        ],
        help="Driver that limits the flows leaving this host to their planned rates.",
    ),
    cfg.StrOpt(
        "guest_driver",
        default=NO_GUESTS,
        help="Driver that connects the virtual machines of this host with their slots: an entry point of group "
        "fpga_pool.guest_drivers (libvirt, simulated), or none if this host is not a compute node of Nova.",
    ),
    cfg.StrOpt(
        "libvirt_uri", default="qemu:///system", help="URI at which the libvirt guest driver connects to libvirt."
    ),
    cfg.StrOpt(
        "simulated_guests_dir",
        default="/run/fpga_pool/guests",
        help="Directory of the domain descriptions of the simulated guest driver, one file INSTANCE.xml per virtual "
        "machine.",
    ),
    cfg.StrOpt(
        "hook_socket",
        default="/run/fpga_pool/agent.sock",
        help="Socket on which libvirt's qemu hook asks whether a virtual machine may start. Only root and the user of "
        "the agent may use it.",
    ),
    cfg.FloatOpt(
        "start_timeout_s",
        default=60.0,
        min=1.0,
        help="Maximum time in seconds that a virtual machine waits for its slots before its start fails; must be less "
        "than timeout_s of the hook.",
    ),
    cfg.IntOpt(
        "guest_max_input_mib",
        default=256,
        min=1,
        help="Maximum input size of a request of a virtual machine in MiB; each slot needs this much space in "
        "state_dir.",
    ),
    cfg.FloatOpt(
        "guest_run_timeout_s",
        default=600.0,
        min=1.0,
        help="Maximum compute time in seconds of a request of a virtual machine; longer ones are stopped.",
    ),
    cfg.StrOpt(
        "bitstream_library",
        default="/var/lib/fpga_pool/bitstreams",
        help="Directory of the partial bitstreams, BOARD/KIND/FUNCTION.bit.",
    ),
    cfg.StrOpt(
        "bitstream_public_key",
        default=str(KEYS / "bitstreams.pub"),
        help="Public key (PEM, Ed25519) that verifies the signatures of bitstreams.",
    ),
    cfg.StrOpt(
        "token_public_key",
        default=str(KEYS / "tokens.pub"),
        help="Public keys (PEM, Ed25519) of the schedulers' [scheduler] token_key: the old one and the new one while "
        "it is replaced.",
    ),
    cfg.StrOpt(
        "enrolment_code",
        default="",
        secret=True,
        help="One-time code of fpga-pool-manage host enroll, with which the pool accepts this host at once. Without it "
        "an operator must approve the key of the agent (fpga-pool-manage host approve). It has no effect once it was "
        "used.",
    ),
    cfg.FloatOpt(
        "heartbeat_s",
        default=1.0,
        min=0.05,
        help="Interval of heartbeats in seconds. Those that say nothing new are left out, but for three within "
        "[scheduler] host_timeout_s and one in 20 s.",
    ),
    cfg.FloatOpt(
        "retention_s",
        default=3600.0,
        min=0.0,
        help="Time in seconds for which a result can be fetched after its client has gone.",
    ),
    cfg.StrOpt(
        "data_tls_cert",
        help="Certificate (PEM, with its chain) of the data port; it must name the address that clients connect to. "
        "Set it together with data_tls_key to encrypt inputs and results in transit.",
    ),
    cfg.StrOpt("data_tls_key", help="Private key (PEM, mode 0600 or 0640) of data_tls_cert."),
    cfg.StrOpt(
        "data_tls_ca",
        help="Certificates (PEM) of the authorities that have signed those of other hosts' data ports, from which this "
        "host copies the results that subtasks of pipelines begin with. With it nothing is copied without TLS; unset, "
        "the authorities of the system are trusted.",
    ),
    cfg.FloatOpt(
        "hang_factor",
        default=4.0,
        min=1.0,
        help="A job is considered hung, and is stopped, when it computes longer than hang_factor times its expected "
        "time plus hang_grace_s.",
    ),
    cfg.FloatOpt("hang_grace_s", default=10.0, min=0.0, help="See hang_factor; in seconds."),
    cfg.FloatOpt(
        "drain_timeout_s",
        default=30.0,
        min=0.0,
        help="Time in seconds that a graceful stop waits for running jobs; unfinished jobs are started again later.",
    ),
    cfg.FloatOpt(
        "fault_pause_s",
        default=2.0,
        min=0.01,
        help="Time in seconds before a faulted slot is offered again; doubles with every consecutive fault, up to 60.",
    ),
]


def data_tls(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """Return the TLS context of the data port; None if TLS is not configured.  InvalidInput names an unusable file."""
    return server_tls(conf, "agent", "data_tls_cert", "data_tls_key")


def peer_tls(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """Return the TLS context for the data ports of other hosts; None if they need not use TLS."""
    path = conf.agent.data_tls_ca
    return None if path is None else trusted_authorities("[agent] data_tls_ca", path)
