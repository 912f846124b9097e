"""Authorization: the policy rules of the operations.

The roles are those of Keystone (reader, member, manager, admin, service), each of which implies those before it in
Keystone's default set-up.  A policy file can override the rule of any operation.
"""

from dataclasses import dataclass

from oslo_policy import policy

PROJECT, SYSTEM = "project", "system"

#: Check and description of each rule, by name.
BASE_RULES = {
    "admin": ("role:admin", "Operator of the cloud."),
    "service": ("role:service", "Service user of another OpenStack service."),
    "system_reader": ("role:reader and system_scope:all", "Auditor of the whole cloud."),
    "project_reader": ("role:reader and project_id:%(project_id)s", "Reads the objects of its project."),
    "project_member": ("role:member and project_id:%(project_id)s", "Uses the pool for its project."),
    "project_manager": ("role:manager and project_id:%(project_id)s", "Manages its project."),
}


@dataclass(frozen=True, slots=True)
class Persona:
    """The rule of operations, and the token scopes that they accept."""

    check: str
    scopes: tuple[str, ...]


#: Operations on objects of projects. Objects of other projects than the caller's are not found, whatever the role.
READER = Persona("rule:project_reader", (PROJECT,))
MEMBER = Persona("rule:project_member or rule:project_manager", (PROJECT,))
#: Creation of batches that are planned before those of others.
RAISED = Persona("rule:project_manager or rule:admin", (PROJECT,))
#: Information about the pool that every tenant needs: functions, and addresses of hosts.
CATALOGUE = Persona("rule:project_reader or rule:system_reader or rule:service or rule:admin", (PROJECT, SYSTEM))
#: Operations that show work of all projects.
INSPECTOR = Persona("rule:admin or rule:service or rule:system_reader", (PROJECT, SYSTEM))
#: Operations on designs, which operators approve and auditors inspect.
DESIGNS = Persona("rule:project_reader or rule:system_reader or rule:admin", (PROJECT, SYSTEM))
#: Operations on objects of other projects, selected by an id or `ALL` in the parameter project_id: show them, end
#: them, purge ended ones.
#: A token of system scope has no project, so all its operations are on objects of other projects.
OTHER_PROJECTS = Persona("rule:admin or rule:system_reader", (PROJECT, SYSTEM))
END_OTHER_PROJECTS = Persona("rule:admin", (PROJECT, SYSTEM))
ALL = "all"
OPERATOR = Persona("rule:admin", (PROJECT, SYSTEM))


def base_rules() -> list[policy.RuleDefault]:
    """Return the base rules, to which the rules of operations refer."""
    return [policy.RuleDefault(name, check, text) for name, (check, text) in BASE_RULES.items()]
