"""Settings of Horizon beside a cloud: the default ones, with our files added to those in `local/enabled`."""

import os
from pathlib import Path

from openstack_dashboard.local import enabled

from fpga_pool import horizon_plugin

enabled.__path__.append(str(Path(horizon_plugin.__file__).parent / "enabled"))

from openstack_dashboard.settings import *  # noqa: E402, F403

DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1"]
OPENSTACK_KEYSTONE_URL = os.environ["OS_AUTH_URL"]
COMPRESS_OFFLINE = "HORIZON_COMPRESSED" in os.environ
STATIC_ROOT = os.environ["HORIZON_STATIC_ROOT"]
#: In a small cache, compiled style sheets would displace the session.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 100_000}}}
