"""Accelerator flavors: requests to the pool in extra specs, and the resource classes and traits of Placement for them.

An instance requests `count` slots that hold `function`.  Placement counts the slots: a card has one provider for each
of its kinds of slots, so a large slot is never mistaken for a small one, and traits name the functions that can be
loaded.  A flavor may also request a tier.
"""

import re
import uuid
from collections.abc import Mapping
from enum import StrEnum

from fpga_pool.model.codec import Message
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import Number
from fpga_pool.model.objects.pool import SLOT_NAMESPACE

#: Namespace of the pool's extra specs.
NAMESPACE = "fpga_pool"
#: Resource class of slots in Placement; the standard class FPGA is used by Cyborg.
RESOURCE_CLASS = "CUSTOM_FPGA_SLOT"
#: Trait of every provider that the pool owns; the pool changes or removes no others.
OWNER_TRAIT = "CUSTOM_OWNER_FPGA_POOL"
#: Maximum length of a trait in Placement.
_TRAIT_CHARACTERS = 255

MAX_COUNT = 64


class Topology(StrEnum):
    """Topology of the links between the slots of an instance (lattice paper)."""

    ANY = "any"
    LINE = "line"
    RING = "ring"


class Tier(StrEnum):
    """Priority of an instance on processors that it shares with one other (two-tier paper)."""

    FOREGROUND = "foreground"
    #: Gets only the time that the foreground leaves idle.
    BACKGROUND = "background"
    #: Starts in the background; the pool moves it to the foreground of its host when there is room for all its vCPUs.
    AUTO = "auto"


#: Resource classes of pCPUs in Placement; each pCPU counts as one foreground and one background pCPU.
TIER_CLASSES: Mapping[Tier, str] = {
    Tier.FOREGROUND: "CUSTOM_FPGA_FOREGROUND_PCPU",
    Tier.BACKGROUND: "CUSTOM_FPGA_BACKGROUND_PCPU",
    Tier.AUTO: "CUSTOM_FPGA_BACKGROUND_PCPU",
}
#: Trait of the providers of pCPUs with tiers.
TIERS_TRAIT = "CUSTOM_FPGA_TIERS"


class AcceleratorRequest(Message, frozen=True, kw_only=True):
    """Request of a flavor for the slots of each instance."""

    function: str
    count: int = 1
    topology: Topology = Topology.ANY
    #: None = no tier: it shares its processors like any other virtual machine.
    tier: Tier | None = None
    #: Run time that its owner expects; None = unknown.
    runtime_s: Number | None = None
    #: Expected CPU usage, percent of its processors; None = unknown.
    cpu_usage_percent: Number | None = None

    @property
    def linked(self) -> bool:
        """Whether several slots have to be linked."""
        return self.count > 1 and self.topology != Topology.ANY

    @property
    def what(self) -> str:
        """Description of the requested slots for messages."""
        if self.count == 1:
            return "1 slot"
        return f"a {self.topology} of {self.count} slots" if self.linked else f"{self.count} slots"


#: By extra spec: pattern of its values (valid in ECMAScript and Python), and the text that completes "expected ...".
EXTRA_SPECS: Mapping[str, tuple[str, str]] = {
    f"{NAMESPACE}:function": (r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "the name of a function in the pool's catalogue"),
    f"{NAMESPACE}:count": (r"[1-9]|[1-5][0-9]|6[0-4]", f"a number of slots, 1 to {MAX_COUNT}"),
    f"{NAMESPACE}:topology": ("any|line|ring", "any, line or ring"),
    f"{NAMESPACE}:tier": ("foreground|background|auto", "foreground, background or auto"),
    f"{NAMESPACE}:migrate": ("true|false", "true or false"),
    f"{NAMESPACE}:runtime": (r"(?=.*[1-9])[0-9]+(\.[0-9]+)?", "seconds above 0"),
    f"{NAMESPACE}:cpu_usage": (r"100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?", "percent, 0 to 100"),
}


#: Extra specs that a flavor may have without requesting an accelerator.
TIER_SPECS = (
    f"{NAMESPACE}:tier",
    f"{NAMESPACE}:migrate",
    f"{NAMESPACE}:runtime",
    f"{NAMESPACE}:cpu_usage",
)


def asks_the_pool(extra_specs: Mapping[str, str]) -> bool:
    """Return whether extra specs contain any of the pool's namespace, valid or not."""
    return any(name.startswith(f"{NAMESPACE}:") for name in extra_specs)


def _asks_for_slots(extra_specs: Mapping[str, str]) -> bool:
    return any(name.startswith(f"{NAMESPACE}:") and name not in TIER_SPECS for name in extra_specs)


