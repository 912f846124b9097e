import pytest

from fpga_pool.cli.admin.keys import create_key_pairs
from fpga_pool.conf.catalogue import present_directory, private_key, public_key, state_directory
from fpga_pool.model.exceptions import InvalidInput


@pytest.fixture
def keys(tmp_path):
    create_key_pairs(tmp_path / "keys")
    return tmp_path / "keys"


def test_a_pair_fits(keys):
    private = private_key("key", str(keys / "tokens.pem"))
    public_key("key", str(keys / "tokens.pub")).verify(private.sign(b"x"), b"x")


def test_a_private_key_that_others_can_read_is_refused(keys):
    (keys / "tokens.pem").chmod(0o640)
    with pytest.raises(
        InvalidInput, match=r"key: .* has mode 0640, so that other users can read the key; it must be 0600"
    ):
        private_key("key", str(keys / "tokens.pem"))


@pytest.mark.parametrize("read", [private_key, public_key])
def test_a_missing_key_names_the_command_that_makes_it(read, tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot be read: No such file .* `fpga-pool-manage keys create`"):
        read("key", str(tmp_path / "none"))


def test_what_is_no_key_is_refused(keys):
    with pytest.raises(InvalidInput, match="does not contain a public key"):
        public_key("key", str(keys / "tokens.pem"))
    (keys / "tokens.pub").chmod(0o600)
    with pytest.raises(InvalidInput, match="does not contain an unencrypted private key"):
        private_key("key", str(keys / "tokens.pub"))


def test_a_state_directory_is_made_for_its_owner_alone(tmp_path):
    made = state_directory("state_dir", str(tmp_path / "a" / "b"))
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"state_dir: cannot create directory .*: File exists"):
        state_directory("state_dir", str(tmp_path / "file"))


@pytest.mark.parametrize("path", ["", "state"])
def test_a_state_directory_does_not_depend_on_where_a_process_is_started(path):
    with pytest.raises(InvalidInput, match=f"^state_dir: expected an absolute path, found '{path}'$"):
        state_directory("state_dir", path)


def test_a_directory_that_somebody_else_should_have_filled_is_asked_for(tmp_path):
    with pytest.raises(InvalidInput, match=r"library: directory .* does not exist"):
        present_directory("library", str(tmp_path / "none"))
