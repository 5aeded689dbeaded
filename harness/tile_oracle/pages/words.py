"""Formatting of numbers, lists and foreign text for pages, summaries and terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pandas as pd

from tile_oracle.errors import KernelError, ProblemError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.problem import problem_from_id
from tile_oracle.terminal.counts import count as count

DETAIL_CHARACTERS = 160
LONGEST = 2000
"""Characters of foreign text that a page shows."""


def one_line(text: object, limit: int = DETAIL_CHARACTERS) -> str:
    """Foreign text as one line of at most `limit` characters, without control and direction characters,
    which terminals and browsers would interpret."""
    if text is None or (isinstance(text, float) and math.isnan(text)) or text is pd.NA:
        return ""
    clean = " ".join(str(text)[: 16 * limit].split())
    if not clean.isprintable():
        clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in clean)
    return clean if len(clean) <= limit else clean[: limit - 3].rstrip() + "..."


def percent(value: float | None) -> str:
    """93.1 %; a value below 100 that rounds to 100 is shown as 99.9."""
    if value is None or math.isnan(value):
        return "-"
    return f"{as_shown(value):.1f} %"


def as_shown(value: float) -> float:
    """Returns a value as `percent` shows it, for figures that a reader computes from it."""
    return round(min(value, 99.9) if value < 100.0 else value, 1)


def change_percent(value: float) -> str:
    """Returns a relative change: +5.12 %, +250.0 %, +22,290 %."""
    digits = 2 if abs(value) < 99.995 else 1 if abs(value) < 999.95 else 0
    return f"{value:+,.{digits}f} %"


def tflops(value: float | None) -> str:
    """Four significant digits, without an exponent in the range of kernels."""
    if value is None or pd.isna(value):
        return "-"
    return f"{value:#.4g}" if value < 999.95 else f"{value:,.0f}"


def microseconds(value: float | None) -> str:
    """Returns a time to four significant digits, and to at most a nanosecond: 1,785, 531.4, 23.02, 0.370."""
    if value is None or pd.isna(value):
        return "-"
    return f"{value:,.{decimals(value)}f}" if value else "0"


def decimals(microseconds: float) -> int:
    """Decimal places that give a time in microseconds four significant digits, at most three."""
    return min(3, max(0, 3 - math.floor(math.log10(microseconds)))) if microseconds > 0 else 3


def amount(value: float | None, unit: str = "") -> str:
    """Returns three significant digits with a prefix of the unit: 156 G, 364 M, 4.99 k; with a unit: 156
    GFLOP."""
    if value is None or pd.isna(value):
        return "-"
    power = min(max(math.floor(math.log10(value) / 3 + 1e-12), 0), 5) if value > 0 else 0
    if value / 1000.0**power >= 999.5:
        power = min(power + 1, 5)
    scaled, prefix = value / 1000.0**power, " kMGTP"[power].strip()
    digits = 0 if power == 0 or scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {prefix}{unit}".rstrip()


def times(value: float | None) -> str:
    """Returns a ratio: 2.31x."""
    return "-" if value is None or pd.isna(value) else f"{value:.2f}x" if value < 100 else f"{value:,.0f}x"


def moment(text: str) -> str:
    """Returns a time of ISO 8601 to the minute, 2026-11-24 03:28 UTC; any other text as it is."""
    try:
        when = datetime.fromisoformat(text)
        return text if when.tzinfo is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return text


def listed(parts: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join([*([", ".join(parts[:-1])] if len(parts) > 1 else []), *parts[-1:]])


def few(texts: Sequence[str], number: int = 3) -> str:
    """Returns the first texts, and how many more there are."""
    shown = ", ".join(one_line(text) for text in texts[:number])
    return shown + (f" and {len(texts) - number:,} more" if len(texts) > number else "")


def short_name(kernel: object) -> str:
    """Returns a kernel's name without what its problem says; any other text on one line, "-" for none."""
    try:
        return parse_kernel_name(kernel).short_name if isinstance(kernel, str) else "-"
    except KernelError:
        return one_line(kernel, LONGEST) or "-"


def titles(problems: Iterable[str]) -> dict[str, str]:
    """Id -> the problem's size in words, with its direction and data type where these differ; without
    what is no id of a known operation."""
    found = {}
    for one in problems:
        try:
            found[one] = problem_from_id(one)
        except ProblemError:
            continue
    kinds = {word: {one.kind.words.get(word) for one in found.values()} for word in ("direction", "dtype")}
    differing = [word for word, values in kinds.items() if len(values) > 1]
    return {
        name: ", ".join(
            [one.title, *(str(one.kind.words[word]) for word in differing if word in one.kind.words)]
        )
        for name, one in found.items()
    }


_SETTING = re.compile(r"[.](?=\w+=)")
_TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")


def kernel_words(name: str) -> str:
    """Returns a name of settings in fewer letters: `triton.tiles 128x256x64 GROUP_M=8 stages=4` for
    `triton.tiles.BLOCK_K=64.BLOCK_M=128.BLOCK_N=256.GROUP_M=8.num_stages=4.SWAP=False`; others are kept."""
    function, *given = _SETTING.split(name)
    settings = dict(one.split("=", 1) for one in given)
    flat = settings.keys() >= set(_TILE[:2])
    tile = [settings.pop(one) for one in _TILE if flat and one in settings]
    shown = [
        one.removeprefix("num_") if value == "True" else f"{one.removeprefix('num_')}={value}"
        for one, value in settings.items()
        if value != "False"
    ]
    return " ".join([function, *(["x".join(tile)] if tile else []), *shown])
