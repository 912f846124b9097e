"""Tiers of simulated guests: files describe the guests, and the CPU time that each would get is computed.

A guest runs while DIRECTORY/INSTANCE.xml exists, as for the simulated guest driver. Its use of its vCPUs is the extra
spec `fpga_pool:cpu_usage` (default 100 %).  Its tier is stored in a file beside it, and so outlives the agent.
"""

import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

from oslo_config import cfg

from fpga_pool.drivers.guests.domain import nova_extra_specs
from fpga_pool.drivers.tiers.domain import TierDriver, TieredDomain, TieredGuest, check_placing, parse
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.flavor import NAMESPACE, Tier

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The placement of a guest, and the CPU time of its vCPUs until `until_s`."""

    tier: str | None = None
    pcpus: tuple[int, ...] = ()
    cpu_times_s: tuple[float, ...] = ()
    until_s: float = 0.0


class SimulatedTiers(TierDriver):
    """The guests described in a directory.  There are no events: changes are found by polling."""

    def __init__(
        self, directory: Path, host_pcpus: int = os.cpu_count() or 1, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._host_pcpus = host_pcpus
        self._now_s = now_s
        self._lock = threading.RLock()
        #: Busy time of each pCPU since this object was created.
        self._busy_s: defaultdict[int, float] = defaultdict(float)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(Path(conf.agent.simulated_guests_dir))

    def watch(self, changed: Callable[[str], object]) -> None:
        changed("")

    def close(self) -> None:
        """Do nothing."""

    def guests(self) -> list[TieredGuest]:
        # Guests whose description cannot be read are ignored and logged.
        found = []
        with self._lock:
            for file in sorted(self._directory.glob("*.xml")):
                try:
                    domain, kept = self._ours(file.stem)
                except NotFound:
                    continue
                except FpgaPoolError as error:
                    LOG.warning("ignoring a guest: %s: %s", file, error)
                    continue
                found.append(_guest(domain, kept))
        return found

    def place(self, instance: str, tier: Tier, pcpus: Sequence[int]) -> None:
        with self._lock:
            domain, kept = self._ours(instance)
            check_placing(_guest(domain, kept), tier, pcpus)
            wrong = [pcpu for pcpu in pcpus if not 0 <= pcpu < self._host_pcpus]
            if wrong:
                raise InvalidInput(f"guest {domain.name}: this host has no pCPU {wrong[0]}")
            self._advance()
            self._keep(instance, replace(self._kept(instance), tier=tier.value, pcpus=tuple(pcpus)))

    def set_tiers(self, tiers: Mapping[str, Tier]) -> None:
        with self._lock:
            for instance in tiers:
                domain, kept = self._ours(instance)
                if kept.tier is None:
                    raise Conflict(f"guest {domain.name}: has no pCPUs assigned, so its tier cannot change")
            self._advance()
            for instance, tier in tiers.items():
                self._keep(instance, replace(self._kept(instance), tier=tier.value))

    def cpu_times_s(self, instance: str) -> tuple[float, ...]:
        with self._lock:
            self._ours(instance)
            self._advance()
            return self._kept(instance).cpu_times_s

    def busy_times_s(self, pcpus: Sequence[int]) -> tuple[float, ...]:
        # Processes of the host are not simulated.
        with self._lock:
            self._advance()
            return tuple(self._busy_s[pcpu] for pcpu in pcpus)

    def release(self, instance: str) -> None:
        with self._lock:
            self._ours(instance)
            self._advance()
            self._keep(instance, replace(self._kept(instance), tier=None, pcpus=()))

    # Simulation -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Add the CPU time of all guests since the last call; the background gets what its foreground leaves."""
        now_s = self._now_s()
        running = {guest.instance: guest for guest in self.guests()}
        taken = {
            pcpu: self._usage(guest.instance)
            for guest in running.values()
            if guest.tier == Tier.FOREGROUND
            for pcpu in guest.pcpus
        }
        for guest in running.values():
            kept, usage = self._kept(guest.instance), self._usage(guest.instance)
            rates = [usage] * guest.vcpus
            if guest.tier == Tier.BACKGROUND:
                rates = [min(usage, 1.0 - taken.get(pcpu, 0.0)) for pcpu in guest.pcpus]
            past = kept.cpu_times_s or (0.0,) * guest.vcpus
            since_s = now_s - kept.until_s if kept.cpu_times_s else 0.0
            times = tuple(so_far + rate * since_s for so_far, rate in zip(past, rates, strict=True))
            for pcpu, rate in zip(guest.pcpus, rates, strict=False):
                self._busy_s[pcpu] += rate * since_s
            self._keep(guest.instance, replace(kept, cpu_times_s=times, until_s=now_s))

    def _usage(self, instance: str) -> float:
        root = ElementTree.fromstring((self._directory / f"{instance}.xml").read_text())  # noqa: S314  # ours
        return float(nova_extra_specs(root).get(f"{NAMESPACE}:cpu_usage", 100)) / 100

    def _ours(self, instance: str) -> tuple[TieredDomain, _Kept]:
        """Return a running guest of the pool. Raises NotFound if it is not one."""
        try:
            domain = parse((self._directory / f"{instance}.xml").read_text())
        except FileNotFoundError:
            self._file(instance).unlink(missing_ok=True)
            raise NotFound(f"guest {instance}: is not running") from None
        kept = self._kept(instance)
        if domain.wanted is None and kept.tier is None:
            raise NotFound(f"guest {instance}: requests no tier")
        return domain, kept

    def _file(self, instance: str) -> Path:
        return self._directory / f"{instance}.tier"

    def _kept(self, instance: str) -> _Kept:
        try:
            plain = json.loads(self._file(instance).read_text())
        except FileNotFoundError:
            return _Kept()
        return _Kept(**plain | {name: tuple(plain[name]) for name in ("pcpus", "cpu_times_s")})

    def _keep(self, instance: str, kept: _Kept) -> None:
        new = self._file(instance).with_suffix(".new")
        new.write_text(json.dumps(asdict(kept)))
        new.replace(self._file(instance))


def _guest(domain: TieredDomain, kept: _Kept) -> TieredGuest:
    return TieredGuest(
        instance=domain.instance,
        name=domain.name,
        wanted=domain.wanted,
        vcpus=domain.vcpus,
        dedicated=domain.dedicated,
        tier=None if kept.tier is None else Tier(kept.tier),
        pcpus=kept.pcpus,
        touched=kept.tier is not None,
        may_migrate=domain.may_migrate,
    )
