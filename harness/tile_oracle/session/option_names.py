"""How the plugin's options are spelt: `--tile-oracle-NAME` always works, `--NAME` where nobody else has it.

Only `--tile-oracle-NAME` is registered, and only in sessions: so no option of another plugin or of a conftest
collides with one of ours. What is given as `--NAME` is respelt before pytest reads it. Defaults come from
`[tool.tile-oracle]` in the project's pyproject.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.session.options import OPTIONS
from tile_oracle.session.pytest_private import (
    look_for_conftests_by,
    registered_names,
    say_with_usage_errors,
)
from tile_oracle.terminal.did_you_mean import did_you_mean, most_like

PREFIX = "--tile-oracle-"
OPENING = tuple(name for name, option in OPTIONS.items() if option.opens)
"""The options that make a pytest run a session."""
_OPENING = frozenset(PREFIX + name for name in OPENING)
_SPELT_OPENING = _OPENING | {f"--{name}" for name in OPENING}
_HELP = frozenset(("-h", "--help"))
_GROUP = (
    "tile-oracle: does the model that picks a kernel pick well? (pytest --problem-set forward_smoke). The "
    "options belong to sessions, with --problem-set or --oracle. Each can be spelt --tile-oracle-NAME, where "
    "another plugin has the short name"
)


class _Respelt(str):
    """An argument that was given in short."""

    __slots__ = ()

    @property
    def given(self) -> str:
        return f"--{self.removeprefix(PREFIX)}"


def is_session(config: pytest.Config) -> bool:
    """Returns whether this pytest run measures or replays problems."""
    return any(getattr(config.option, _dest(name), None) is not None for name in OPENING)


class OptionNames:
    """The options of one pytest run: `open` before the conftests are loaded, `close` after them."""

    def __init__(self, config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
        """args: all arguments, also of PYTEST_ADDOPTS and of the configuration file; changed in place."""
        self._config, self._parser, self._args = config, parser, args
        self._shows_help = not _HELP.isdisjoint(args)
        self._asked = asked_names(list(map(str, config.invocation_params.args)))  # of the command line itself

    def open(self) -> None:
        """Respells what is given in short and registers what the run needs. Raises UsageError."""
        if self._shows_help:
            if self._asked & _SPELT_OPENING and not self._asked & _HELP:
                raise pytest.UsageError("--help in PYTEST_ADDOPTS or a configuration file: no session begins")
            return
        expanded = list(_with_files(self._args))
        taken = registered_names(self._parser)
        register_options(self._parser, {name: (PREFIX + name,) for name in OPENING})
        self._args[:] = in_full(expanded, [name for name in OPENING if f"--{name}" not in taken])
        if self.opens:
            rest = [name for name in OPTIONS if name not in OPENING]
            register_options(self._parser, {name: (PREFIX + name,) for name in rest})
            free = [name for name in rest if f"--{name}" not in taken]
            try:
                defaults = default_arguments(self._config.rootpath)
            except HarnessError as error:
                raise pytest.UsageError(str(error)) from None
            self._args[:] = [*(PREFIX + one[2:] for one in defaults), *in_full(self._args, free)]
            found = look_for_conftests_by(self._config, self._parser, self._args)
            if report := found.tile_oracle_report_json:
                _forget_outcome(self._config.invocation_params.dir / Path(report).expanduser())

    def close(self) -> None:
        """Leaves to conftests and other plugins what is theirs. Raises UsageError for an option that is given
        in short and may be meant for either."""
        taken = {name for name in registered_names(self._parser) if not name.startswith(PREFIX)}
        if self._shows_help:
            names = {name: (f"--{name}" if f"--{name}" not in taken else PREFIX + name,) for name in OPTIONS}
            register_options(self._parser, names)
            return
        for place, arg in enumerate(self._args):
            if isinstance(arg, _Respelt) and _name(arg.given) in taken:
                self._args[place] = arg.given
        self._hint(taken)
        if not self.opens:
            return
        given = {_name(arg) for arg in self._args}
        for name in OPTIONS:
            if f"--{name}" in taken & self._asked and PREFIX + name not in given:
                raise pytest.UsageError(
                    f"--{name} is also an option of another plugin or conftest: {PREFIX}{name} is "
                    f"tile-oracle's; give that one, too, to use --{name} for the other"
                )

    @property
    def opens(self) -> bool:
        """Whether the arguments ask for a session."""
        return any(_name(arg) in _OPENING for arg in self._args)

    def _hint(self, taken: Collection[str]) -> None:
        """What pytest prints below a message about arguments that it does not know."""
        known = [f"{start}{name}" for name in OPTIONS for start in ("--", PREFIX)]
        given = [name for name in map(_name, self._args) if name.startswith("--") and name not in taken]
        misspelt = (most_like(name, known, cutoff=0.8) for name in given if name not in known)
        if meant := " ".join(name for name in misspelt if name is not None):
            say_with_usage_errors(self._config, "did you mean", meant)
        lost = " ".join(name for name in given if name in known)
        if lost and not self.opens:
            said = f"{lost}: only in sessions, with --problem-set or --oracle"
            say_with_usage_errors(self._config, "tile-oracle", said)


def _forget_outcome(path: Path) -> None:
    """Removes the outcome of an earlier session, which would stay where something ends the process itself.
    Raises UsageError for whatever else is there."""
    with suppress(OSError):  # it cannot be replaced either: the session's end says why
        written = path.read_bytes()[:99] if path.is_file() else b"else"
        if path.exists() and written and b'"exit_status"' not in written:
            raise pytest.UsageError(f"--report-json {path} exists and is no session's outcome: name another")
        path.unlink()


def register_options(parser: pytest.Parser, spelt: Mapping[str, tuple[str, ...]]) -> None:
    """Registers options in one group of `pytest --help`. spelt: name -> how it can be given."""
    group = parser.getgroup("tile-oracle", _GROUP)
    for name, spellings in spelt.items():
        group.addoption(*spellings, dest=_dest(name), **OPTIONS[name].attributes)


def register_all_now(parser: pytest.Parser) -> None:
    """Registers every option, for a plugin that a conftest loads: nothing can be respelt any more."""
    taken = registered_names(parser)
    for name in OPTIONS:
        spellings = (one for one in (f"--{name}", PREFIX + name) if one not in taken)
        register_options(parser, {name: tuple(spellings)})


def _dest(name: str) -> str:
    return f"tile_oracle_{name.replace('-', '_')}"


def _name(arg: str) -> str:
    return arg.partition("=")[0]


def asked_names(args: Sequence[str]) -> set[str]:
    """Returns the options among arguments, as they are spelt there."""
    return {_name(arg) for arg in _with_files(args)}


def _with_files(args: Sequence[str]) -> Iterator[str]:
    """Yields the arguments, with those that argparse would read from @FILE."""
    for arg in args:
        try:
            lines = Path(arg[1:]).read_text().splitlines() if arg.startswith("@") else None
        except (OSError, ValueError):
            lines = None  # pytest says why
        if lines is None:
            yield arg
        else:
            yield from _with_files(lines)


def in_full(args: Sequence[str], names: Collection[str] | None = None) -> list[str]:
    """Returns the arguments, those of our options (of `names` alone, if given) in the spelling that always
    works."""
    end = args.index("--") if "--" in args else len(args)
    ours = {f"--{name}" for name in (OPTIONS if names is None else names)}
    return [
        _Respelt(PREFIX + arg[2:]) if place < end and _name(arg) in ours else arg
        for place, arg in enumerate(args)
    ]


_TABLE = "tool.tile-oracle"


def default_arguments(folder: Path) -> list[str]:
    """Returns the table's entries as command-line arguments, in the table's order; [] without a table.

    folder: pytest's rootdir. Relative paths are relative to it. Raises HarnessError.
    """
    path = folder / "pyproject.toml"
    try:
        content = path.read_bytes()
        if b"tile-oracle" not in content:
            return []
        table = tomllib.loads(content.decode("utf-8")).get("tool", {}).get("tile-oracle", {})
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, AttributeError):
        return []  # pytest reads the same file and has the better message
    if not isinstance(table, dict):
        raise HarnessError(f"{path}: {_TABLE} must be a table of options")
    return [argument for key, value in table.items() for argument in _arguments(path, key, value)]


def _arguments(path: Path, key: str, value: object) -> list[str]:
    where = f"{path}: [{_TABLE}] {key[:100]}"
    if key not in OPTIONS:
        hint = did_you_mean(key, OPTIONS, "`pytest --help` lists the options of tile-oracle")
        raise HarnessError(f"{where} is no option: {hint}")
    option = OPTIONS[key]
    if option.opens:
        raise HarnessError(
            f"{where} cannot be a default, because every pytest run would be a session: give --{key} on the "
            "command line"
        )
    if option.is_flag:
        if not isinstance(value, bool):
            raise HarnessError(f"{where} must be true or false, not {str(value)[:100]!r}")
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    if not values or not all(
        isinstance(one, str | int | float) and not isinstance(one, bool) for one in values
    ):
        raise HarnessError(f"{where} must be a text, a number or a list of texts")
    text = ",".join(map(str, values))
    return [f"--{key}={path.parent / Path(text).expanduser() if option.is_path else text}"]
