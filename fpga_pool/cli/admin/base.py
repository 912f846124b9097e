"""Base of the operator's commands: configuration, errors in one line, and Nova's compute service."""

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from oslo_config import cfg

from fpga_pool.cli.command import CheckedCommand
from fpga_pool.conf.opts import wrong_values_named
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable

if TYPE_CHECKING:
    from fpga_pool.store import Store


class ManageCommand(CheckedCommand):
    """A command that works on the pool's own files and database."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration of the pool; raises InvalidInput if a name or value in it is wrong."""
        return cast("cfg.ConfigOpts", cast("Any", self.app).conf)

    @contextmanager
    def store(self, *, any_schema: bool = False) -> "Iterator[Store]":
        """Open the pool's database; ServiceUnavailable if its schema is of another version, unless `any_schema`."""
        from fpga_pool.store.options import open_store  # SQLAlchemy takes a second

        with wrong_values_named(self.conf):
            opened = open_store(self.conf)
        with closing(opened) as store:
            if not any_schema:
                store.check_schema()
            yield store

    def print_line(self, line: str) -> None:
        """Print a line for the user."""
        print(line, file=self.app.stdout)


#: The first microversion in which Nova runs the validators of extra specs.
MICROVERSION = "2.86"
#: Timeout of a request.
TIMEOUT_S = 60


def add_cloud_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects a cloud of clouds.yaml."""
    parser.add_argument(
        "--os-cloud",
        metavar="NAME",
        help="cloud in clouds.yaml (default: OS_CLOUD, or the OS_* variables of an openrc file)",
    )


@contextmanager
def compute_service(cloud: str | None) -> Iterator[Any]:
    """Yield openstacksdk's proxy for Nova; errors of Nova and Keystone are raised as exceptions of the pool."""
    # Imported here because it takes a second, for which other commands should not wait.
    import openstack
    from keystoneauth1 import exceptions as auth_errors
    from openstack import exceptions as errors

    try:
        with openstack.connect(
            cloud=cloud,
            # An openrc file may set OS_COMPUTE_API_VERSION to a microversion, for the openstack command.
            compute_api_version="2",
            compute_default_microversion=MICROVERSION,
            api_timeout=TIMEOUT_S,
            app_name="fpga-pool-manage",
        ) as connection:
            yield connection.compute
    except (errors.ConfigException, auth_errors.AuthPluginException) as error:
        raise InvalidInput(f"no cloud selected: {error}; set OS_CLOUD, or source an openrc file") from error
    except errors.ConflictException as error:
        raise Conflict(_said(error)) from error
    except errors.NotFoundException as error:
        raise NotFound(_said(error)) from error
    except errors.BadRequestException as error:
        raise InvalidInput(_said(error)) from error
    except (auth_errors.ConnectFailure, auth_errors.ConnectTimeout) as error:
        raise ServiceUnavailable(_said(error)) from error
    except (errors.SDKException, auth_errors.ClientException) as error:
        raise FpgaPoolError(_said(error)) from error


def _said(error: Any) -> str:
    """Return the service's error message, without the URL of the request."""
    return str(getattr(error, "details", None) or error)
