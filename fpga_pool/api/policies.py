"""oslo.policy: a documented rule for each operation of the table, and their enforcement."""

import re
import sys

from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_policy import policy

from fpga_pool.api.operations import OPERATIONS, Operation
from fpga_pool.api.personas import base_rules
from fpga_pool.model.exceptions import Forbidden


def rule_name(operation: Operation) -> str:
    """Return the name of an operation in a policy file."""
    return f"fpga_pool:{operation.name}"


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules, as the generators of oslo.policy want them."""
    return base_rules() + [
        policy.DocumentedRuleDefault(
            name=rule_name(one),
            check_str=one.persona.check,
            scope_types=list(one.persona.scopes),
            description=one.summary,
            operations=[{"method": one.method, "path": re.sub(r"<(\w+)>", r"{\1}", one.path)}],
        )
        for one in OPERATIONS
    ]


def make_enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return the enforcer of the default rules and of the policy files that `conf` names."""
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    enforcer.load_rules()
    return enforcer


def default_enforcer() -> policy.Enforcer:
    """Return the enforcer of the default rules alone."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    return make_enforcer(conf)


def get_enforcer() -> policy.Enforcer:
    """Return the configured enforcer, as the tools of oslo.policy want it."""
    conf = cfg.ConfigOpts()
    places = [word for word in sys.argv[1:] if word.startswith(("--config-file=", "--config-dir="))]
    conf(places, project="fpga_pool")
    return make_enforcer(conf)


def authorize(enforcer: policy.Enforcer, operation: Operation, caller: RequestContext) -> None:
    """Raise Forbidden if the caller may not request an operation; its objects are those of the caller's project."""
    target = {"project_id": caller.project_id, "user_id": caller.user_id}
    name = rule_name(operation)
    try:
        allowed = enforcer.authorize(name, target, caller)
    except policy.InvalidScope:
        allowed = False
    if not allowed:
        scopes = " or ".join(operation.persona.scopes)
        raise Forbidden(f"{name} is not allowed with your roles; the policy requires a token of {scopes} scope")
