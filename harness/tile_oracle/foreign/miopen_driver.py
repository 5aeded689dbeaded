"""Reads command lines of MIOpenDriver: `MIOpenDriver convbfp16 -n 16 -c 256 ...`.

They may be in lists, scripts or logs. Names, meanings and defaults of the options are those of MIOpen's
driver. `-F` is a sum of directions (1 forward, 2 data gradient, 4 weight gradient); 0, the default, means all
three. Tensor layouts are not part of a problem and are ignored.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from tile_oracle.errors import ProblemError
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem

_DTYPES = {"conv": "fp32", "convfp16": "fp16", "convbfp16": "bf16"}

_DIMENSIONS: tuple[tuple[str, str, str, int], ...] = (
    ("N", "batchsize", "n", 100),
    ("C", "in_channels", "c", 3),
    ("K", "out_channels", "k", 32),
    ("G", "group_count", "g", 1),
    ("Di", "in_d", "!", 32),
    ("Hi", "in_h", "H", 32),
    ("Wi", "in_w", "W", 32),
    ("Z", "fil_d", "@", 3),
    ("Y", "fil_h", "y", 3),
    ("X", "fil_w", "x", 3),
    ("stride_d", "conv_stride_d", "#", 1),
    ("stride_h", "conv_stride_h", "u", 1),
    ("stride_w", "conv_stride_w", "v", 1),
    ("pad_d", "pad_d", "$", 0),
    ("pad_h", "pad_h", "p", 0),
    ("pad_w", "pad_w", "q", 0),
    ("dilation_d", "dilation_d", "^", 1),
    ("dilation_h", "dilation_h", "l", 1),
    ("dilation_w", "dilation_w", "j", 1),
)
"""Our field, the long option, the short option and the default."""

_MEANINGFUL: Mapping[str, tuple[str, type, Sequence[Any]]] = {
    "spatial_dim": ("_", int, (2, 3)),
    "forw": ("F", int, range(8)),
    "mode": ("m", str, ("conv",)),
    "pad_mode": ("z", str, ("default", "conv")),
}
"""Other options that are part of the problem: the short one, type and values that are read."""
_WITHOUT_MEANING = {
    "in_layout": "I", "out_layout": "O", "fil_layout": "f", "pad_val": "r", "iter": "i", "verify": "V",
    "verification_cache": "C", "time": "t", "wall": "w", "search": "s", "printconv": "P", "dump_output": "o",
    "in_data": "d", "weights": "e", "bias": "b", "trans_output_pad_d": "%", "trans_output_pad_h": "Y",
    "trans_output_pad_w": "X", "tensor_vect": "Z", "vector_length": "L", "in_bias": "a", "dout_data": "D",
    "solution": "S", "gpualloc": "G", "in_cast_type": "U", "out_cast_type": "T", "wei_cast_type": "R",
}  # fmt: skip
"""Options on how MIOpen runs, stores or checks, which are not part of the problem."""

_DRIVER = re.compile(r"(?:^|[\s/\\'\"])MIOpenDriver(?:\.exe)?['\"]?\s+(?P<rest>.*)")
_BARE = re.compile(r"\s*(?P<rest>conv[a-z0-9]*\s+-.*)")
_SHELL = re.compile(r"[12]?>|[|;&]")
"""What ends the driver's options."""
_HEADER = re.compile(r"\s*\w+\s*(?:,\s*\w*\s*)+")


def is_driver_list(head: str) -> bool:
    """Returns whether the first lines of a file are MIOpenDriver commands, not a table."""
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or _HEADER.fullmatch(lines[0]):
        return False
    return any(_command(line) is not None for line in lines)


def driver_entries(file: ListFile) -> Iterator[Entry]:
    """Yields the problems of every line, one per direction, with the line's position as the source, and lines
    without a convolution. Raises ProblemSetError."""
    for text in file.lines():
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        words = _words(file, text)
        if words is None:
            yield Entry(why="no MIOpenDriver command")
        elif not words or not words[0].startswith("conv"):
            yield Entry(why=f"no convolution but {_operation(words)}")
        else:
            try:
                problems = _problems(words)
            except ProblemError as error:
                raise file.error(str(error)[:300]) from None
            for problem in problems:
                yield Entry(problem, source=f"{file.path.name}:{file.line}")


# ---- a line -----------------------------------------------------------------------------------------


def _command(text: str) -> str | None:
    """Returns the arguments after the program's name; None if the line has no such command."""
    found = _DRIVER.search(text) or _BARE.match(text)
    return None if found is None else found["rest"]


def _words(file: ListFile, text: str) -> list[str] | None:
    command = _command(text)
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as error:
        raise file.error(f"not a command line: {error}; write one command a line") from None


def _operation(words: list[str]) -> str:
    word = words[0] if words else "none named"
    return word if word.isalnum() and len(word) < 30 else quoted(word)


class _Options(argparse.ArgumentParser):
    """The options of MIOpenDriver's conv, all of which have a value."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        for _, long, short, _ in _DIMENSIONS:
            self.add_argument(f"-{short}", f"--{long}", type=int, action=_Once)
        for long, (short, kind, values) in _MEANINGFUL.items():
            self.add_argument(f"-{short}", f"--{long}", type=kind, choices=values, action=_Once)
        for long, short in _WITHOUT_MEANING.items():
            self.add_argument(f"-{short}", f"--{long}")

    def error(self, message: str) -> NoReturn:
        """Raises ProblemError."""
        raise ProblemError(f"{message} (options are those of MIOpenDriver's conv)")


class _Once(argparse.Action):
    """Refuses another value of an option that is given already."""

    def __call__(
        self, parser: object, given: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        if getattr(given, self.dest) not in (None, value):
            raise argparse.ArgumentError(self, f"is given twice, as {getattr(given, self.dest)} and {value}")
        setattr(given, self.dest, value)


_OPTIONS = _Options()


def _problems(words: list[str]) -> list[GroupedConvProblem]:
    program, *options = takewhile(lambda word: not _SHELL.match(word), words)
    dtype = _DTYPES.get(program)
    if dtype is None:
        raise ProblemError(f"{quoted(program)} is not one of {', '.join(_DTYPES)}")
    given = {name: value for name, value in vars(_OPTIONS.parse_args(options)).items() if value is not None}
    ndim = given.get("spatial_dim", 2)
    values = {
        field: given.get(long, default)
        for field, long, _, default in _DIMENSIONS
        if ndim == 3 or (not field.endswith("_d") and field not in ("Di", "Z"))
    }
    values["G"] = max(values["G"], 1)
    forw = given.get("forw", 0)
    return [
        GroupedConvProblem(direction=direction, dtype=dtype, ndim=ndim, **values)
        for bit, direction in enumerate(DIRECTIONS)
        if forw == 0 or forw >> bit & 1
    ]
