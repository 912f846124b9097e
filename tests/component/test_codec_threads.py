"""Threads of a service read their first messages concurrently. A separate process is used, because it could crash."""

import subprocess
import sys

TIMEOUT_S = 240
SCRIPT = """
import sys, threading
import msgspec
from fpga_pool.model import codec

sys.setswitchinterval(1e-6)
THREADS, ROUNDS = 8, 40

def new_class(depth):
    inner = int if depth == 0 else new_class(depth - 1)
    return msgspec.defstruct(f"C{depth}", [(f"field_{i}", inner) for i in range(3)])

def value(depth):
    return {f"field_{i}": 7 if depth == 0 else value(depth - 1) for i in range(3)}

plain = value(3)
text = msgspec.json.encode(plain)
for turn in range(ROUNDS):
    cls, start, found = new_class(3), threading.Barrier(THREADS), []

    def first_message():
        start.wait(30)
        found.append(codec.from_body(cls, text) if turn % 2 else codec.read(cls, plain))

    threads = [threading.Thread(target=first_message) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [codec.to_plain(one) for one in found] == [plain] * THREADS
print("read")
"""


def test_classes_that_several_threads_read_for_the_first_time():
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "read"), done.stderr[-2000:]
