"""Entry points of WSGI servers."""

#: Exit status if an application cannot be created; after any other status gunicorn restarts the worker endlessly.
FAILED = 3
