"""An embedded pool in which SIGUSR1 turns signatures off and SIGUSR2 on again: `python unsigned.py ARGUMENTS`.

For measurements alone: what makes and verifies signatures is replaced in this process.  The product has no such switch.
"""

import signal
import sys

import jwt
import msgspec

from fpga_pool.cli.daemons import standalone
from fpga_pool.rpc import identity
from fpga_pool.transfer import tokens

are_on = [True]


def turn(number, _frame):
    are_on[0] = number == signal.SIGUSR2


def instead(original, other):
    """Return what calls one of them, as signatures are on or off."""
    return lambda *args, **named: (original if are_on[0] else other)(*args, **named)


def unsigned_context(signer, _topic, run, _method, _arguments):
    own = signer.identity
    envelope = identity._Envelope(
        role=own.role, name=own.name, client=signer._client, number=next(signer._numbers), run=run
    )
    return {**msgspec.to_builtins(envelope), "signature": ""}


def unsigned_token(claims, _key, algorithm, encode=jwt.encode):
    return encode(claims, None, algorithm="none")


def unverified_claims(token, _keys):
    return jwt.decode(token, options={**tokens._SIGNATURE_ONLY, "verify_signature": False})


def replace():
    identity.Signer.context = instead(identity.Signer.context, unsigned_context)
    identity.Gate._verify = instead(identity.Gate._verify, lambda *_: None)
    tokens._claims = instead(tokens._claims, unverified_claims)
    jwt.encode = instead(jwt.encode, unsigned_token)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, turn)


if __name__ == "__main__":
    replace()
    sys.exit(standalone.main())
