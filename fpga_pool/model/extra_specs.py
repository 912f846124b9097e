"""Extra specs of accelerator flavors: creation of consistent ones, and detection of inconsistencies.

The pool reads `fpga_pool:*`, Placement reads `resources*:` and `trait*:`.  Nova checks each extra spec separately, so
only this module detects a flavor that requests one thing from the pool and another from Placement.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fpga_pool.model.catalogue import Catalogue, Function
from fpga_pool.model.exceptions import InvalidInput, UnknownFunction
from fpga_pool.model.flavor import (
    NAMESPACE,
    RESOURCE_CLASS,
    TIER_CLASSES,
    TIER_SPECS,
    AcceleratorRequest,
    Tier,
    Topology,
    board_trait,
    check_extra_spec,
    function_trait,
    is_dedicated,
    kind_trait,
    may_migrate,
    requested,
    requested_tier,
)
from fpga_pool.model.objects.bitstreams import is_design

#: Nova's names of extra specs: "resources" or "trait", optionally a group, and the resource class or trait requested.
_PLACEMENT_NAME = re.compile(r"(?P<what>resources|trait)(?P<group>[A-Za-z0-9_-]*):(?P<asked>.+)")
_GROUP_POLICIES = ("none", "isolate")


class Spread(StrEnum):
    """Distribution of the slots of a virtual machine over the cards of its host."""

    #: All from one card.
    CARD = "card"
    #: From any cards of the host.
    HOST = "host"
    #: Each from another provider: another card, or slots of another kind on the same card.
    APART = "apart"


def placement_traits(function: Function) -> tuple[str, ...]:
    """Return the traits of providers whose slots can hold a function.

    Designs have no traits of their own, as they come and go.  A design fits all slots of one kind on one board, so the
    traits of the board and of the kind are returned.
    """
    if is_design(function.name):
        return tuple(map(board_trait, function.fpga_time)) + tuple(map(kind_trait, function.slot_kinds))
    return (function_trait(function.name),)


def consistent_extra_specs(
    request: AcceleratorRequest, spread: Spread = Spread.CARD, vcpus: int = 1, traits: Sequence[str] = ()
) -> dict[str, str]:
    """Return the extra specs of a flavor with this request, both for the pool and for Placement.

    `traits` are the `placement_traits` of its function; empty = those of a function of the catalogue.
    """
    traits = traits or (function_trait(request.function),)
    specs = {f"{NAMESPACE}:function": request.function, f"{NAMESPACE}:count": str(request.count)}
    if request.topology != Topology.ANY:
        specs[f"{NAMESPACE}:topology"] = request.topology.value
    specs |= _expectations(request.runtime_s, request.cpu_usage_percent)
    if request.tier is not None:
        specs |= _tier(request.tier, vcpus)
    requested(specs)  # raises InvalidInput if they are not valid
    if spread == Spread.CARD or request.count == 1:
        return specs | _group("", traits, request.count)
    for number in range(1, request.count + 1):
        specs |= _group(f"_FPGA{number}", traits, 1)
    specs["group_policy"] = "isolate" if spread == Spread.APART else "none"
    return specs


def tier_extra_specs(
    tier: Tier,
    vcpus: int,
    runtime_s: float | None = None,
    cpu_usage_percent: float | None = None,
    migrate: bool = False,
) -> dict[str, str]:
    """Return the extra specs of a flavor that requests a tier but no accelerator; InvalidInput if not possible."""
    specs = _tier(tier, vcpus) | _expectations(runtime_s, cpu_usage_percent)
    if migrate:
        specs[f"{NAMESPACE}:migrate"] = "true"
    for name, value in specs.items():
        if name in TIER_SPECS:
            check_extra_spec(name, value)
    for wrong in wrong_tier(specs, vcpus):
        raise InvalidInput(wrong)
    return specs


def _tier(tier: Tier, vcpus: int) -> dict[str, str]:
    return {f"{NAMESPACE}:tier": tier.value, f"resources:{TIER_CLASSES[tier]}": str(vcpus)}


def _expectations(runtime_s: float | None, cpu_usage_percent: float | None) -> dict[str, str]:
    specs = {}
    if runtime_s is not None:
        specs[f"{NAMESPACE}:runtime"] = _plain(runtime_s)
    if cpu_usage_percent is not None:
        specs[f"{NAMESPACE}:cpu_usage"] = _plain(cpu_usage_percent)
    return specs


def _group(group: str, traits: Sequence[str], count: int) -> dict[str, str]:
    required = {f"trait{group}:{trait}": "required" for trait in traits}
    return {f"resources{group}:{RESOURCE_CLASS}": str(count), **required}


def _plain(value: float) -> str:
    """Format a number without an exponent, as extra specs require."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@dataclass(slots=True)
class _Group:
    """Requests of a flavor to one provider."""

    #: Amount of RESOURCE_CLASS as written in the flavor; None = not requested.
    slots: str | None = None
    #: Values by trait ("required" or "forbidden"), for the pool's traits only.
    traits: dict[str, str] = field(default_factory=dict)


