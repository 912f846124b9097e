"""`fpga-pool-manage bitstreams`: the library of partial bitstreams."""

import argparse
from pathlib import Path

from fpga_pool.cmd.manage_base import ManageCommand
from fpga_pool.conf.catalogue import configured_catalogue
from fpga_pool.conf.places import KEYS, private_key
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.exceptions import InvalidInput


class FillLibrary(ManageCommand):
    """Fill the library for simulated boards: for each function and region what is missing or not of this key."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--board",
            metavar="BOARD",
            action="append",
            help="board of the catalogue; may be repeated (default: [driver_simulated] board)",
        )
        parser.add_argument(
            "--key",
            metavar="FILE",
            default=str(KEYS / "bitstreams.pem"),
            help="private key that signs them (default: %(default)s)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Build and sign."""
        catalogue, root = configured_catalogue(self.conf), Path(self.conf.agent.bitstream_library)
        key = private_key("--key", parsed_args.key)
        library = BitstreamLibrary(root)
        for name in parsed_args.board or [self.conf.driver_simulated.board]:
            try:
                library.fill(catalogue, catalogue.board(name), key)
            except OSError as error:
                raise InvalidInput(f"[agent] bitstream_library: {error}") from error
            self.tell(f"{name}: {root / name}")