def requested_tier(extra_specs: Mapping[str, str]) -> Tier | None:
    """Return the tier that extra specs request; None = none.  InvalidInput if there is no such tier."""
    tier = extra_specs.get(f"{NAMESPACE}:tier")
    if tier is None:
        return None
    check_extra_spec(f"{NAMESPACE}:tier", tier)
    return Tier(tier)


def may_migrate(extra_specs: Mapping[str, str]) -> bool:
    """Return whether the pool may request the live migration of a machine to the foreground of another host."""
    return extra_specs.get(f"{NAMESPACE}:migrate") == "true"


def is_dedicated(extra_specs: Mapping[str, str]) -> bool:
    """Return whether a flavor gives vCPUs dedicated processors, which cannot be shared in tiers."""
    return extra_specs.get("hw:cpu_policy", "shared") in ("dedicated", "mixed") or any(
        name.endswith(":PCPU") and name.startswith("resources") for name in extra_specs
    )


def requested(extra_specs: Mapping[str, str]) -> AcceleratorRequest | None:
    """Return the request for slots in extra specs; None = none.  InvalidInput names the invalid extra spec."""
    function = extra_specs.get(f"{NAMESPACE}:function")
    tier = requested_tier(extra_specs)
    if function is None:
        if asks_the_pool(extra_specs) and (tier is None or _asks_for_slots(extra_specs)):
            raise InvalidInput(f"{NAMESPACE}:function: missing, but required by the other extra specs of {NAMESPACE}")
        return None
    for name, value in extra_specs.items():
        if name.startswith(f"{NAMESPACE}:"):
            check_extra_spec(name, value)
    runtime = extra_specs.get(f"{NAMESPACE}:runtime")
    cpu_usage = extra_specs.get(f"{NAMESPACE}:cpu_usage")
    return AcceleratorRequest(
        function=function,
        count=int(extra_specs.get(f"{NAMESPACE}:count", "1")),
        topology=Topology(extra_specs.get(f"{NAMESPACE}:topology", "any")),
        tier=tier,
        runtime_s=None if runtime is None else float(runtime),
        cpu_usage_percent=None if cpu_usage is None else float(cpu_usage),
    )


def check_extra_spec(name: str, value: str) -> None:
    """Raise InvalidInput, saying what is expected, if the name or the value is not valid for the pool."""
    if name not in EXTRA_SPECS:
        raise InvalidInput(f"{name}: not an extra spec of {NAMESPACE}; expected one of {', '.join(EXTRA_SPECS)}")
    pattern, what = EXTRA_SPECS[name]
    if not re.fullmatch(pattern, value):
        raise InvalidInput(f"{name}: {value!r} is invalid; expected {what}")


def function_trait(function: str) -> str:
    """Return the trait of providers whose slots can hold a function."""
    return _trait("FUNCTION", function)


def board_trait(board: str) -> str:
    """Return the trait of providers on a type of card."""
    return _trait("BOARD", board)


def kind_trait(kind: str) -> str:
    """Return the trait of providers of one kind of slot."""
    return _trait("KIND", kind)


def _trait(what: str, name: str) -> str:
    return f"CUSTOM_FPGA_{what}_{re.sub('[^A-Z0-9_]', '_', name.upper())}"[:_TRAIT_CHARACTERS]


def provider_name(host: str, card: str, kind: str) -> str:
    """Return the name of the provider of a card's slots of one kind, which is unique in the cloud."""
    return f"{host}:{NAMESPACE}:{card}:{kind}"


def provider_uuid(host: str, card: str, kind: str) -> str:
    """Return the deterministic uuid of the provider of a card's slots of one kind."""
    return str(uuid.uuid5(SLOT_NAMESPACE, provider_name(host, card, kind)))


def tiers_provider_name(node: str) -> str:
    """Return the name of the provider of a compute node's pCPUs with tiers."""
    return f"{node}:{NAMESPACE}_tiers"


def tiers_provider_uuid(node: str) -> str:
    """Return the deterministic uuid of the provider of a compute node's pCPUs with tiers."""
    return str(uuid.uuid5(SLOT_NAMESPACE, tiers_provider_name(node)))


class GuestTier(Message, frozen=True, kw_only=True):
    """A guest in a tier."""

    instance: str
    name: str
    #: Tier that its owner requests; None = it was put into a tier without a request.
    wanted: Tier | None
    tier: Tier
    #: The pCPU of each vCPU.
    pcpus: tuple[int, ...]
    #: Share of its pCPU that each vCPU used lately, 0 to 1; empty = not measured yet.
    usage: tuple[Number, ...]
    #: Share of each of its pCPUs that was in use, including processes of the host; empty = not measured yet.
    pcpu_usage: tuple[Number, ...] = ()
    #: Its flavor allows the pool to request its live migration.
    may_migrate: bool = False
