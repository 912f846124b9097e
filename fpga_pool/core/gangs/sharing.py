"""A processor shared by two processes (two-tier paper): physical parameters, and the rate of the one behind."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressParams:
    """Physical parameters of two tiers, as measured on the paper's cluster."""

    #: Foreground usage at or above which the background makes no progress; section 2.1.
    usage_threshold: float = 0.96
    #: Loss of a foreground process that shares its processor, uniform; section 2.1.
    loss: tuple[float, float] = (0.005, 0.04)
    #: Share of the idle cycles that a background process can use, for gangs of one process, uniform; section 2.1.
    single: tuple[float, float] = (0.80, 0.92)
    #: The same for wider gangs, normal and truncated to this range; section 2.1.
    several: tuple[float, float] = (0.198, 0.766)
    #: The values are missing in the published text: the middle of the range, and the deviation quoted elsewhere.
    several_mean: float = 0.482
    several_deviation: float = 0.144
    #: Usage of the processes of wider gangs, uniform; gangs of one process use all of a processor; section 3.1.
    usage: tuple[float, float] = (0.4, 1.0)

    def __post_init__(self) -> None:
        if not 0 < self.usage_threshold <= 1:
            raise ValueError(f"usage_threshold: expected above 0 and 1 at most, got {self.usage_threshold!r}")
        for name in ("loss", "single", "several", "usage"):
            low, high = getattr(self, name)
            if not 0 <= low <= high <= 1:
                raise ValueError(f"{name}: expected a range within 0 to 1, got {low!r} to {high!r}")
        if self.usage[0] <= 0:
            raise ValueError(f"usage: expected above 0, got {self.usage[0]!r}")
        if not self.several[0] <= self.several_mean <= self.several[1] or self.several_deviation <= 0:
            raise ValueError("several_mean, several_deviation: expected a mean within `several`, a deviation above 0")


def behind_rate(usage: float, in_front: float, used: float, usage_threshold: float) -> float:
    """Return the rate of a process of usage `usage` behind one of usage `in_front`, 0 = none (section 3.2)."""
    if in_front == 0.0:
        return 1.0
    return 0.0 if in_front >= usage_threshold else used * min(1.0, (1.0 - in_front) / usage)