def inconsistencies(extra_specs: Mapping[str, str], catalogue: Catalogue, vcpus: int | None = None) -> list[str]:
    """Return a sentence for each inconsistency of a flavor, with what is expected; empty if there are none.

    `vcpus` is the number of vCPUs of the flavor; None = unknown.
    """
    ours = {name: value for name, value in extra_specs.items() if name.startswith(f"{NAMESPACE}:")}
    groups = _groups(extra_specs)
    found = list(_refused(ours)) or list(wrong_tier(extra_specs, vcpus))
    function = ours.get(f"{NAMESPACE}:function")
    if function is None and f"{NAMESPACE}:tier" in ours and set(ours) <= set(TIER_SPECS) and not groups:
        return found
    if function is None:
        return found + list(_without_function(ours, groups))
    if found:
        return found  # the other checks depend on these values
    try:
        catalogue.function(function)
    except UnknownFunction as error:
        return [f"{NAMESPACE}:function: {str(error).removeprefix('function ')}"]
    return [
        *_wrong_topology(int(ours.get(f"{NAMESPACE}:count", "1")), ours.get(f"{NAMESPACE}:topology")),
        *_wrong_count(int(ours.get(f"{NAMESPACE}:count", "1")), groups),
        *(sentence for name, group in groups.items() for sentence in _wrong_group(name, group, function, catalogue)),
        *_wrong_policy(extra_specs, groups),
    ]


def contradictions(extra_specs: Mapping[str, str], catalogue: Catalogue) -> list[str]:
    """Return the `inconsistencies` because of which no machine of a flavor can ever get its accelerators."""
    ours = {name: value for name, value in extra_specs.items() if name.startswith(f"{NAMESPACE}:")}
    groups = _groups(extra_specs)
    function = ours.get(f"{NAMESPACE}:function")
    if function is None:
        return list(_without_function(ours, groups))
    catalogue.function(function)
    return [
        *_wrong_count(int(ours.get(f"{NAMESPACE}:count", "1")), groups),
        *(
            sentence
            for name, group in groups.items()
            for sentence in (
                *_foreign_traits(name, group, function, catalogue),
                *_never_satisfied(name, group, function, catalogue),
            )
        ),
    ]


def _groups(extra_specs: Mapping[str, str]) -> dict[str, _Group]:
    """Return the groups that have the pool's resource class or traits, by the group's suffix in the extra specs."""
    groups: dict[str, _Group] = {}
    for name, value in extra_specs.items():
        match = _PLACEMENT_NAME.fullmatch(name)
        if match is None:
            continue
        asked = match["asked"]
        if match["what"] == "resources" and asked == RESOURCE_CLASS:
            groups.setdefault(match["group"], _Group()).slots = value
        elif match["what"] == "trait" and asked.startswith("CUSTOM_FPGA_"):
            groups.setdefault(match["group"], _Group()).traits[asked] = value
    return groups


def _refused(ours: Mapping[str, str]) -> Iterator[str]:
    for name, value in ours.items():
        try:
            check_extra_spec(name, value)
        except InvalidInput as error:
            yield str(error)


def wrong_tier(extra_specs: Mapping[str, str], vcpus: int | None) -> Iterator[str]:
    """Yield an error for each inconsistency between a flavor's tier, its requested pCPUs and its vCPUs (if known)."""
    tier = requested_tier(extra_specs)
    if may_migrate(extra_specs) and (tier is not Tier.AUTO or f"{NAMESPACE}:function" in extra_specs):
        yield f"{NAMESPACE}:migrate: requires {NAMESPACE}:tier=auto, and no {NAMESPACE}:function"
    matches = ((_PLACEMENT_NAME.fullmatch(name), name) for name in extra_specs)
    asked = {name for match, name in matches if match and match["asked"] in TIER_CLASSES.values()}
    if tier is None:
        if asked:
            yield f"{NAMESPACE}:tier: missing, but required by {', '.join(sorted(asked))}"
        return
    if is_dedicated(extra_specs):
        yield (
            f"{NAMESPACE}:tier: a machine whose vCPUs have dedicated pCPUs cannot be in a tier; remove"
            " hw:cpu_policy and resources:PCPU, or the tier"
        )
    right = f"resources:{TIER_CLASSES[tier]}"
    for name in sorted(asked - {right}):
        yield f"{name}: does not match tier {tier}, which requires {right}"
    value = extra_specs.get(right)
    if value is None:
        number = "" if vcpus is None else f"; expected {vcpus}"
        yield f"{right}: missing, so Placement would allocate no pCPUs{number}"
    elif vcpus is not None and value != str(vcpus):
        yield f"{right}: {value!r} is invalid; expected {vcpus}, the number of vCPUs of the flavor"


