"""Tokens of callers, as Keystone's own middleware checks them; imported where it is used, as it brings a client."""

import threading
from typing import Any
from wsgiref.types import WSGIApplication

from keystoneauth1.exceptions import ClientException, ConnectFailure, DiscoveryFailure, RequestTimeout
from keystonemiddleware import auth_token
from keystonemiddleware.auth_token._exceptions import InvalidToken, ServiceError
from keystonemiddleware.exceptions import ConfigurationError
from oslo_config import cfg

from fpga_pool.api.context import ENV_NO_KEYSTONE
from fpga_pool.conf.opts import check_values
from fpga_pool.model.exceptions import InvalidInput

_NO_ANSWER = (ConnectFailure, DiscoveryFailure, RequestTimeout, ServiceError)


def authenticated(application: WSGIApplication, conf: cfg.ConfigOpts) -> WSGIApplication:
    """Return an application to which Keystone's middleware says who calls; InvalidInput names a wrong option."""
    for group, options in auth_token.list_opts():
        conf.register_opts(options, group)
    # A service token without a service's role would extend the life of any expired token.
    conf.set_default("service_token_roles_required", True, "keystone_authtoken")
    # The decision is the application's: documents of versions are public, and an error has the form of all others.
    settings = {"oslo_config_config": conf, "delay_auth_decision": True}
    check_values(conf)
    try:
        checked: WSGIApplication = _Checked(application, settings)
    except TypeError as error:
        raise InvalidInput(f"[keystone_authtoken] auth_version: {error}") from None
    except ConfigurationError as error:
        raise InvalidInput(f"[keystone_authtoken]: {error}") from None
    except ClientException as error:  # of the plug-in that auth_type names
        raise InvalidInput(f"[keystone_authtoken] auth_type: {error}") from None
    return checked


class _Checked(auth_token.AuthProtocol):
    """The middleware; a token that Keystone was not there to check is not said to be invalid, as it does by itself."""

    def __init__(self, *arguments: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(*arguments)

    def process_request(self, request: Any) -> Any:
        self._of_thread.unanswered = False
        answer = super().process_request(request)
        if self._of_thread.unanswered:
            request.environ[ENV_NO_KEYSTONE] = True
        return answer

    def fetch_token(self, token: Any, **options: Any) -> Any:  # type: ignore[override]
        try:
            return super().fetch_token(token, **options)
        except InvalidToken as error:
            self._of_thread.unanswered |= isinstance(error.__context__, _NO_ANSWER)
            raise
