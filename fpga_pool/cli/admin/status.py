"""`fpga-pool-status upgrade check`: check whether the services of this version can start, before starting them.

Exit status: 0 all checks pass, 1 a warning, 2 a failure, 255 an unexpected error.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from fpga_pool.api.policies import make_enforcer
from fpga_pool.api.tokens import checked, middleware_options
from fpga_pool.cli.command import one_line
from fpga_pool.cli.roles import DESCRIPTIONS
from fpga_pool.conf.catalogue import configured_catalogue, private_key
from fpga_pool.conf.opts import check_options, check_values, register_opts, unknown_names, wrong_values_named
from fpga_pool.conf.services import NOAUTH
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.placement.client import open_placement
from fpga_pool.rpc.transport import MessagingError, transport
from fpga_pool.rpc.urls import brokers, messaging_options
from fpga_pool.services.agent.journal import check_journal
from fpga_pool.store.options import open_store

PROGRAM = "fpga-pool-status"


class Checks(upgradecheck.UpgradeCommands):
    """The checks of a configuration, in the order in which a service needs the parts that they check."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        checks: Sequence[tuple[str, Callable[[], Result]]] = (
            ("Values of options", self._options),
            ("Names of options", self._names),
            ("Message bus", self._bus),
            ("Keystone", self._keystone),
            ("Private keys", self._keys),
            ("Catalogue of functions", self._catalogue),
            ("Policy file of the API", self._policy_file),
            ("Schema of the database", self._schema),
            ("Journal of the agent", self._journal),
            ("Placement", self._placement),
        )
        self._upgrade_checks = tuple((name, _failing(check)) for name, check in checks)

    def _options(self) -> Result:
        check_values(self.conf)
        return Result(Code.SUCCESS)

    def _names(self) -> Result:
        unknown = unknown_names(self.conf)
        return Result(Code.FAILURE, "\n".join(unknown)) if unknown else Result(Code.SUCCESS)

    def _bus(self) -> Result:
        """Check all options of oslo.messaging, whose errors a service would find one by one; nothing is sent."""
        transport(self.conf)
        for group, options in messaging_options():
            check_options(self.conf, group, options)
        return Result(Code.SUCCESS, ", ".join(brokers(self.conf)))

    def _keystone(self) -> Result:
        """Check all options of keystonemiddleware, and those of the plug-in that they name; nothing is sent."""
        if self.conf.api.auth_strategy == NOAUTH:
            return Result(Code.SUCCESS, f"not used: [api] auth_strategy is {NOAUTH}")
        for group, options in middleware_options():
            check_options(self.conf, group, options)
        checked(lambda _environ, _start: [], self.conf)
        if self.conf.keystone_authtoken.auth_type is None:
            return Result(Code.WARNING, "[keystone_authtoken] auth_type is not set; needed where the API runs")
        return Result(Code.SUCCESS)

    def _keys(self) -> Result:
        """Read the keys of the services that run on this machine."""
        keys = {"[scheduler] token_key": self.conf.scheduler.token_key, "[api] key": self.conf.api.key}
        absent = [f"{option} ({path})" for option, path in keys.items() if not Path(path).exists()]
        for option, path in keys.items():
            if Path(path).exists():
                private_key(option, path)
        if absent:
            return Result(Code.WARNING, f"absent: {', '.join(absent)}; needed where the service concerned runs")
        return Result(Code.SUCCESS)

    def _catalogue(self) -> Result:
        return Result(Code.SUCCESS, f"{len(configured_catalogue(self.conf).functions)} functions")

    def _policy_file(self) -> Result:
        make_enforcer(self.conf)
        return Result(Code.SUCCESS)

    def _schema(self) -> Result:
        with closing(open_store(self.conf)) as store:
            store.check_schema()
        return Result(Code.SUCCESS)

    def _journal(self) -> Result:
        path = Path(self.conf.agent.state_dir) / "journal.sqlite"
        if not path.exists():
            return Result(Code.SUCCESS, f"none on this machine: {path}")
        check_journal(path)
        return Result(Code.SUCCESS)

    def _placement(self) -> Result:
        placement = open_placement(self.conf)
        if placement is None:
            return Result(Code.SUCCESS, "not used: [placement] auth_type is not set")
        placement.named("fpga_pool")  # any request will do
        return Result(Code.SUCCESS)


#: Exit status if no check was made; oslo.upgradecheck uses it for unexpected errors.
_NOT_CHECKED = 255


def _failing(examine: Callable[[], Result]) -> Callable[[Checks], Result]:
    """Return a check that fails if `examine` raises an error of the pool or of its configuration."""

    def check(checks: Checks) -> Result:
        try:
            with wrong_values_named(checks.conf):
                return examine()
        except (FpgaPoolError, MessagingError, cfg.Error, OSError) as error:
            return Result(Code.FAILURE, one_line(error))

    return check


class _Described(cfg.ConfigOpts):
    """A configuration that adds the program's description to `--help`; upgradecheck parses the command line with it."""

    def __call__(self, **options: Any) -> None:  # type: ignore[override]
        super().__call__(prog=PROGRAM, description=DESCRIPTIONS[PROGRAM], **options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-status`."""
    conf = _Described()
    register_opts(conf)
    try:
        return int(upgradecheck.main(conf, "fpga_pool", Checks(conf), list(sys.argv[1:] if argv is None else argv)))
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        print(f"{PROGRAM}: {one_line(error)}", file=sys.stderr)
        return _NOT_CHECKED


if __name__ == "__main__":
    sys.exit(main())
