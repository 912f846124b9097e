"""An embedded pool in which a line on stdin turns signatures on ("signed") or off: `python unsigned.py ARGUMENTS`.

Only for measurements: the functions that create and verify signatures are replaced in this process, as the product has
no such switch.  It responds to each line with the CPU time in seconds spent so far in these functions and in their
replacements.
"""

import sys
import threading
import time
from collections import Counter

import msgspec

from fpga_pool.cli.daemons import standalone
from fpga_pool.rpc import identity
from fpga_pool.services.scheduler import service as scheduler
from fpga_pool.transfer import tokens

are_on = [True]
#: CPU time of each thread in seconds.
spent_s = Counter()


def obey():
    for line in sys.stdin:
        are_on[0] = line == "signed\n"
        print(sum(list(spent_s.values())), flush=True)


def instead(original, other):
    """Return a function that calls the original if signatures are on, else the other one, and adds its CPU time."""

    def timed(*args, **named):
        began_s = time.thread_time()
        try:
            return (original if are_on[0] else other)(*args, **named)
        finally:
            spent_s[threading.get_ident()] += time.thread_time() - began_s

    return timed


def unsigned_context(signer, _topic, run, _method, _arguments):
    own, (client, number) = signer.identity, signer.number()
    envelope = identity._Envelope(role=own.role, name=own.name, client=client, number=number, run=run)
    return {**msgspec.to_builtins(envelope), "signature": ""}


def unsigned_tokens(grants, _key):
    return [f"{tokens._text(msgspec.json.encode(grant))}.." for grant in grants]


def unverified(_verifier, token):
    return msgspec.json.decode(tokens._bytes(token.split(".")[0]), type=tokens.TransferGrant)


def replace():
    identity.Signer.context = instead(identity.Signer.context, unsigned_context)
    identity.Gate._verify = instead(identity.Gate._verify, lambda *_: None)
    tokens.Verifier._read = instead(tokens.Verifier._read, unverified)
    scheduler.sign = instead(tokens.sign, unsigned_tokens)
    threading.Thread(target=obey, daemon=True).start()


if __name__ == "__main__":
    replace()
    sys.exit(standalone.main())
