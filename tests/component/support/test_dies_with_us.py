"""Programs that were started by this process do not outlive it."""

import subprocess
import sys

from support import environment

#: Starts a program in a child process that continues only after its parent has died.
OWNER = """
import os, subprocess, sys, time
from support.servers.process import dies_with_us

def late():
    print("forked", flush=True)
    while os.getppid() == owner:
        time.sleep(0.01)

owner = os.getpid()
subprocess.Popen(dies_with_us(["echo", "begun"]), preexec_fn=late)
"""


def test_a_program_whose_owner_died_first_does_not_begin():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], env=environment(), stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout.readline() == "forked\n"
        owner.kill()
        assert owner.communicate(timeout=200)[0] == ""
