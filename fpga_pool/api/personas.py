"""Who may do what: the rules that the operations of the table refer to.

The roles are Keystone's own (reader, member, manager, admin, service), each of which implies those before it in
Keystone's default set-up.  A policy file overrides the rule of any operation.
"""

from dataclasses import dataclass

from oslo_policy import policy

PROJECT, SYSTEM = "project", "system"

#: By name: check and description.
BASE_RULES = {
    "admin": ("role:admin", "Operator of the cloud."),
    "service": ("role:service", "Service user of another OpenStack service."),
    "system_reader": ("role:reader and system_scope:all", "Auditor of the whole cloud."),
    "project_reader": ("role:reader and project_id:%(project_id)s", "Reads the objects of the own project."),
    "project_member": ("role:member and project_id:%(project_id)s", "Uses the pool for the own project."),
    "project_manager": ("role:manager and project_id:%(project_id)s", "Manages the own project."),
}


@dataclass(frozen=True, slots=True)
class Persona:
    """The rule of operations, and the scopes of tokens with which they can be requested."""

    check: str
    scopes: tuple[str, ...]


#: Objects of projects: others than the caller's are not found, whatever the role.
READER = Persona("rule:project_reader", (PROJECT,))
MEMBER = Persona("rule:project_member or rule:project_manager", (PROJECT,))
#: Batches that are planned before those of others.
RAISED = Persona("rule:project_manager or rule:admin", (PROJECT,))
#: What every tenant needs of the pool: functions, and addresses of hosts.
CATALOGUE = Persona("rule:project_reader or rule:system_reader or rule:service or rule:admin", (PROJECT, SYSTEM))
#: What shows work of all projects.
INSPECTOR = Persona("rule:admin or rule:service or rule:system_reader", (PROJECT, SYSTEM))
#: Designs, which operators decide on and auditors look at.
DESIGNS = Persona("rule:project_reader or rule:system_reader or rule:admin", (PROJECT, SYSTEM))
#: What is done to other projects' objects, with their id or `ALL` as the parameter project_id: see them, end them,
#: purge what has ended.
#: A token of system scope has no project: all that its operations allow it is of others.
OTHER_PROJECTS = Persona("rule:admin or rule:system_reader", (PROJECT, SYSTEM))
END_OTHER_PROJECTS = Persona("rule:admin", (PROJECT, SYSTEM))
ALL = "all"
OPERATOR = Persona("rule:admin", (PROJECT, SYSTEM))


def base_rules() -> list[policy.RuleDefault]:
    """Return the rules that others are made of."""
    return [policy.RuleDefault(name, check, text) for name, (check, text) in BASE_RULES.items()]
