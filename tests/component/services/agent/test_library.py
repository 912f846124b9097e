"""The report of an agent on its library: each bitstream of the catalogue is verified, or has a reason why not."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_messaging.rpc import ExpectedException

from fpga_pool.drivers.slots.bitstream import Bitstream, BitstreamLibrary, build
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.rpc.identity import key_text
from fpga_pool.services.agent import endpoint

BOARD = "fast"


@pytest.fixture
def shelf(catalogue, tmp_path):
    """Return a valid library, its key, and the endpoint that reports on it."""
    key, library = Ed25519PrivateKey.generate(), BitstreamLibrary(tmp_path)
    library.fill(catalogue, catalogue.board(BOARD), key)
    return library, key, endpoint.LibraryEndpoint(library, catalogue, key.public_key())


def looked(shelf):
    found = read(list[BitstreamInfo], shelf[2].bitstreams({}, board=BOARD))
    return {(one.function, one.kind): one for one in found}


def test_what_is_stocked_is_verified_with_its_digest_and_signer(shelf, catalogue):
    found = looked(shelf)
    assert set(found) == {(function.name, kind) for function, kind in catalogue.loadable(catalogue.board(BOARD))}
    for (function, kind), info in found.items():
        manifest = shelf[0].read(function, BOARD, kind).manifest
        assert (info.verified, info.reason, info.signer) == (True, "", key_text(shelf[1].public_key()))
        assert (info.size_bytes, info.sha256) == (manifest.size_bytes, manifest.sha256)


def test_what_cannot_be_loaded_says_why(shelf, catalogue, tmp_path):
    library, key, _ = shelf
    board, function = catalogue.board(BOARD), catalogue.function("sha256")
    sound = build(board, "small", function, key)
    stranger = Ed25519PrivateKey.generate()
    later = replace(function, version="9")
    wrongs = {
        "the signature does not match the manifest and the trusted key": build(board, "small", function, stranger),
        "is unsigned": Bitstream(sound.manifest, b"", sound.payload),
        "sha256 is": Bitstream(sound.manifest, sound.signature, sound.payload[:-1] + b"!"),
        "function_version is '9'": build(board, "small", later, key),
    }
    for why, wrong in wrongs.items():
        library.write(wrong)
        info = looked((library, key, endpoint.LibraryEndpoint(library, catalogue, key.public_key())))["sha256", "small"]
        assert (info.verified, why in info.reason) == (False, True), info
        assert bool(info.signer) is (why in ("sha256 is", "function_version is '9'"))
    (tmp_path / BOARD / "small" / "sha256.bit").unlink()
    gone = looked((library, key, endpoint.LibraryEndpoint(library, catalogue, key.public_key())))["sha256", "small"]
    assert (gone.verified, gone.size_bytes, gone.sha256) == (False, None, "")
    assert gone.reason.startswith("no bitstream of sha256 for small regions of fast")


def test_a_library_is_read_once_for_a_while(shelf, catalogue, monkeypatch, tmp_path):
    before = looked(shelf)
    (tmp_path / BOARD / "small" / "sha256.bit").unlink()
    assert looked(shelf) == before
    monkeypatch.setattr(endpoint, "REMEMBERED_S", -1.0)
    assert looked(shelf)["sha256", "small"].verified is False


def test_a_board_that_the_catalogue_does_not_have_is_not_found(shelf):
    with pytest.raises(ExpectedException) as raised:
        shelf[2].bitstreams({}, board="nothing")
    assert isinstance(raised.value.exc_info[1], NotFound)
