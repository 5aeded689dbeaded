"""MIOpen's find-db (`gfx90a68.HIP.fdb.txt`), with times of solvers, and perf-db (`*.db.txt`), without times.

    64-28-28-3x3-128-28-28-16-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F=ConvHipImplicitGemmFwd:0.031,0,miopenConv...

The key is in-channels, in-extents, filter, out-channels, out-extents, batch, padding, strides, dilations,
bias, layouts, data type and direction; of a gradient, "in" is the output's side. Times are milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.entry import Entry, entry_of, kernel_of
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.problem.dtype_words import dtype_named

_KEY = re.compile(
    r"(?P<in>\d+(?:-\d+){2,3})-(?P<filter>\d+(?:x\d+){1,2})-(?P<out>\d+(?:-\d+){2,3})-(?P<N>\d+)"
    r"-(?P<pad>\d+(?:x\d+)+)-(?P<stride>\d+(?:x\d+)+)-(?P<dilation>\d+(?:x\d+)+)-(?P<bias>\d+)"
    r"-(?P<layouts>N[A-Za-z]+(?:-[A-Za-z]+)*?)-(?P<dtype>[A-Z]+\d+\w*?)-(?P<direction>[FBW])(?:_g(?P<G>\d+))?"
)
_DIRECTIONS = {"F": "forward", "B": "bwd_data", "W": "bwd_weight"}
_FILE = re.compile(r"(gfx(?:9[0-9a-f]{2}|1\d{3}))")
_IN, _OUT = ("C", "Di", "Hi", "Wi"), ("K", "Do", "Ho", "Wo")


def is_find_db(path: Path, text: str) -> bool:
    """Returns whether a file has times of MIOpen's solvers."""
    return is_db(text) and ("fdb" in path.name or "miopenConvolution" in text.partition("\n")[0])


def is_db(text: str) -> bool:
    """Returns whether a text begins as one of MIOpen's databases does."""
    return _KEY.fullmatch(text.partition("=")[0].strip()) is not None


def find_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every solver of every problem."""
    for one, values in _lines(listed):
        for value in values.split(";"):
            solver, _, rest = value.partition(":")
            cells = rest.split(",")
            if number_of(cells[0]) != number_of(cells[0]) and len(cells) > 1:  # ALGORITHM:SOLVER,MS,...
                solver, cells = cells[0], cells[1:]
            kernel = {} if one.problem is None else kernel_of(one.problem, "miopen", solver, {})
            yield replace(one, **kernel, times_ms=[number_of(cells[0])], text=f"{one.text}={value}"[:300])


def perf_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every problem."""
    return (one for one, _ in _lines(listed))


def _lines(listed: ListFile) -> Iterator[tuple[Entry, str]]:
    arch = _FILE.match(listed.path.name)
    gfx = arch[1] if arch else ""
    for line in listed.lines():
        key, equals, values = line.strip().partition("=")
        if equals:
            one = replace(_entry(key), gfx=gfx, stated={"gfx": gfx}, text=key)
            yield replace(one, source=f"line {listed.line}"), values


def _entry(key: str) -> Entry:
    found = _KEY.fullmatch(key)
    if found is None:
        return Entry(why="the key is none of a convolution's")
    sides = [found["in"].split("-"), found["out"].split("-")]
    near, far = sides if found["direction"] == "F" else reversed(sides)
    row = {"N": found["N"], "G": found["G"] or "1"}
    for names, extents in ((_IN, near), (_OUT, far)):
        row |= {names[0]: extents[0], **dict(zip(reversed(names), reversed(extents[1:]), strict=False))}
    row |= zip("XYZ", reversed(found["filter"].split("x")), strict=False)
    for name in ("pad", "stride", "dilation"):
        axes = zip("whd", reversed(found[name].split("x")), strict=False)
        row |= {f"{name}_{axis}": extent for axis, extent in axes}
    words = {"direction": _DIRECTIONS[found["direction"]], "dtype": dtype_named(found["dtype"])}
    others = sorted(set(found["layouts"].split("-")) - {"NHWC", "NDHWC"})
    more = [f"{others[0]} in memory, which is channels-last here"] if others else []
    more += [] if found["bias"] == "0" else ["a bias"]
    return entry_of("grouped_conv", {**words, **row, "ndim": len(near) - 1}, more=tuple(more))
