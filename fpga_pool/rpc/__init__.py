"""L2: what the processes say to each other, over oslo.messaging; versioned, every call with a timeout.

No other room imports oslo.messaging, so that native threads are chosen here before it is loaded.
"""

from oslo_service import backend

# A process that has chosen already (nova-scheduler has) keeps its own; the default would be eventlet.
backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)
