"""oslo.policy: a documented rule for each operation of the table, and their enforcement."""

import logging
import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_policy import policy

from fpga_pool.api.operation import Operation
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.api.personas import END_OTHER_PROJECTS, OTHER_PROJECTS, RAISED, Persona, base_rules
from fpga_pool.model.codec import hints_of
from fpga_pool.model.exceptions import Forbidden, InvalidInput
from fpga_pool.model.messages.purge import PurgeRequest

LOG = logging.getLogger(__name__)

#: Lifetime and maximum number of cached decisions. A changed policy file takes effect within this time.
REMEMBERED_S, REMEMBERED = 1.0, 10_000

#: Rules for reading objects of other projects, for ending them, and for priorities above 0.
OTHERS, END_OTHERS = "fpga_pool:list_other_projects", "fpga_pool:end_other_projects"
RAISE = "fpga_pool:raise_priority"

_GROUP, _PREFIX = "oslo_policy", "fpga_pool:"
#: Exceptions that oslo.policy raises for a file that is not a mapping of names to rules.
_NO_RULES = (ValueError, AttributeError, TypeError)


def rule_name(operation: Operation) -> str:
    """Return the name of an operation in a policy file."""
    return f"fpga_pool:{operation.name}"


def names_projects(operation: Operation) -> bool:
    """Return whether an operation can select objects of other projects."""
    return "project_id" in hints_of(operation.query)


def purges_projects(operation: Operation) -> bool:
    """Return whether an operation purges the project that its body names, or all of them."""
    return operation.body is PurgeRequest


def rule_of_others(operation: Operation) -> tuple[str, Persona]:
    """Return the rule that applies to an operation on objects of other projects."""
    return (OTHERS, OTHER_PROJECTS) if operation.method == "GET" else (END_OTHERS, END_OTHER_PROJECTS)


def sets_priority(operation: Operation) -> bool:
    """Return whether an operation can set a priority."""
    return operation.body is not None and "priority" in hints_of(operation.body)


def _documented(operation: Operation) -> str:
    return re.sub(r"<(\w+)>", r"{\1}", operation.path)


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules, in the form that the generators of oslo.policy require."""
    others = [
        policy.DocumentedRuleDefault(
            name=name,
            check_str=persona.check,
            scope_types=list(persona.scopes),
            description=description,
            operations=[
                {"method": one.method, "path": _documented(one)}
                for one in OPERATIONS
                if (names_projects(one) or purges_projects(one)) and rule_of_others(one)[0] == name
            ],
        )
        for name, persona, description in (
            (OTHERS, OTHER_PROJECTS, "List and show objects of other projects."),
            (
                END_OTHERS,
                END_OTHER_PROJECTS,
                "Cancel work, remove designs, and purge ended objects of other projects, or of all projects.",
            ),
        )
    ]
    raised = policy.DocumentedRuleDefault(
        name=RAISE,
        check_str=RAISED.check,
        scope_types=list(RAISED.scopes),
        description="Set a priority above 0 for a batch, so that it is planned before waiting batches of all projects.",
        operations=[{"method": one.method, "path": _documented(one)} for one in OPERATIONS if sets_priority(one)],
    )
    return [*base_rules(), *others, raised] + [
        policy.DocumentedRuleDefault(
            name=rule_name(one),
            check_str=one.persona.check,
            scope_types=list(one.persona.scopes),
            description=one.summary,
            operations=[{"method": one.method, "path": _documented(one)}],
        )
        for one in OPERATIONS
    ]


def make_enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return the enforcer of the default rules and of the policy files that `conf` names.

    Raises InvalidInput if a file is missing or invalid. oslo.policy would use other rules instead, with a log message
    at most.
    """
    enforcer = _enforcer(conf)
    for option, places in (
        ("policy_file", [conf.oslo_policy.policy_file]),
        ("policy_dirs", conf.oslo_policy.policy_dirs),
    ):
        chosen = conf.get_location(option, _GROUP)
        if chosen is not None and chosen.location.is_user_controlled:
            for place in places:
                if conf.find_file(place) is None:
                    raise InvalidInput(f"[{_GROUP}] {option}: {place} does not exist")
    misunderstood: list[str] = []
    try:
        with _heard(misunderstood):
            enforcer.load_rules()
        enforcer.check_rules(raise_on_violation=True)
    except _NO_RULES as error:
        raise InvalidInput(
            f"[{_GROUP}] policy_file: expected YAML that gives each name a rule: {' '.join(str(error).split())}"
        ) from None
    except policy.InvalidDefinitionError as error:
        raise InvalidInput(f"[{_GROUP}] policy_file: {error}") from None
    if misunderstood:
        raise InvalidInput(f"[{_GROUP}] policy_file: {misunderstood[0]}")
    unknown = [
        name for name in enforcer.file_rules if name.startswith(_PREFIX) and name not in enforcer.registered_rules
    ]
    if unknown:
        close = get_close_matches(unknown[0], enforcer.registered_rules, n=1)
        near = "".join(f"; did you mean {one}?" for one in close)
        raise InvalidInput(f"[{_GROUP}] policy_file: no operation has a rule {unknown[0]}{near}")
    return enforcer


