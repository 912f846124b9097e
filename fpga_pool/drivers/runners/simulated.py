"""Simulated processes: progress follows tier, neighbour, loss and phi (two-tier paper, section 2.1).

A process runs while DIRECTORY/GANG.ATTEMPT.INDEX.json exists. So it outlives its agent, as a guest does, and ends when
the file is removed. Rates are those of the simulator, but each process progresses independently: a gang is done when
its slowest process is done.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from oslo_config import cfg

from fpga_pool.core.gangs.sharing import ProgressParams, behind_rate
from fpga_pool.drivers.runners.domain import Runner
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec, Running
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier


@dataclass(frozen=True, slots=True)
class _Guest:
    """One process, as stored in its file."""

    gang: str
    index: int
    attempt: int
    processor: int
    tier: str
    cpu_usage: float
    work_s: float
    #: Rate lost in the foreground beside a neighbour, and share of a neighbour's idle cycles used in the background.
    loss: float
    used: float
    phase: str
    #: Work already done when it was launched.
    carried_s: float
    done_s: float
    rate: float
    progress_at: float
    #: When saving will be complete, if it is being saved.
    saved_at: float = 0.0

    @property
    def key(self) -> Key:
        return Key(self.gang, self.index, self.attempt)

    @property
    def busy(self) -> bool:
        """Whether the process uses its processor."""
        return self.phase == Phase.RUNNING.value

    def done_by(self, now_s: float) -> float:
        return min(self.done_s + self.rate * max(now_s - self.progress_at, 0.0), self.work_s)

    @property
    def ends_at(self) -> float:
        return self.progress_at + (self.work_s - self.done_s) / self.rate if self.busy and self.rate else float("inf")

    def at_rate(self, rate: float, now_s: float) -> "_Guest":
        if rate == self.rate:
            return self
        return replace(self, done_s=self.done_by(now_s), rate=rate, progress_at=now_s)


class SimulatedRunner(Runner):
    """Simulated processes, stored as files in a directory. Thread-safe."""

    def __init__(
        self, directory: Path, clock: Callable[[], float], migration_s: float, params: ProgressParams | None = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._migration_s = migration_s
        self._params = params or ProgressParams()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in directory.glob("*.new"):  # left by an agent that was killed while it wrote a file
            left.unlink(missing_ok=True)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:
        return cls(state_dir / "processes", clock, conf.runner_simulated.migration_s)

    def observe(self) -> dict[Key, Running]:
        with self._lock:
            guests = self._up_to(self._clock())
        return {
            guest.key: Running(
                phase=Phase(guest.phase),
                processor=guest.processor,
                tier=Tier(guest.tier),
                done_s=guest.done_s,
                rate=guest.rate,
                progress_at=guest.progress_at,
                cpu_s=guest.cpu_usage * (guest.done_s - guest.carried_s),
            )
            for guest in guests.values()
        }

    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        from fpga_pool.core.gangs.progress import shares_of  # it loads numpy, which agents without gangs do not need

        with self._lock:
            now_s = self._clock()
            guests = self._up_to(now_s)
            if spec.key in guests:
                return
            self._refuse_taken(guests, processor, tier)
            loss, used = shares_of(spec.key.gang, spec.processes, self._params)
            guest = _Guest(
                gang=spec.key.gang,
                index=spec.key.index,
                attempt=spec.key.attempt,
                processor=processor,
                tier=str(tier),
                cpu_usage=spec.cpu_usage,
                work_s=spec.work_s,
                loss=loss,
                used=used,
                phase=Phase.RUNNING.value,
                carried_s=spec.done_s,
                done_s=spec.done_s,
                rate=0.0,
                progress_at=now_s,
            )
            self._put(guests, guest, now_s)

    def set_tier(self, key: Key, tier: Tier) -> None:
        with self._lock:
            now_s = self._clock()
            guests = self._up_to(now_s)
            guest = self._known(guests, key)
            if guest.tier != tier:
                self._put(guests, replace(guest, tier=str(tier)), now_s)

    def save(self, key: Key) -> None:
        with self._lock:
            now_s = self._clock()
            guests = self._up_to(now_s)
            guest = self._known(guests, key)
            if guest.busy:
                stopped = guest.at_rate(0.0, now_s)
                saving = replace(stopped, phase=Phase.SAVING.value, saved_at=now_s + self._migration_s)
                self._put(guests, saving, now_s)

    def end(self, key: Key) -> None:
        with self._lock:
            now_s = self._clock()
            guests = self._up_to(now_s)
            self._file(key).unlink(missing_ok=True)
            if guests.pop(key, None) is not None:
                self._adjust(guests, now_s)

    def leave(self, key: Key) -> None:
        # The only state of a simulated process is the work done, so nothing remains to be kept.
        self.end(key)

    def discard(self, saved: str) -> None:
        """Do nothing."""

    def _up_to(self, now_s: float) -> dict[Key, _Guest]:
        """Return all processes as of now, after recording which have finished or were saved since the last call."""
        guests = self._read()
        while True:
            self._adjust(guests, now_s=None)
            next_one = min(guests.values(), key=lambda guest: guest.ends_at, default=None)
            if next_one is None or next_one.ends_at > now_s:
                break
            ended_at = next_one.ends_at
            exited = replace(next_one, phase=Phase.EXITED.value, done_s=next_one.work_s, rate=0.0, progress_at=ended_at)
            self._put(guests, exited, ended_at)
        for guest in list(guests.values()):
            if guest.phase == Phase.SAVING.value and guest.saved_at <= now_s:
                self._put(guests, replace(guest, phase=Phase.SAVED.value), now_s)
        return guests

    def _put(self, guests: dict[Key, _Guest], guest: _Guest, now_s: float) -> None:
        guests[guest.key] = guest
        self._write(guest)
        self._adjust(guests, now_s)

    def _adjust(self, guests: dict[Key, _Guest], now_s: float | None) -> None:
        """Set the rate of each process according to its current neighbour.

        The rates change at `now_s`; None = the current time, as the end of a neighbour was noticed just now.
        """
        moment = self._clock() if now_s is None else now_s
        for guest in list(guests.values()):
            others = [other for other in guests.values() if other.processor == guest.processor and other.busy]
            neighbour = next((other for other in others if other.key != guest.key), None)
            changed = guest.at_rate(self._rate(guest, neighbour) if guest.busy else 0.0, moment)
            if changed is not guest:
                guests[guest.key] = changed
                self._write(changed)

    def _rate(self, guest: _Guest, neighbour: _Guest | None) -> float:
        """Return the rate of a process beside a neighbour (None = alone); see `core.gangs.progress.rate`."""
        if neighbour is None:
            return 1.0
        if guest.tier == Tier.FOREGROUND:
            return 1.0 - guest.loss
        return behind_rate(guest.cpu_usage, neighbour.cpu_usage, guest.used, self._params.usage_threshold)

    def _refuse_taken(self, guests: dict[Key, _Guest], processor: int, tier: Tier) -> None:
        for other in guests.values():
            if (other.processor, other.tier) == (processor, tier):
                raise Conflict(f"processor {processor}: process {other.key} is in its {tier}")

    def _known(self, guests: dict[Key, _Guest], key: Key) -> _Guest:
        if key not in guests:
            raise NotFound(f"no process {key} on this host")
        return guests[key]

    def _file(self, key: Key) -> Path:
        return self._directory / f"{key}.json"

    def _read(self) -> dict[Key, _Guest]:
        guests = {}
        for file in sorted(self._directory.glob("*.json")):
            try:
                guest = _Guest(**json.loads(file.read_text()))
            except FileNotFoundError:
                continue
            guests[guest.key] = guest
        return guests

    def _write(self, guest: _Guest) -> None:
        file = self._file(guest.key)
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps(asdict(guest)))
        beside.replace(file)
