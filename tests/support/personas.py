"""Tokens of each persona, in the form that Keystone's middleware reads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1 import fixture as tokens
from keystonemiddleware.fixture import AuthTokenFixture
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts

#: Roles in a token, including implied ones.  The scope is a project, unless the name begins with another scope.
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
#: For `parametrize`: quick runs test only three personas; the others are marked long.
SOME_UNLESS_LONG = [
    pytest.param(name, marks=() if name in ("member", "admin", "system reader") else pytest.mark.long)
    for name in PERSONAS
]
PROJECT, OTHER_PROJECT = "a" * 32, "b" * 32


def token(roles: list[str], project: str = PROJECT, scope: str = "project") -> tokens.V3Token:
    """Return the content of a token; project ids have the form of Keystone's."""
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
    """Let Keystone's middleware accept a persona's name as its token, and `other` as one of another project."""
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
    """Return the configuration of an API with Keystone authentication that need not reach Keystone."""
    path = directory / "api.conf"
    path.write_text("[keystone_authtoken]\nwww_authenticate_uri = http://keystone.test\nauth_type = none\n")
    conf = cfg.ConfigOpts()
    register_opts(conf, policies=False)
    conf([f"--config-file={path}"], project="fpga_pool")
    return conf
