"""Tokens of each persona, as Keystone's own middleware reads them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1 import fixture as tokens
from keystonemiddleware.fixture import AuthTokenFixture
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts

#: Roles of a token, with those that they imply in Keystone; of a project, unless the name begins with another scope.
PERSONAS = {
    "reader": ["reader"],
    "member": ["reader", "member"],
    "manager": ["reader", "member", "manager"],
    "admin": ["reader", "member", "manager", "admin"],
    "service": ["service"],
    "none": [],
    "system reader": ["reader"],
    "system manager": ["reader", "member", "manager"],
    "system admin": ["reader", "member", "manager", "admin"],
    "domain admin": ["reader", "member", "manager", "admin"],
}
#: For `parametrize`: three of them stand for all, unless everything is tested.
SOME_UNLESS_LONG = [
    pytest.param(name, marks=() if name in ("member", "admin", "system reader") else pytest.mark.long)
    for name in PERSONAS
]
PROJECT, OTHER_PROJECT = "a" * 32, "b" * 32


def token(roles: list[str], project: str = PROJECT, scope: str = "project") -> tokens.V3Token:
    """Return what Keystone says of a token; project ids are as Keystone makes them."""
    found = tokens.V3Token(user_id="u" * 32)
    if scope == "system":
        found.set_system_scope()
    elif scope == "domain":
        found.set_domain_scope(id="default", name="Default")
    else:
        found.set_project_scope(id=project)
    for role in roles:
        found.add_role(name=role)
    return found


@contextlib.contextmanager
def known_tokens() -> Iterator[None]:
    """Make Keystone's middleware know a token of each persona by its name, and `other`: one of another project."""
    fixture = AuthTokenFixture()
    fixture.setUp()
    for name, roles in PERSONAS.items():
        fixture.add_token(token(roles, scope=name.partition(" ")[0]), token_id=name)
    fixture.add_token(token(PERSONAS["admin"], OTHER_PROJECT), token_id="other")
    try:
        yield
    finally:
        fixture.cleanUp()


def keystone_configuration(directory: Path) -> cfg.ConfigOpts:
    """Return the configuration of an API whose callers have tokens of a Keystone that it does not have to reach."""
    path = directory / "api.conf"
    path.write_text("[keystone_authtoken]\nwww_authenticate_uri = http://keystone.test\nauth_type = none\n")
    conf = cfg.ConfigOpts()
    register_opts(conf, policies=False)
    conf([f"--config-file={path}"], project="fpga_pool")
    return conf
