"""A plug-in of pytest: Nova's own tests run with the filter and the weighers of the pool in Nova's default options."""

from nova import monkey_patch

monkey_patch.patch()  # as nova.tests.functional does, before anything else

from importlib.metadata import files  # noqa: E402

import nova.conf  # noqa: E402

# The validators import it, which asks for os.uname; Nova's test case refuses that from its start on.
import numpy  # noqa: E402, F401
from nova import test  # noqa: E402
from nova.tests.fixtures import conf as conf_fixture  # noqa: E402

CONF = nova.conf.CONF
#: Where the package has put it: not where Nova's fixtures look.
API_PASTE = next(str(file.locate()) for file in files("nova") or [] if file.match("etc/nova/api-paste.ini"))

_set_up, _clear_attributes = conf_fixture.ConfFixture.setUp, test.TestCase._clear_attrs


def set_up(self):
    _set_up(self)
    self.conf.set_default("api_paste_config", API_PASTE, group="wsgi")


def clear_attributes(self):
    # Nova deletes all attributes of a test, pytest then one that it has set itself.
    kept = self.__dict__.get(self._testMethodName)
    _clear_attributes(self)
    if kept is not None:
        self.__dict__[self._testMethodName] = kept


def pytest_configure(config):
    conf_fixture.ConfFixture.setUp = set_up
    test.TestCase._clear_attrs = clear_attributes
    options = CONF.filter_scheduler
    ours = {
        "available_filters": [*options.available_filters, "fpga_pool.nova_plugin.all_filters"],
        "enabled_filters": ["FpgaPoolSlotFilter", *options.enabled_filters],
        "weight_classes": [*options.weight_classes, "fpga_pool.nova_plugin.all_weighers"],
    }
    for name, value in ours.items():
        CONF.set_default(name, value, group="filter_scheduler")
