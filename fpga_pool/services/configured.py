"""Create settings and drivers of the services from the configuration, for their processes and the embedded pool."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from oslo_config import cfg
from stevedore.named import NamedExtensionManager

from fpga_pool.conf.agent import NO_EGRESS, NO_GUESTS
from fpga_pool.conf.catalogue import public_key, public_keys
from fpga_pool.conf.drivers import NO_TIERS, parse_pcpus, shaped_devices
from fpga_pool.conf.scheduler import pool_settings, quota_limits
from fpga_pool.drivers.egress.base import EgressDriver
from fpga_pool.drivers.guests.domain import GuestDriver
from fpga_pool.drivers.runners.domain import Runner
from fpga_pool.drivers.slots.base import SlotDriver
from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.values import field_names
from fpga_pool.rpc.identity import AGENT_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.services.agent.instances.channel import ChannelLimits
from fpga_pool.services.agent.instances.service import Instances
from fpga_pool.services.agent.instances.supervisor import Parts, Taps
from fpga_pool.services.agent.service import AgentService
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.agent.tiers.layout import check_nova_conf
from fpga_pool.services.agent.tiers.service import Tiers
from fpga_pool.services.clock import Clock
from fpga_pool.services.scheduler_settings import SchedulerSettings

LOG = logging.getLogger(__name__)

SLOT_DRIVERS = "fpga_pool.slot_drivers"
GUEST_DRIVERS = "fpga_pool.guest_drivers"
TIER_DRIVERS = "fpga_pool.tier_drivers"
RUNNERS = "fpga_pool.runners"

#: Settings of an agent that are options of the same name in [agent].
_HABITS = ("heartbeat_s", "retention_s", "hang_factor", "hang_grace_s", "drain_timeout_s", "enrolment_code")
#: The longest pause of a slot that fails repeatedly.
LONGEST_FAULT_PAUSE_S = 60.0


def scheduler_settings(conf: cfg.ConfigOpts, name: str) -> SchedulerSettings:
    """Return the settings of the scheduler with this name."""
    group = conf.scheduler
    signers = public_keys("[scheduler] design_signers", group.design_signers) if group.design_signers else ()
    same = {name: group[name] for name in field_names(SchedulerSettings) if name in group}
    return SchedulerSettings(
        **same | {"name": name, "design_signers": signers},
        retention_s=group.retention_days * 86_400,
        quotas=quota_limits(conf),
        pool=pool_settings(conf),
    )


def agent_settings(conf: cfg.ConfigOpts, **host: Any) -> AgentSettings:
    """Return the settings of an agent from the configuration; `host` has the fields that differ between agents."""
    group = conf.agent
    return AgentSettings(
        **{name: group[name] for name in _HABITS},
        fault_pause_s=(group.fault_pause_s, max(group.fault_pause_s, LONGEST_FAULT_PAUSE_S)),
        guest_pids=Path(conf.tiers.libvirt_pid_dir),
        **host,
    )


def agent_identity(settings: AgentSettings) -> Identity:
    """Return the identity of an agent; its key is created in the state directory at the first start."""
    identity = Identity(Role.AGENT, settings.host, load_or_create_signing_key(settings.state_dir / "agent.pem"))
    LOG.info("host %s signs with key %s", settings.host, identity.public_text)
    return identity


def agent_gate(token_keys: Sequence[Ed25519PublicKey]) -> Gate:
    """Return the gate of an agent, which admits only calls that are signed by schedulers."""
    return Gate(lambda role, _: token_keys if role is Role.SCHEDULER else (), AGENT_METHODS)


def slot_driver(conf: cfg.ConfigOpts, catalogue: Catalogue) -> SlotDriver:
    """Return the driver of this host's cards; raise InvalidInput, with the available drivers, if it is unknown."""
    kind = _driver(SLOT_DRIVERS, "[agent] slot_driver", conf.agent.slot_driver)
    trusted = public_key("[agent] bitstream_public_key", conf.agent.bitstream_public_key)
    made: SlotDriver = kind.from_conf(conf, catalogue, trusted)
    return made


