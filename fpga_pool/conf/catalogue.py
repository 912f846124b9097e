"""[functions]: the catalogue, read from its file."""

import sys
import tomllib
from pathlib import Path

from oslo_config import cfg

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidCatalogue

GROUP = cfg.OptGroup("functions", title="Functions and boards")
OPTS = [
    cfg.StrOpt(
        "catalogue",
        help="Catalogue file, the same for schedulers and agents; unless set it is /etc/fpga_pool/catalogue.toml, or "
        "the one that came with fpga_pool.",
    ),
]


def configured_catalogue(conf: cfg.ConfigOpts) -> Catalogue:
    """Return the catalogue of this pool."""
    return load_catalogue(Path(conf.functions.catalogue) if conf.functions.catalogue else installed_catalogue())


_TOO_DEEP = "nested too deeply; a catalogue has tables of values in tables of functions and boards"


def load_catalogue(path: Path) -> Catalogue:
    """Return the catalogue in the TOML file at `path`; InvalidCatalogue names the file, and the line or key."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidCatalogue(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidCatalogue(f"{path}: line {line}: not UTF-8 text") from error
    except ValueError as error:  # also a whole number of thousands of digits
        raise InvalidCatalogue(f"{path}: {error}") from error
    except RecursionError:
        raise InvalidCatalogue(f"{path}: {_TOO_DEEP}") from None
    try:
        return Catalogue.from_mapping(data, str(path))
    except RecursionError:  # a value that is refused cannot even be shown
        raise InvalidCatalogue(f"{path}: {_TOO_DEEP}") from None


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
