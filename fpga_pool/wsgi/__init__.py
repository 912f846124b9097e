"""Entry points of WSGI servers."""

#: Exit status where an application cannot be made: with any other one gunicorn starts the worker again for ever.
FAILED = 3
