"""Nova's API on a loopback port, with a database in memory.  A token consists of the caller's roles, with commas.

    python api_server.py PORT

Nova's own fixtures provide the database, the message bus and the policy.
"""

import os
import sys
from importlib.metadata import files
from wsgiref.simple_server import WSGIRequestHandler, make_server

# Use native threads, as Nova's services do; to be set before its tests are imported.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "yes"

from nova import monkey_patch

monkey_patch.patch()

# The validators import it, which asks for os.uname; Nova's test case refuses that from its start on.
import numpy  # noqa: E402, F401
from nova import test  # noqa: E402
from nova.tests import fixtures  # noqa: E402


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Api(test.TestCase):
    def setUp(self):
        (paste,) = (file for file in files("nova") if file.name == "api-paste.ini")
        self.flags(api_paste_config=str(paste.locate()), group="wsgi")
        super().setUp()
        policy = self.useFixture(fixtures.RealPolicyFixture())
        policy.set_rules({"os_compute_api:os-flavor-extra-specs:create": "role:specs_writer"}, overwrite=False)
        self.served = self.useFixture(fixtures.OSAPIFixture()).app()

    def serve(self):
        def application(environ, start_response):
            roles = environ.get("HTTP_X_AUTH_TOKEN", "")
            environ |= {"HTTP_X_AUTH_USER": "admin", "HTTP_X_AUTH_PROJECT_ID": "operators", "HTTP_X_ROLES": roles}
            return self.served(environ, start_response)

        with make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=Quiet) as server:
            print("ready", flush=True)
            server.serve_forever()


if __name__ == "__main__":
    Api("serve").debug()
