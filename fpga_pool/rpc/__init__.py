"""L2: RPC between the services over oslo.messaging; versioned, every call with a timeout.

No other package imports oslo.messaging, so that native threads are chosen here before it is loaded.
"""

import warnings

from oslo_service import backend

# A process that has already chosen a backend (such as nova-scheduler) keeps it; the default would be eventlet.
backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)

with warnings.catch_warnings():
    # It imports eventlet if that is installed, without using it, and eventlet would print warnings on the terminal.
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
    warnings.filterwarnings("ignore", message="eventletutils module is deprecated")
    import oslo_messaging  # noqa: F401
