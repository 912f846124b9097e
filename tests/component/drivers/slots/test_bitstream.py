from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.drivers.slots.bitstream import Bitstream, BitstreamLibrary, Manifest, build, verify
from fpga_pool.model.exceptions import BitstreamRefused, NotFound


@pytest.fixture
def sha256(build):
    return build("sha256")


@pytest.fixture
def check(catalogue, signing_key):
    """Return a function that verifies a bitstream, by default for sha256 in a small region of the fast board."""

    def _check(bitstream, board="fast", kind="small", function="sha256"):
        verify(bitstream, signing_key.public_key(), board, kind, catalogue.function(function))

    return _check


def test_a_bitstream_is_accepted_where_it_belongs(sha256, check):
    check(sha256)
    assert len(sha256.payload) == 4000


def test_building_twice_gives_the_same(catalogue, signing_key, sha256):
    assert build(catalogue.board("fast"), "small", catalogue.function("sha256"), signing_key) == sha256


def test_encoding_and_decoding_keep_it(sha256):
    assert Bitstream.decode(sha256.encode()) == sha256


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"board": "other"}, "board is 'fast', expected 'other'"),
        ({"kind": "large"}, "region_kind is 'small', expected 'large'"),
        ({"function": "aes"}, "function is 'sha256', expected 'aes'"),
    ],
)
def test_refused_where_it_does_not_belong(sha256, check, where, message):
    with pytest.raises(BitstreamRefused, match=message):
        check(sha256, **where)


def test_another_version_is_refused(catalogue, signing_key, check):
    newer = replace(catalogue.function("sha256"), version="2.0")
    with pytest.raises(BitstreamRefused, match=r"function_version is '2\.0', expected '1\.0'"):
        check(build(catalogue.board("fast"), "small", newer, signing_key))


def test_unsigned_is_refused(sha256, check):
    with pytest.raises(BitstreamRefused, match="unsigned"):
        check(replace(sha256, signature=b""))


def test_a_signature_of_another_key_is_refused(catalogue, check):
    other = build(catalogue.board("fast"), "small", catalogue.function("sha256"), Ed25519PrivateKey.generate())
    with pytest.raises(BitstreamRefused, match="signature"):
        check(other)


def test_an_altered_manifest_is_refused(sha256, check):
    with pytest.raises(BitstreamRefused, match="signature"):
        check(replace(sha256, manifest=replace(sha256.manifest, board="other")), board="other")


@pytest.mark.parametrize("position", [0, 1999, 3999])
def test_one_altered_byte_of_the_payload_is_refused(sha256, check, position):
    payload = bytearray(sha256.payload)
    payload[position] ^= 1
    with pytest.raises(BitstreamRefused, match="sha256 is"):
        check(replace(sha256, payload=bytes(payload)))


def test_a_shortened_payload_is_refused(sha256, check):
    with pytest.raises(BitstreamRefused, match="size_bytes is 4000, expected 3999"):
        check(replace(sha256, payload=sha256.payload[:-1]))


@pytest.mark.parametrize("position", range(0, 400, 7))
def test_a_file_altered_anywhere_in_its_head_is_refused(sha256, check, position):
    content = bytearray(sha256.encode())
    content[position] ^= 0x15
    with pytest.raises(BitstreamRefused):
        check(Bitstream.decode(bytes(content)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lines are missing"),
        (b"x" * 10_000 + b"\n\n", "lines are missing"),
        (b"{}\n\n", "expected the keys format_version, board"),
        (b"no json\n\n", "not JSON"),
        (b"[]\n\n", "expected the keys"),
        (b"{}\nxyz\n", "not hexadecimal"),
    ],
)
def test_what_is_no_bitstream_is_refused(content, message):
    with pytest.raises(BitstreamRefused, match=message):
        Bitstream.decode(content)


def test_a_manifest_with_a_wrong_type_is_refused(sha256):
    with pytest.raises(BitstreamRefused, match="size_bytes is of the wrong type"):
        Manifest.parse(sha256.manifest.canonical().replace(b"4000", b"true"))


def test_library_returns_what_was_stored(tmp_path, sha256):
    library = BitstreamLibrary(tmp_path)
    with pytest.raises(NotFound, match="no bitstream of sha256 for small regions of fast"):
        library.read("sha256", "fast", "small")
    library.write(sha256)
    assert library.read("sha256", "fast", "small") == sha256


def test_library_leaves_nothing_but_bitstreams(tmp_path, sha256):
    library = BitstreamLibrary(tmp_path)
    library.write(sha256)
    library.write(sha256)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["sha256.bit"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b"])
def test_library_never_leaves_its_directory(tmp_path, name):
    with pytest.raises(NotFound, match="is not a valid name"):
        BitstreamLibrary(tmp_path).read(name, "fast", "small")


def test_library_is_stocked_with_all_that_fits_and_only_once(tmp_path, catalogue, signing_key):
    library, board = BitstreamLibrary(tmp_path), catalogue.board("fast")
    library.fill(catalogue, board, signing_key)
    files = {path.relative_to(tmp_path).as_posix(): path.stat().st_mtime_ns for path in tmp_path.rglob("*.bit")}
    both = {f"fast/{kind}/{name}.bit" for kind in ("small", "large") for name in ("aes", "sha256", "wordcount")}
    assert set(files) == both | {"fast/large/optical_flow.bit"}
    library.fill(catalogue, board, signing_key)
    assert all((tmp_path / name).stat().st_mtime_ns == changed for name, changed in files.items())


def test_library_is_restocked_under_a_new_key(tmp_path, catalogue, signing_key, check):
    library, board = BitstreamLibrary(tmp_path), catalogue.board("fast")
    library.fill(catalogue, board, Ed25519PrivateKey.generate())
    library.fill(catalogue, board, signing_key)
    check(library.read("sha256", "fast", "small"))
