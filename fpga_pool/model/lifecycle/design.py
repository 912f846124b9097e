"""The life of a design: submitted by a tenant, decided on by operators, who may change their minds.

::

    SUBMITTED -Approved-> APPROVED -Revoked-> REVOKED
        '----Rejected---> REJECTED

A design that was rejected or revoked can be Approved (again).  One that is not approved is no more public.
"""

from dataclasses import dataclass, replace

from fpga_pool.model.lifecycle.table import Rule, Table
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.bitstreams import Design, DesignState


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Its function may be loaded."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Its function will not be loaded."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """Its function must not be loaded any more."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Jobs of all projects may name its function."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePrivate:
    """Jobs of its own project alone may name its function."""

    reason: str = ""


Outcome = tuple[Design, list[Action]]


def _approved(design: Design, event: Approved, now_s: float) -> Outcome:
    return replace(design, state=DesignState.APPROVED, reason=event.reason), []


def _rejected(design: Design, event: Rejected, now_s: float) -> Outcome:
    return replace(design, state=DesignState.REJECTED, public=False, reason=event.reason), []


def _revoked(design: Design, event: Revoked, now_s: float) -> Outcome:
    return replace(design, state=DesignState.REVOKED, public=False, reason=event.reason), []


def _published(design: Design, event: Published, now_s: float) -> Outcome:
    return replace(design, public=True), []


def _made_private(design: Design, event: MadePrivate, now_s: float) -> Outcome:
    return replace(design, public=False), []


_RULES: dict[tuple[DesignState, type], Rule[Design]] = {
    (DesignState.SUBMITTED, Approved): _approved,
    (DesignState.SUBMITTED, Rejected): _rejected,
    (DesignState.REJECTED, Approved): _approved,
    (DesignState.APPROVED, Revoked): _revoked,
    (DesignState.REVOKED, Approved): _approved,
    (DesignState.APPROVED, Published): _published,
    (DesignState.APPROVED, MadePrivate): _made_private,
}

DESIGN = Table[Design]("design", _RULES)
