"""Dry run of a gang: the outcome for a gang that is not stored, by the same rules that give gangs their processors."""

from collections.abc import Sequence

from fpga_pool.core.gangs.gangs import How, Move
from fpga_pool.model.cycle import Decision
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.plans import PlannedGang, PlannedProcess
from fpga_pool.model.objects.gangs import Gang, GangState
from fpga_pool.model.rules.gang.decisions import TO_BACKGROUND, GangView, outlooks_in, without_ended_trials
from fpga_pool.model.rules.shared.dry_runs import DryRunContext, supposed
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import shared

_WAITS_IN_FRONT = frozenset({GangState.QUEUED, GangState.BACKGROUND})


def plan_gang(gang: Gang, context: DryRunContext) -> PlannedGang:
    """Return the plan for a gang made by `admission.admit_gang`, as if it was queued behind all waiting gangs."""

    def suppose(tx: Transaction) -> Transaction:
        # Trials whose time is up are ended before the policy decides.
        return supposed(tx, open_gangs=lambda: [*without_ended_trials(tx.open_gangs(), context.now_s), gang])

    decided = context.decide(context.families().gangs, lambda: context.supposing(gang.shard, suppose))
    if decided is None:
        raise AssertionError("a gang that is open is decided on")
    snapshot, decision = decided
    return _planned(gang, snapshot.view, decision)


def _planned(gang: Gang, view: GangView, decision: Decision[Sequence[Move]]) -> PlannedGang:
    """Return the result of a decision for a gang; its moves have already been applied to the view."""
    mine = [move for move in decision.wanted or () if view.gangs[move.gang].uuid == gang.uuid]
    tier, trial = None, False
    processes: tuple[PlannedProcess, ...] = ()
    if mine:
        tier = Tier.BACKGROUND if mine[-1].how in TO_BACKGROUND else Tier.FOREGROUND
        trial = mine[-1].how is How.TRY
        places = [view.processors[number] for number in mine[-1].processors.tolist()]
        processes = tuple(
            PlannedProcess(index=index, host=place.host, processor=place.name, tier=tier)
            for index, place in enumerate(places)
        )
    said = outlooks_in(view).get(gang.uuid)
    expected_at = None if said is None else said.expected_at
    if tier is Tier.FOREGROUND:
        expected_at = view.now_s
    return PlannedGang(
        **shared(gang, PlannedGang) | {"ends_at": None if expected_at is None else expected_at + gang.runtime_s},
        ahead=sum(one.uuid != gang.uuid and one.state in _WAITS_IN_FRONT for one in view.gangs),
        tier=tier,
        trial=trial,
        lower_bound_s=gang.runtime_s,
        pending_reason=decision.explained(said.reason if said else ""),
        expected_at=expected_at,
        process_list=processes,
    )
