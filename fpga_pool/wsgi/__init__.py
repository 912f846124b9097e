"""Entry points of WSGI servers."""
