"""Every installed policy implements the protocols of `core/policy.py`; no code detects its abilities by other means."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core import policy as declared

PACKAGE = Path(declared.__file__).parents[1]


def is_declared(thing):
    protocol = inspect.isclass(thing) and vars(thing).get("_is_protocol", False)
    return protocol and thing.__module__ == declared.__name__


#: The protocols of `core/policy.py` by name, and the members that each declares.
PROTOCOLS = {name: thing for name, thing in vars(declared).items() if is_declared(thing)}
MEMBERS = {
    name: {each for each in {**vars(protocol), **protocol.__annotations__} if not each.startswith("_")}
    for name, protocol in PROTOCOLS.items()
}
ABILITIES = {
    "Adaptive", "Following", "Learning", "Parametrised", "PlanningAround", "Preparing", "Profiling", "Proving",
    "Remembering", "Replanning", "Searching", "Sparing", "Trained",
}  # fmt: skip

INSTALLED = [(group, name) for group in declared.GROUPS for name in policy_names(group)]


def differences(policy, protocol):
    """Return the methods of a protocol that the policy defines with other parameters."""

    def parameters(method):
        return list(inspect.signature(method).parameters)

    methods = {name: method for name, method in vars(protocol).items() if name in MEMBERS[protocol.__name__]}
    return [
        name
        for name, method in methods.items()
        if inspect.isfunction(method) and parameters(getattr(type(policy), name)) != parameters(method)
    ]


def probes(source):
    """Return the lines where code reads an attribute of a policy by its name as text."""
    members = set().union(*MEMBERS.values()) - MEMBERS["Policy"]
    found = []
    for node in ast.walk(ast.parse(source)) if re.search("(has|get)attr", source) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            thing, name = node.args[:2]
            literal = name.value if isinstance(name, ast.Constant) else ""
            if literal in members or "policy" in ast.unparse(thing).lower():
                found.append(node.lineno)
    return found


def test_reads_the_protocols_that_there_are():
    assert ABILITIES | {"ClusterPolicy", "GangPolicy", "Policy"} == set(PROTOCOLS)
    assert MEMBERS["Preparing"] == {"prepare"}
    assert MEMBERS["Parametrised"] == {"Params"}


@pytest.mark.parametrize(("group", "name"), INSTALLED)
def test_policy_is_one_of_its_family_under_its_own_name(group, name):
    policy = load_policy(group, name)
    families = {"cluster": declared.ClusterPolicy, "gang": declared.GangPolicy}
    assert isinstance(policy, families.get(group, declared.Policy))
    assert policy.name == name
    assert differences(policy, declared.Policy) == []


@pytest.mark.parametrize(("group", "name"), INSTALLED)
def test_policy_has_an_ability_whole_and_as_declared_or_not_at_all(group, name):
    policy = load_policy(group, name)
    for ability in ABILITIES:
        if any(hasattr(policy, member) for member in MEMBERS[ability]):
            assert isinstance(policy, PROTOCOLS[ability]), ability
            assert differences(policy, PROTOCOLS[ability]) == [], ability


@pytest.mark.parametrize(("group", "name"), INSTALLED)
def test_policy_has_nothing_that_is_not_declared(group, name):
    policy = load_policy(group, name)
    public = {each for each in dir(policy) if not each.startswith("_")}
    ours = {"place"} if group == "task" else set()  # of `ListPolicy`, to plan without bounds
    assert public - ours <= set().union(*MEMBERS.values())


def test_nobody_asks_a_policy_for_an_attribute_by_its_name_as_text():
    found = {str(path): lines for path in PACKAGE.rglob("*.py") if (lines := probes(path.read_text()))}
    assert not found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("if hasattr(policy, 'x'): pass", [1]),
        ("\nprepare = getattr(self._policy, 'prepare', None)", [2]),
        ("hasattr(planner, 'replan')", [1]),
        ("getattr(thing, name)", []),
        ("getattr(error, 'code', '')", []),
        ("isinstance(policy, Replanning)", []),
    ],
)
def test_finds_who_asks(source, lines):
    assert probes(source) == lines


def test_finds_a_method_with_other_parameters():
    class Mine:
        def replan(self, everything):
            return None

    assert differences(Mine(), declared.Replanning) == ["replan"]
