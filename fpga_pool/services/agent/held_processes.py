"""A process of a gang as its agent holds it: what it was told, and how far it has come."""

from dataclasses import dataclass, replace
from enum import StrEnum

from fpga_pool.drivers.runners.base import Key, ProcessSpec
from fpga_pool.model.flavor import Tier
from fpga_pool.model.gang_messages import LaunchProcess


class Wish(StrEnum):
    """What is to become of a process."""

    #: It is to be launched; nothing has been seen of it.
    LAUNCH = "launch"
    #: It was launched, and is to run: if nothing is seen of it, it has died.
    RUN = "run"
    #: It is to be saved: before it was launched, or when it ran.
    SAVE_UNSEEN = "save unseen"
    SAVE = "save"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """A process that this agent holds."""

    processor: str
    #: What it was launched with; its tier is the one that it is to be in now.
    launch: LaunchProcess
    wish: Wish = Wish.LAUNCH

    @property
    def key(self) -> Key:
        """Which process it is."""
        return Key(self.launch.gang, self.launch.index, self.launch.attempt)

    @property
    def ending(self) -> bool:
        """Whether it is to end."""
        return self.wish not in (Wish.LAUNCH, Wish.RUN)

    @property
    def spec(self) -> ProcessSpec:
        """What its runner is told."""
        launch = self.launch
        return ProcessSpec(
            key=self.key,
            processes=launch.processes,
            cpu_usage=launch.cpu_usage,
            work_s=launch.work_s,
            done_s=launch.done_s,
            image=launch.image,
            command=launch.command,
            saved=launch.saved,
        )

    def to(self, wish: Wish) -> "HeldProcess":
        """Return it with another wish."""
        return replace(self, wish=wish)

    def in_tier(self, tier: Tier) -> "HeldProcess":
        """Return it for another tier."""
        return replace(self, launch=replace(self.launch, tier=tier))