def guest_driver(conf: cfg.ConfigOpts) -> GuestDriver | None:
    """Return the driver that connects virtual machines with their slots, or None if none is configured.

    Raises InvalidInput with the available drivers if it is unknown, or with its requirements that are not installed.
    """
    if conf.agent.guest_driver == NO_GUESTS:
        return None
    made: GuestDriver = _driver(GUEST_DRIVERS, "[agent] guest_driver", conf.agent.guest_driver).from_conf(conf)
    return made


def runner(conf: cfg.ConfigOpts, settings: AgentSettings, clock: Clock) -> Runner | None:
    """Return the runner that launches gang processes on a host; None if the host has no pCPUs for gangs and no journal.

    Raises InvalidInput with the available runners if it is unknown, or with the error in its configuration.
    """
    if not settings.gang_processors and not (settings.state_dir / "journal.sqlite").exists():
        return None
    kind = _driver(RUNNERS, "[agent] gang_runner", conf.agent.gang_runner)
    made: Runner = kind.from_conf(conf, settings.state_dir, clock)
    return made


def _driver(group: str, option: str, name: str) -> Any:
    points = NamedExtensionManager(group, ()).list_entry_points()
    point = next((one for one in points if one.name == name), None)
    if point is None:
        known = sorted({one.name for one in points})
        raise InvalidInput(f"{option}: no driver {name!r}; available: {', '.join(known) or 'none'}")
    try:
        return point.load()
    except ImportError as error:
        raise InvalidInput(f"{option} = {name}: {error}; install the requirements of this driver") from error


def instances(
    conf: cfg.ConfigOpts, agent: AgentService, scheduler: SchedulerAPI, egress: EgressDriver | None
) -> Instances | None:
    """Return the supervisor of the virtual machines of this host, or None without a guest driver."""
    guests = guest_driver(conf)
    if guests is None:
        return None
    group = conf.agent
    parts = Parts(
        host=agent.settings.host,
        agent_id=agent.agent_id,
        scheduler=scheduler,
        driver=guests,
        holds=agent.jobs.holds,
        guests={name: worker.guest for name, worker in agent.slots.items()},
        scratch=agent.settings.state_dir / "scratch",
        limits=ChannelLimits(max_input_bytes=group.guest_max_input_mib << 20, run_s=group.guest_run_timeout_s),
        prepare_s=group.start_timeout_s,
    )
    taps = Taps(guests.running, egress, agent.settings.egress_bps)
    agent.servers = taps.observed
    return Instances(parts, Path(group.hook_socket), taps)


def tiers(conf: cfg.ConfigOpts, settings: AgentSettings) -> Tiers | None:
    """Return the service that keeps the guests of this host in their tiers, or None if there are no tiers.

    Raises InvalidInput that names the wrong option of the pool or of Nova.
    """
    group = conf.tiers
    if group.driver == NO_TIERS:
        return None
    # Imported only if used, as it loads a client library for clouds.
    from fpga_pool.placement.client import open_placement
    from fpga_pool.placement.tiers import TierAccounts

    pcpus = parse_pcpus(group.pcpus)
    if not pcpus:
        raise InvalidInput("[tiers] pcpus: missing; expected [compute] cpu_shared_set of nova.conf")
    if group.nova_conf:
        check_nova_conf(Path(group.nova_conf), pcpus)
    placement = open_placement(conf)
    return Tiers(
        _driver(TIER_DRIVERS, "[tiers] driver", group.driver).from_conf(conf),
        pcpus,
        settings.state_dir / "tiers.json",
        None if placement is None else TierAccounts(placement, settings.node or settings.host, len(pcpus)),
        group.interval_s,
        usage_threshold=group.usage_threshold,
    )


def egress_driver(conf: cfg.ConfigOpts) -> EgressDriver | None:
    """Return the driver that limits the outgoing flows of this host; None if senders pace themselves."""
    if conf.agent.egress_driver == NO_EGRESS:
        return None
    # Imported only if used, as it loads a library that configures the kernel.
    from fpga_pool.drivers.egress.tc.driver import TcDriver
    from fpga_pool.drivers.egress.tc.router import TcEgress
    from fpga_pool.drivers.privileged import use_own_capabilities

    helped = "this process" if use_own_capabilities() else "the helper of [privsep_tc]"
    LOG.info("egress rates of this host are enforced by tc, configured by %s", helped)
    return TcEgress({network: TcDriver(device) for network, device in shaped_devices(conf).items()})
