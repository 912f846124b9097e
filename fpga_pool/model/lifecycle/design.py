"""Life cycle of a design: submitted by a tenant, decided on by operators, who can reverse their decisions.

::

    SUBMITTED -Approved-> APPROVED -Revoked-> REVOKED
        '----Rejected---> REJECTED

A design that was rejected or revoked can be Approved (again).  A design that is rejected or revoked becomes private.
"""

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.objects.bitstreams import Design, DesignState


class Approved(Event, frozen=True, kw_only=True):
    """Its function may be loaded."""

    reason: str = ""


class Rejected(Event, frozen=True, kw_only=True):
    """Its function will not be loaded."""

    reason: str = ""


class Revoked(Event, frozen=True, kw_only=True):
    """Its function must no longer be loaded."""

    reason: str = ""


class Published(Event, frozen=True, kw_only=True):
    """Jobs of all projects may use its function."""

    reason: str = ""


class MadePrivate(Event, frozen=True, kw_only=True):
    """Only jobs of its own project may use its function."""

    reason: str = ""


_approved = sets("reason", state=DesignState.APPROVED)

_RULES: dict[tuple[DesignState, type], Rule[Design]] = {
    (DesignState.SUBMITTED, Approved): _approved,
    (DesignState.SUBMITTED, Rejected): sets("reason", state=DesignState.REJECTED, public=False),
    (DesignState.REJECTED, Approved): _approved,
    (DesignState.APPROVED, Revoked): sets("reason", state=DesignState.REVOKED, public=False),
    (DesignState.REVOKED, Approved): _approved,
    (DesignState.APPROVED, Published): sets(public=True),
    (DesignState.APPROVED, MadePrivate): sets(public=False),
}

DESIGN = Table[Design]("design", _RULES)
