"""A process that calls a REST API at a given rate, whether or not the responses keep up.

    python rest_load.py ENDPOINT TOKEN,... SECONDS GETS_PER_S SUBMISSIONS_PER_S [REQUESTER]

The tokens, of one project, are used in turn; inputs come from REQUESTER, by default "requester-1".

Every call has a scheduled time, and a fixed number of threads make the calls.  The latency of a call counts from its
scheduled time on, so it includes waiting for a free thread.  GETs alternate between the first 20 jobs, the first 20
batches, the batch submitted last, all slots, and the catalogue.  A submission is a batch of one job that is held, so
that nothing runs.  Prints "ready" when each call was answered once, and starts when it reads a line; then prints, as
JSON, the response times by kind of call in seconds, and the status codes of failures.
"""

import http.client
import itertools
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from urllib.parse import urlsplit

THREADS, TIMEOUT_S = 24, 60.0
SUBMIT = "POST /v1/batches"
GETS = ("/v1/jobs?limit=20", "/v1/batches?limit=20", "/v1/batches/{}", "/v1/slots", "/v1/functions")


class Load:
    """The calls, and their results."""

    def __init__(self, endpoint, tokens, requester):
        self._address, self._local = urlsplit(endpoint).netloc, threading.local()
        self._tokens = itertools.cycle(tokens)
        job = {"function": "sha256", "requester": requester, "input_bytes": 1000}
        self._batch = json.dumps({"held": True, "jobs": [job]})
        self._lock = threading.Lock()
        self.last = ""
        self.seconds, self.errors = defaultdict(list), Counter()

    def call(self, kind, at_s):
        """Make a call that was scheduled for a time, and record how long it took from then on."""
        if kind == SUBMIT:
            answer = self._request("POST", "/v1/batches", self._batch)
            if answer is not None:
                self.last = json.loads(answer)["batch"]["uuid"]
        else:
            self._request("GET", kind.format(self.last))
        with self._lock:
            self.seconds[kind].append(time.monotonic() - at_s)

    def _request(self, method, path, body=None):
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
        try:
            headers = {"X-Auth-Token": next(self._tokens), "Content-Type": "application/json"}
            self._local.connection.request(method, path, body, headers)
            answer = self._local.connection.getresponse()
            said = answer.read()
        except OSError as error:
            self._local.connection.close()
            return self._failed(type(error).__name__)
        return said if answer.status < 300 else self._failed(f"{answer.status} {said[:200]!r}")

    def _failed(self, how):
        with self._lock:
            self.errors[how] += 1

    def run(self, calls):
        """Make all calls at their times, in seconds from now; return the time until all are answered."""
        due = iter(calls)
        began_s = time.monotonic()

        def work():
            while True:
                with self._lock:
                    at_s, kind = next(due, (None, ""))
                if at_s is None:
                    return
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                self.call(kind, began_s + at_s)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began_s


def main(endpoint, tokens, seconds, gets_per_s, submissions_per_s, requester="requester-1"):
    load = Load(endpoint, tokens.split(","), requester)
    seconds, gets_per_s, submissions_per_s = map(float, (seconds, gets_per_s, submissions_per_s))
    for kind in (SUBMIT, *GETS):
        load.call(kind, time.monotonic())
    if load.errors:
        sys.exit(f"before the load: {dict(load.errors)}")
    load.seconds.clear()
    calls = [(number / gets_per_s, GETS[number % len(GETS)]) for number in range(int(seconds * gets_per_s))]
    calls += [(number / submissions_per_s, SUBMIT) for number in range(int(seconds * submissions_per_s))]
    print("ready", flush=True)
    sys.stdin.readline()
    took_s = load.run(sorted(calls))
    print(json.dumps({"seconds": load.seconds, "errors": load.errors, "took_s": took_s}), flush=True)
    sys.stdin.readline()  # the CPU time of this process is still to be read


if __name__ == "__main__":
    main(*sys.argv[1:])