def _without_function(ours: Mapping[str, str], groups: Mapping[str, _Group]) -> Iterator[str]:
    missing = f"{NAMESPACE}:function: missing"
    if ours:
        yield f"{missing}, but required by {', '.join(ours)}"
    elif groups:
        asked = [f"resources{name}:{RESOURCE_CLASS}" for name, group in groups.items() if group.slots is not None]
        asked = asked or [f"trait{name}:{trait}" for name, group in groups.items() for trait in group.traits]
        yield f"{missing}, but required by {', '.join(asked)}, as slots without a function are never loaded"


def _wrong_topology(count: int, topology: str | None) -> Iterator[str]:
    if count == 1 and topology not in (None, Topology.ANY):
        yield (
            f"{NAMESPACE}:topology: {topology!r} has no effect on 1 slot; remove it, or set {NAMESPACE}:count to 2 or "
            "more"
        )


def _wrong_count(count: int, groups: Mapping[str, _Group]) -> Iterator[str]:
    asking = {name: group.slots for name, group in groups.items() if group.slots is not None}
    if not asking:
        yield f"resources:{RESOURCE_CLASS}: missing, so Placement would allocate no slot; expected {count}"
        return
    for name, slots in asking.items():
        if not re.fullmatch("[1-9][0-9]*", slots):
            yield f"resources{name}:{RESOURCE_CLASS}: {slots!r} is invalid; expected a number of slots above 0"
            return
    total = sum(int(slots) for slots in asking.values())
    if total != count:
        names = " + ".join(f"resources{name}:{RESOURCE_CLASS}" for name in asking)
        yield f"{names}: {total} in total, but {NAMESPACE}:count is {count}; they must be equal"


def _wrong_group(name: str, group: _Group, function: str, catalogue: Catalogue) -> Iterator[str]:
    if group.slots is None:
        yield (
            f"trait{name}:{', '.join(group.traits)}: no resources{name}:{RESOURCE_CLASS} in the same group, so it has "
            "no effect on the slots; put both into one group"
        )
        return
    for right in placement_traits(catalogue.function(function)):
        if group.traits.get(right, "required") != "required":
            yield f"trait{name}:{right}: {group.traits[right]!r} is invalid; expected 'required'"
        if right not in group.traits:
            yield (
                f"trait{name}:{right}: missing, so Placement may allocate slots that cannot hold {function};"
                " expected 'required'"
            )
    yield from _foreign_traits(name, group, function, catalogue)
    yield from _never_satisfied(name, group, function, catalogue)


def _foreign_traits(name: str, group: _Group, function: str, catalogue: Catalogue) -> Iterator[str]:
    right = placement_traits(catalogue.function(function))
    for trait in group.traits:
        if trait.startswith(function_trait("")) and trait not in right:
            wanted = " and ".join(f"trait{name}:{one}" for one in right)
            is_right = f"trait of {function} is" if len(right) == 1 else f"traits of {function} are"
            yield f"trait{name}:{trait}: belongs to another function; the {is_right} {wanted}"


def _never_satisfied(name: str, group: _Group, function: str, catalogue: Catalogue) -> Iterator[str]:
    """Yield an error for a group for which no card in the catalogue has enough slots."""
    places = dict(slots_by_place(function, catalogue))
    if not places:
        yield f"{NAMESPACE}:function: no board in the catalogue has a slot that can hold {function}"
        return
    narrowing = {
        trait: value for trait, value in group.traits.items() if trait.startswith((board_trait(""), kind_trait("")))
    }
    allowed = [
        slots
        for (board, kind), slots in places.items()
        if all(
            (trait in {board_trait(board), kind_trait(kind)}) == (value == "required")
            for trait, value in narrowing.items()
        )
    ]
    if not allowed:
        listed = ", ".join(sorted(f"{board} ({kind})" for board, kind in places))
        asked = ", ".join(f"trait{name}:{trait}={value}" for trait, value in narrowing.items())
        yield f"{asked}: no card has such slots that can hold {function}; available: {listed}"
    elif group.slots is not None and group.slots.isdecimal() and int(group.slots) > max(allowed):
        yield (
            f"resources{name}:{RESOURCE_CLASS}: no card has {group.slots} slots of one kind for {function}, at most "
            f"{max(allowed)}; spread them over groups (fpga-pool-manage flavor create --spread host)"
        )


def slots_by_place(function: str, catalogue: Catalogue) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the number of slots of each board and kind that can hold the function, as ((board, kind), number)."""
    for board in catalogue.boards.values():
        for kind in board.regions:
            if catalogue.fits(function, board.name, kind):
                yield (board.name, kind), board.slots.count(kind)


def _wrong_policy(extra_specs: Mapping[str, str], groups: Mapping[str, _Group]) -> Iterator[str]:
    named = [name for name, group in groups.items() if name and group.slots is not None]
    policy = extra_specs.get("group_policy")
    if len(named) > 1 and policy not in _GROUP_POLICIES:
        what = "missing" if policy is None else f"{policy!r} is invalid"
        listed = ", ".join(f"resources{name}" for name in named)
        yield f"group_policy: {what}; expected none if the slots of {listed} may come from one card, otherwise isolate"
