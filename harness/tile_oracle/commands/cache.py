"""`tile-oracle doctor --cache`: the cache of compiled kernels, and the removal of unused entries."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tile_oracle.commands.arguments import Group, argument, flag
from tile_oracle.commands.json_output import print_json
from tile_oracle.compiling.cache import default_cache_folder
from tile_oracle.compiling.cache_use import IN_USE_S, EntryUse, Pruned, entries_in, prune
from tile_oracle.terminal.progress_line import ProgressLine

_DAY_S = 24 * 3600.0
_BYTES = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS = {"h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}


def _duration(text: str) -> float:
    return _scaled(text, _SECONDS, "a time such as 12h, 30d or 8w")


def _size(text: str) -> int:
    return int(_scaled(text, _BYTES, "a size such as 500MiB or 2GiB, or a number of bytes"))


def _scaled(text: str, units: dict[str, float] | dict[str, int], what: str) -> float:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([a-z]*)", text.strip().lower())
    if match is None or match[2] not in units:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return float(match[1]) * units[match[2]]


CACHE_ARGUMENTS = Group(
    (
        flag("--cache", "show only what the cache holds, by kind"),
        flag("--prune", "remove what the next two options say; nothing that was used in the last week"),
        argument("--unused-for", "TIME", "entries unused for this long: 12h, 30d, 8w", type=_duration),
        argument("--keep", "SIZE", "the oldest entries above this size: 500MiB, 2GiB", type=_size),
        flag("--dry-run", "with --prune: only list what would be removed"),
    ),
    "the cache of compiled kernels",
)


def show_cache(args: argparse.Namespace) -> int:
    """Prints the cache's contents by kind, or what pruning removed."""
    folder = (args.build_dir or default_cache_folder()).absolute()
    limits = (args.unused_for, args.keep)
    if args.prune and limits == (None, None):
        return _usage("--prune needs --unused-for TIME, --keep SIZE, or both")
    if args.prune and args.json:
        return _usage("--json shows the contents: leave out --prune or --json")
    if not args.prune and (limits != (None, None) or args.dry_run):
        return _usage("--unused-for, --keep and --dry-run say what --prune removes: add --prune")
    now_s = time.time()
    if not args.prune:
        if args.json:
            print_json(_document(folder, entries_in(folder), now_s))
        else:
            print(_contents(folder, entries_in(folder), now_s))
        return 0
    with ProgressLine(sys.stderr) as line:

        def show(done: int, total: int) -> None:
            line.show(f"{done:,} of {total:,}")

        done = prune(folder, now_s, args.unused_for, args.keep, args.dry_run, show)
    print(_said(done, args.dry_run))
    return 0


def _usage(problem: str) -> int:
    print(f"tile-oracle doctor: {problem}", file=sys.stderr)
    return 2


def _contents(folder: Path, entries: Sequence[EntryUse], now_s: float) -> str:
    if not entries:
        return f"{folder}: empty"
    lines = [f"{folder}: {_amount(entries)}"]
    for what, own, old in _groups(entries, now_s):
        lines.append(f"  {what:<15} {_amount(own)}" + (f"; {_amount(old)} unused for 30 days" if old else ""))
    return "\n".join(lines)


def _groups(
    entries: Sequence[EntryUse], now_s: float
) -> Iterator[tuple[str, list[EntryUse], list[EntryUse]]]:
    """What, its entries, and those of them that were not used for 30 days."""
    for what in sorted({entry.what for entry in entries}):
        own = [entry for entry in entries if entry.what == what]
        yield what, own, [entry for entry in own if now_s - entry.used_s > 30 * _DAY_S]


def _document(folder: Path, entries: Sequence[EntryUse], now_s: float) -> dict[str, object]:
    contents = [
        {
            "what": what,
            "entries": len(own),
            "bytes": sum(entry.bytes for entry in own),
            "unused_for_30_days": len(old),
        }
        for what, own, old in _groups(entries, now_s)
    ]
    return {"folder": folder, "contents": contents}


def _said(done: Pruned, dry_run: bool) -> str:
    word = "would remove" if dry_run else "removed"
    stays = f"{_amount(done.kept)} stay" if done.kept else "nothing stays"
    always = f"what was used in the last {IN_USE_S / _DAY_S:.0f} days always does"
    return f"{word} {_amount(done.removed)}; {stays} ({always})"


def _amount(entries: Sequence[EntryUse]) -> str:
    mib = sum(entry.bytes for entry in entries) / 2**20
    return f"{len(entries):,} entr{'ies' if len(entries) != 1 else 'y'}, {mib:,.1f} MiB"
