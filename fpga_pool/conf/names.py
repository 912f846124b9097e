"""Detection of unknown names in configuration files: a misspelled option would silently keep its default value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput


def files_of(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, dict[str, dict[str, list[str]]]]]:
    """Yield each file of `conf` with its groups, and the values of each name in a group."""
    for file in [
        *map(Path, conf.config_file),
        *(file for directory in conf.config_dir for file in sorted(Path(directory).glob("*.conf"))),
    ]:
        sections: dict[str, dict[str, list[str]]] = {}
        try:
            cfg.ConfigParser(str(file), sections).parse()
        except cfg.ParseError as error:
            raise InvalidInput(str(error)) from None
        yield file, sections


def unknown_among(conf: cfg.ConfigOpts, known: Mapping[str, Collection[str]]) -> list[str]:
    """Return the unknown names in the files of `conf`: in known groups, and groups with nearly the name of a known one.

    Other groups are ignored: they belong to libraries, which register their options when they need them.
    """
    found = []
    for file, sections in files_of(conf):
        for group, values in sections.items():
            if group.lower() in known:
                options = known[group.lower()]
                wrong = [name for name in values if name.replace("-", "_") not in options]
                found += [f"{file}: [{group}] {name}: no such option{_meant(name, options)}" for name in wrong]
            elif meant := _meant(group, known):
                found.append(f"{file}: [{group}]: no such group{meant}")
    return found


def _meant(name: str, known: Iterable[str]) -> str:
    return "".join(f"; did you mean {each}?" for each in get_close_matches(name, known, n=1, cutoff=0.85))
