"""Flips one bit at a time in every kind of file that the project writes, and checks that it is detected.

Each flip is made in a copy of the files, which are then used as a user would use them. A flip has

- `no effect` if the results are the same,
- been `refused` if an error names the file,
- been `warned` of if a warning names the file (the results may then lack its content),
- been `silent` if the results differ without an error or a warning: a failure,
- been `broken` if another exception is raised, or the process dies or hangs: a failure.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.flippable import models, records
from tools.faults.flippable.kind import FileKind
from tools.faults.memory_folder import memory_folder

OUTCOMES = ("no effect", "refused", "warned", "silent", "broken")
_LONGEST_READ_S = 60.0


def all_kinds() -> tuple[FileKind, ...]:
    """Every kind of file that the campaign covers."""
    return (*records.kinds(), *models.kinds())


def flip_bits(count: int, seed: int, kinds: Sequence[FileKind]) -> Outcome:
    """Flips `count` bits, equally many in each kind of file, at positions drawn from the seed."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for number, kind in enumerate(kinds):
        share = count // len(kinds) + (number < count % len(kinds))
        with tempfile.TemporaryDirectory(prefix="bitflips-", dir=memory_folder()) as scratch:
            pristine, copy = Path(scratch) / "pristine", Path(scratch) / "copy"
            pristine.mkdir()
            files = [path.relative_to(pristine) for path in kind.make(pristine)]
            expected = _expected(kind, pristine, copy)
            choose = random.Random(f"{seed} {kind.name}")
            for _ in range(share):
                _copy(pristine, copy)
                place = _flip_one(choose, [copy / file for file in files])
                outcome, what = _use(kind, copy, expected, [file.name for file in files])
                counts[outcome] += 1
                if outcome in ("silent", "broken"):
                    failures.append(f"{kind.name}: {place}: {outcome}: {what}")
    return Outcome(sum(counts.values()), {name: counts[name] for name in OUTCOMES}, failures)


def _copy(pristine: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(pristine, copy)


def _expected(kind: FileKind, pristine: Path, copy: Path) -> Any:
    """The results without a flip. Reading them must not log a warning."""
    _copy(pristine, copy)
    with _Listening() as heard:
        value = kind.read(copy)
    assert not heard.lines, f"{kind.name}: {heard.lines[0]}"
    return value


def _flip_one(choose: random.Random, files: Sequence[Path]) -> str:
    """Flips one bit, uniformly drawn from all bits of all files. Returns its position."""
    sizes = [path.stat().st_size for path in files]
    at = choose.randrange(8 * sum(sizes))
    which = 0
    while at >= 8 * sizes[which]:
        at -= 8 * sizes[which]
        which += 1
    path = files[which]
    data = bytearray(path.read_bytes())
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)
    return f"{path.name} byte {at // 8} bit {at % 8}"


def _use(kind: FileKind, copy: Path, expected: Any, names: Sequence[str]) -> tuple[str, str]:
    return _apart(kind, copy, expected, names) if kind.apart else _used(kind, copy, expected, names)


def _used(kind: FileKind, copy: Path, expected: Any, names: Sequence[str]) -> tuple[str, str]:
    """The outcome, and its reason."""
    with _Listening() as heard:
        try:
            value = kind.read(copy)
        except HarnessError as error:
            named = any(name in str(error) for name in names)
            return ("refused", str(error)) if named else ("broken", f"names no file: {error}")
        except Exception as error:  # a user would see a traceback
            return "broken", f"{type(error).__name__}: {error}"
    if value == expected:
        return "no effect", ""
    warnings = [line for line in heard.lines if any(name in line for name in names)]
    return ("warned", warnings[0]) if warnings else ("silent", "the results differ")


def _apart(kind: FileKind, copy: Path, expected: Any, names: Sequence[str]) -> tuple[str, str]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_used, args=(theirs, kind, copy, expected, names))
    process.start()
    theirs.close()
    try:
        if not ours.poll(_LONGEST_READ_S):
            return "broken", "its reader hangs"
        outcome: tuple[str, str] = ours.recv()
        return outcome
    except EOFError:
        process.join()
        return "broken", f"its reader died, exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
        ours.close()


def _send_used(pipe: Connection, kind: FileKind, copy: Path, expected: Any, names: Sequence[str]) -> None:
    pipe.send(_used(kind, copy, expected, names))


class _Listening(logging.Handler):
    """Collects the warnings that the harness logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> _Listening:
        logging.getLogger("tile_oracle").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tile_oracle").removeHandler(self)


CAMPAIGN = Campaign(
    "bitflips",
    "no flipped bit in a file that the project wrote changes a result without an error or a warning",
    2000,
    lambda count, seed: flip_bits(count, seed, all_kinds()),
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
