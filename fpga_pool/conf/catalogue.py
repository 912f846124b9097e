"""Read the catalogue from its file."""

import sys
import tomllib
from pathlib import Path

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidCatalogue


def load_catalogue(path: Path) -> Catalogue:
    """Return the catalogue in the TOML file at `path`; InvalidCatalogue names the file, and the line or key."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidCatalogue(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidCatalogue(f"{path}: line {line}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidCatalogue(f"{path}: {error}") from error
    return Catalogue.from_mapping(data, str(path))


def installed_catalogue() -> Path:
    """Return the operator's catalogue in /etc, else the one that came with fpga_pool."""
    places = [
        Path("/etc/fpga_pool/catalogue.toml"),
        Path(sys.prefix) / "etc" / "fpga_pool" / "catalogue.toml",
        Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml",  # a source tree
    ]
    for place in places:
        if place.is_file():
            return place
    raise InvalidCatalogue(f"no catalogue found; looked for {', '.join(map(str, places))}")
