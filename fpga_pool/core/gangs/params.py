"""Parameters of the gang policies."""

from dataclasses import dataclass, field

#: Which gangs that end at the shadow time leave extra processors.
NEEDED, ALL = "needed", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationParams:
    """How the reservation of the head is made; the parameter of one tier."""

    #: Algorithm 1, line 21: the loop ends with the first gang that frees enough.
    extra_ends: str = field(
        default=NEEDED,
        metadata={
            "choices": (NEEDED, ALL),
            "help": "Of gangs that end together when the head can start, count those needed for it, or all, when "
            "extra processors are counted.",
        },
    )

    def __post_init__(self) -> None:
        if self.extra_ends not in (NEEDED, ALL):
            raise ValueError(f"extra_ends: expected {NEEDED!r} or {ALL!r}, got {self.extra_ends!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierParams(ReservationParams):
    """The parameters of two tiers."""

    #: Section 2.1, observation 3.
    usage_threshold: float = field(
        default=0.96,
        metadata={"min": 0.0, "max": 1.0, "help": "Foreground usage from which on no background process is placed."},
    )

    def __post_init__(self) -> None:
        ReservationParams.__post_init__(self)
        if not 0 <= self.usage_threshold <= 1:
            raise ValueError(f"usage_threshold: expected a number from 0 to 1, got {self.usage_threshold!r}")
