"""Tiers of libvirt guests, implemented by pinned vCPUs and the priority of the guest's control group.

The foreground has more `cpu_shares` than others.  The background has the minimum and is idle (`cpu.idle`, Linux 5.15):
it runs only when nothing else on its pCPU does.  The original settings of a guest are stored in its domain's metadata,
before anything is changed, and removed after all of them are restored.  A migration preserves them.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.host_meter import busy_times_s
from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.tiers import cgroups, privileged
from fpga_pool.drivers.tiers.cgroups import GuestCgroup
from fpga_pool.drivers.tiers.domain import (
    PLACED_URI,
    Before,
    TierDriver,
    TieredDomain,
    TieredGuest,
    check_placing,
    parse,
)
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

LOG = logging.getLogger(__name__)

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_SHARES = "cpu_shares"
#: Reasons for the pause of a guest that is migrating here or starting; it is reported once it runs.
_ARRIVING = (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP)


class LibvirtTiers(TierDriver):
    """The tiers of the guests of one libvirtd: of those that request one, or (`of_gangs`) of gang processes."""

    def __init__(self, uri: str, pid_directory: Path = Path("/run/libvirt/qemu"), *, of_gangs: bool = False) -> None:
        self._of_gangs = of_gangs
        self._libvirt = LibvirtConnection(uri)
        self._pids = pid_directory
        #: Last known control groups of guests in tiers. Their paths are never reused by other guests.
        self._groups: dict[str, GuestCgroup] = {}
        #: Background guests that are being migrated or saved.
        self._moving: set[str] = set()
        privileged.use_own_capabilities()

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(conf.agent.libvirt_uri, Path(conf.tiers.libvirt_pid_dir))

    def watch(self, changed: Callable[[str], object]) -> None:
        self._libvirt.watch(changed)

    def close(self) -> None:
        self._libvirt.close()

    # Observed state -------------------------------------------------------------------------------------------------

    def guests(self) -> list[TieredGuest]:
        self._groups = {}
        found = self._libvirt.read_active(self._guest)
        self._moving &= self._groups.keys()
        return found

    def cpu_times_s(self, instance: str) -> tuple[float, ...]:
        domain, about = self._ours(instance)
        group = self._group(domain)
        return tuple(group.cpu_time_s(vcpu) for vcpu in range(about.vcpus))

    def busy_times_s(self, pcpus: Sequence[int]) -> tuple[float, ...]:
        return busy_times_s(pcpus)

    def _guest(self, domain: Any) -> TieredGuest | None:
        """Return a guest; None if it does not belong to the pool, or is still arriving or starting."""
        state, reason = self._libvirt.call(lambda _: domain.state())
        is_arriving = state == libvirt.VIR_DOMAIN_PAUSED and reason in _ARRIVING
        about = self._about(domain)
        if not self._is_ours(about):
            return None
        tier = pcpus = None
        if about.before is not None:
            group = self._groups[about.instance] = self._group(domain)
            tier, pcpus = self._tier(domain), self._pcpus(domain)
            if tier != Tier.FOREGROUND and self._let_move(domain, about, group, tier, is_arriving=is_arriving):
                tier = Tier.BACKGROUND
        if is_arriving:
            return None
        return TieredGuest(
            instance=about.instance,
            name=about.name,
            wanted=about.wanted,
            vcpus=about.vcpus,
            dedicated=about.dedicated,
            tier=tier if pcpus else None,
            pcpus=pcpus or (),
            touched=about.before is not None,
            may_migrate=about.may_migrate,
        )

    def _let_move(
        self, domain: Any, about: TieredDomain, group: GuestCgroup, tier: Tier | None, *, is_arriving: bool
    ) -> bool:
        """Give a background guest the default shares while it is migrated or saved; return whether it has them now.

        Migration runs in the guest's own control group: behind a busy foreground it would get no CPU and never finish.
        """
        is_known = about.instance in self._moving
        moves = is_arriving or self._libvirt.call(lambda _: domain.controlInfo())[0] == libvirt.VIR_DOMAIN_CONTROL_JOB
        if is_known and not moves:
            try:
                moves = self._libvirt.call(lambda _: domain.jobInfo())[0] != libvirt.VIR_DOMAIN_JOB_NONE
            except ServiceUnavailable:  # libvirt is busy with the job
                moves = True
        if moves and not is_known and (is_arriving or tier == Tier.BACKGROUND):
            _set_idle(group, True)
            _set_idle(group, False)  # the kernel resets the shares to the default, which libvirt refuses during a job
            self._moving.add(about.instance)
            LOG.info("guest %s: has the default priority while it is migrated or saved", about.name)
        elif not moves:
            self._moving.discard(about.instance)
        return about.instance in self._moving

    def _tier(self, domain: Any) -> Tier | None:
        group = self._group(domain)
        lowest, highest = group.shares
        idle, shares = group.is_idle, self._shares(domain)
        if idle or (idle is None and shares == lowest):
            return Tier.BACKGROUND
        return Tier.FOREGROUND if shares == highest else None

    def _pcpus(self, domain: Any) -> tuple[int, ...]:
        """Return the pCPU of each vCPU; empty if a vCPU has several pCPUs, or vCPUs share one."""
        pins = [_cpus(pin) for pin in self._libvirt.call(lambda _: domain.vcpuPinInfo(_LIVE))]
        alone = {cpu for pin in pins for cpu in pin}
        return tuple(pin[0] for pin in pins) if len(alone) == len(pins) == sum(map(len, pins)) else ()

    def _ours(self, instance: str) -> tuple[Any, TieredDomain]:
        """Return a running guest of the pool. Raises NotFound if it is not one."""
        domain = self._libvirt.lookup(instance)
        about = self._about(domain)
        if not self._is_ours(about) or domain.ID() < 0:
            raise NotFound(f"guest {instance}: is not running, or requests no tier")
        return domain, about

    def _is_ours(self, about: TieredDomain) -> bool:
        if self._of_gangs or about.is_process:
            return self._of_gangs and about.is_process
        return about.wanted is not None or about.before is not None

    def _about(self, domain: Any) -> TieredDomain:
        return parse(self._libvirt.call(lambda _: domain.XMLDesc()))

    def _group(self, domain: Any) -> GuestCgroup:
        file = self._pids / f"{domain.name()}.pid"
        try:
            pid = int(file.read_text())
        except FileNotFoundError as error:
            raise NotFound(
                f"{file}: missing; guest {domain.name()} has ended, or [tiers] libvirt_pid_dir is wrong"
            ) from error
        except (OSError, ValueError) as error:
            raise ServiceUnavailable(f"{file}: {error}") from error
        return cgroups.of_process(pid)

    # Commands -------------------------------------------------------------------------------------------------------

    def place(self, instance: str, tier: Tier, pcpus: Sequence[int]) -> None:
        domain, about = self._ours(instance)
        guest = TieredGuest(
            instance=instance, name=about.name, wanted=about.wanted, vcpus=about.vcpus, dedicated=about.dedicated
        )
        check_placing(guest, tier, pcpus)
        online = self._libvirt.call(lambda connection: connection.getCPUMap())[1]
        wrong = [pcpu for pcpu in pcpus if not 0 <= pcpu < len(online) or not online[pcpu]]
        if wrong:
            raise InvalidInput(f"guest {about.name}: this host has no pCPU {wrong[0]} online")
        group = self._group(domain)
        if about.before is None:
            before = self._remembered(domain)
            self._libvirt.call(
                lambda _: domain.setMetadata(_ELEMENT, before.to_xml(), "fpga_pool_placed", PLACED_URI, _LIVE)
            )
        for vcpu, pcpu in enumerate(pcpus):
            self._pin(domain, vcpu, [pcpu], len(online))
        self._pin_emulator(domain, pcpus, len(online))
        self._give_tier(domain, group, tier)
        self._groups[instance] = group
        LOG.info("guest %s: placed in the %s on pCPUs %s", about.name, tier, ", ".join(map(str, pcpus)))

    def set_tiers(self, tiers: Mapping[str, Tier]) -> None:
        # Writing to the control group takes a hundredth of the time of libvirt's calls, which complete the change.
        ordered = sorted(tiers.items(), key=lambda one: one[1] != Tier.FOREGROUND)
        known = [(self._groups[instance], tier) for instance, tier in ordered if instance in self._groups]
        if len(known) == len(ordered):
            with contextlib.suppress(NotFound):  # a guest has ended, which is detected below
                for group, tier in known:
                    _set_idle(group, tier == Tier.BACKGROUND)
        changes = []
        for instance, tier in ordered:
            domain, about = self._ours(instance)
            if about.before is None:
                raise Conflict(f"guest {about.name}: has no pCPUs assigned, so its tier cannot change")
            changes.append((domain, self._group(domain), tier))
        for domain, group, tier in changes:
            self._give_tier(domain, group, tier)
            LOG.info("guest %s: moved to the %s", domain.name(), tier)

    def release(self, instance: str) -> None:
        domain, about = self._ours(instance)
        before = about.before
        if before is None:
            return
        group = self._group(domain)
        self._groups.pop(instance, None)
        _set_idle(group, False)
        self._set_shares(domain, before.shares)
        cpus = len(self._libvirt.call(lambda connection: connection.getCPUMap())[1])
        for vcpu, pins in enumerate(before.vcpus[: about.vcpus]):
            self._pin(domain, vcpu, _listed(pins), cpus)
        self._pin_emulator(domain, _listed(before.emulator), cpus)
        self._libvirt.call(lambda _: domain.setMetadata(_ELEMENT, None, None, PLACED_URI, _LIVE))
        LOG.info("guest %s: its original placement is restored", about.name)

    def _remembered(self, domain: Any) -> Before:
        vcpus = self._libvirt.call(lambda _: domain.vcpuPinInfo(_LIVE))
        emulator = self._libvirt.call(lambda _: domain.emulatorPinInfo(_LIVE))
        return Before(
            shares=self._shares(domain),
            emulator=_list(_cpus(emulator)),
            vcpus=tuple(_list(_cpus(pin)) for pin in vcpus),
        )

    def _give_tier(self, domain: Any, group: GuestCgroup, tier: Tier) -> None:
        """Set the priority.  While a group is idle its shares have no effect and cannot be changed."""
        lowest, highest = group.shares
        _set_idle(group, False)
        self._set_shares(domain, highest if tier == Tier.FOREGROUND else lowest)
        _set_idle(group, tier == Tier.BACKGROUND)

    def _shares(self, domain: Any) -> int:
        return int(self._libvirt.call(lambda _: domain.schedulerParametersFlags(_LIVE))[_SHARES])

    def _set_shares(self, domain: Any, shares: int) -> None:
        self._libvirt.call(lambda _: domain.setSchedulerParametersFlags({_SHARES: shares}, _LIVE))

    def _pin(self, domain: Any, vcpu: int, pcpus: Sequence[int], cpus: int) -> None:
        self._libvirt.call(lambda _: domain.pinVcpuFlags(vcpu, _map(pcpus, cpus), _LIVE))

    def _pin_emulator(self, domain: Any, pcpus: Sequence[int], cpus: int) -> None:
        self._libvirt.call(lambda _: domain.pinEmulator(_map(pcpus, cpus), _LIVE))


def _set_idle(group: GuestCgroup, idle: bool) -> None:
    if group.is_idle in (None, idle):
        return
    try:
        privileged.set_idle(str(group.guest), idle)
    except FileNotFoundError as error:
        raise NotFound(f"{group.guest}: gone") from error
    except OSError as error:
        raise ServiceUnavailable(f"{group.idle_file}: {error}") from error


def _cpus(pin: Sequence[bool]) -> list[int]:
    return [cpu for cpu, allowed in enumerate(pin) if allowed]


def _map(pcpus: Sequence[int], cpus: int) -> tuple[bool, ...]:
    """Return a set of pCPUs as a CPU map of libvirt; all pCPUs if none of the set exists."""
    wanted = {pcpu for pcpu in pcpus if pcpu < cpus} or set(range(cpus))
    return tuple(cpu in wanted for cpu in range(cpus))


def _list(pcpus: Sequence[int]) -> str:
    return ",".join(map(str, pcpus))


def _listed(pcpus: str) -> list[int]:
    return [int(pcpu) for pcpu in pcpus.split(",") if pcpu]
