"""A WSGI server that forks after loading the application, as uWSGI does; its processes share a socket.

`python -m support.prefork MODULE PORT PROCESSES`; SIGTERM ends the process that gets it, gracefully.
"""

import importlib
import os
import signal
import sys
from wsgiref.simple_server import make_server


def main(module: str, port: str, processes: str) -> None:
    """Serve the `application` of a module until all processes have ended."""
    server = make_server("127.0.0.1", int(port), importlib.import_module(module).application)
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            server.serve_forever()
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