def _enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


@contextmanager
def _heard(misunderstood: list[str]) -> Iterator[None]:
    """Collect errors that oslo.policy's parser logs: it raises nothing, and an invalid rule denies every request."""
    parser = logging.getLogger("oslo_policy._parser")

    def hear(record: logging.LogRecord) -> bool:
        misunderstood.append(record.getMessage())
        return False

    parser.addFilter(hear)
    try:
        yield
    finally:
        parser.removeFilter(hear)


def default_enforcer() -> policy.Enforcer:
    """Return the enforcer of the default rules, without policy files."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    return make_enforcer(conf)


def get_enforcer() -> policy.Enforcer:
    """Return the configured enforcer; the entry point for the tools of oslo.policy."""
    conf = cfg.ConfigOpts()
    places = [word for word in sys.argv[1:] if word.startswith(("--config-file=", "--config-dir="))]
    conf(places, project="fpga_pool")
    enforcer = _enforcer(conf)
    enforcer.load_rules()
    return enforcer


class Authorizer:
    """Authorizes requests by the rules of an enforcer. Thread-safe.

    Decisions about a caller are cached for `REMEMBERED_S`, as oslo.policy checks for changed files at every decision,
    which takes longer than the API's other work for a request.
    """

    def __init__(self, enforcer: policy.Enforcer) -> None:
        self._enforcer = enforcer
        #: By rule and all attributes of a caller that rules can use: the decision, and when it was made.
        self._decided: dict[tuple[object, ...], tuple[bool, float]] = {}

    def require(self, name: str, persona: Persona, caller: RequestContext) -> None:
        """Raise Forbidden unless a rule allows the caller an operation on objects of the caller's project."""
        if not self._allows(name, caller):
            scopes = " or ".join(persona.scopes)
            raise Forbidden(f"{name} is not allowed with your roles; the policy requires a token of {scopes} scope")

    def _allows(self, name: str, caller: RequestContext) -> bool:
        values = caller.to_policy_values().values()
        key = (name, *(tuple(value) if isinstance(value, list) else value for value in values))
        now_s = time.monotonic()
        allowed, decided_s = self._decided.get(key, (False, -math.inf))
        if now_s - decided_s > REMEMBERED_S:
            allowed = self._decide(name, caller)
            if len(self._decided) >= REMEMBERED:
                self._decided.clear()
            self._decided[key] = allowed, now_s
        return allowed

    def _decide(self, name: str, caller: RequestContext) -> bool:
        try:
            self._enforcer.load_rules()
        except _NO_RULES as error:
            # The file is read again when it changes.
            LOG.error("policy files are invalid, the previous rules stay in force: %s", " ".join(str(error).split()))  # noqa: TRY400
        target = {"project_id": caller.project_id, "user_id": caller.user_id}
        try:
            return bool(self._enforcer.authorize(name, target, caller))
        except policy.InvalidScope:
            return False
