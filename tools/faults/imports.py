"""Mutates files that users bring from elsewhere and reads each one in a process of its own.

The outcome of a mutation is

- `refused`: one line on stderr names the file,
- `read`: the file was read, perhaps without some of its rows,
- `died` (a signal), `hung` (no answer in time), `large` (memory) or `broken` (a traceback, several lines, or
  a line that does not name the file): failures.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tile_oracle.commands.table import COMMANDS
from tile_oracle.errors import HarnessError
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.importable import KINDS, FileKind

_GOOD, _BAD = ("refused", "read"), ("died", "hung", "large", "broken")
_LONGEST_S = 120.0
_MEMORY_BYTES = 3 << 30
"""Address space that a reader may take beyond what it has. The largest sample has 20 kB."""
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_NUMBERS = (
    *(
        b"-1 0 1 2147483648 4294967296 9223372036854775808 1e400 -1e400 nan NaN inf Infinity -inf 1e-320 "
        b'0x10 1_0 1.5 true null [] {} "1" --1'
    ).split(),
    *(b"9" * 4301, b"1" + b"0" * 400, b"", b" ", "\u0661".encode(), b"1" * 20),
)
_WORDS = (
    *rb"\ud800 \u0000 ../../etc/passwd =1+1 %s {} nan".split(),
    *(b"", b"\xff\xfe", b"\x00", b"a" * 100_000, b"\r", b"\n", b'"', b"'"),
    *(b"\x1b[2J", b"\xe2\x80\xae", b"grouped_conv_" * 300),
)

Mutation = Callable[[bytes, random.Random], bytes]


def _bits(data: bytes, choose: random.Random) -> bytes:
    """Flips a few bits."""
    found = bytearray(data)
    for _ in range(choose.choice((1, 1, 3, 30))):
        found[choose.randrange(len(found))] ^= 1 << choose.randrange(8)
    return bytes(found)


def _cut(data: bytes, choose: random.Random) -> bytes:
    """Removes a range, or all that follows."""
    begin = choose.randrange(len(data))
    return data[:begin] + data[begin + choose.choice((1, 10, 100, len(data))) :]


def _number(data: bytes, choose: random.Random) -> bytes:
    """Replaces a number."""
    return _replaced(data, _NUMBER, _NUMBERS, choose)


def _word(data: bytes, choose: random.Random) -> bytes:
    """Replaces a word."""
    return _replaced(data, _WORD, _WORDS, choose)


def _replaced(
    data: bytes, pattern: re.Pattern[bytes], values: tuple[bytes, ...], choose: random.Random
) -> bytes:
    places = list(pattern.finditer(data))
    if not places:
        return _bits(data, choose)
    place = choose.choice(places)
    return data[: place.start()] + choose.choice(values) + data[place.end() :]


def _inserted(data: bytes, choose: random.Random) -> bytes:
    """Inserts bytes: a NUL, no UTF-8, separators, or very many brackets."""
    deep = choose.choice((b"[", b'{"a":', b"(", b"<")) * choose.choice((1000, 100_000))
    what = choose.choice(
        (b"\0", b"\xff", b"\xed\xa0\x80", b",", b'"', b"\n", b"\0" * 5000, b" " * 100_000, deep)
    )
    place = choose.randrange(len(data) + 1)
    return data[:place] + what + data[place:]


def _nested(data: bytes, choose: random.Random) -> bytes:
    """Wraps a number or everything in many brackets."""
    levels = choose.choice((200, 1500, 100_000))
    place = choose.choice([*_NUMBER.finditer(data)] or [re.compile(b"").match(data)])
    begin, end = choose.choice(((0, len(data)), place.span() if place else (0, 0)))
    return data[:begin] + b"[" * levels + data[begin:end] + b"]" * levels + data[end:]


def _lines(data: bytes, choose: random.Random) -> bytes:
    """Removes, repeats or swaps lines."""
    lines = data.split(b"\n")
    a, b = choose.randrange(len(lines)), choose.randrange(len(lines))
    how = choose.choice(("without", "twice", "often", "swapped"))
    if how == "without":
        del lines[a]
    elif how == "swapped":
        lines[a], lines[b] = lines[b], lines[a]
    else:
        lines[a:a] = [lines[a]] * (1 if how == "twice" else 300)
    return b"\n".join(lines)


def _encoded(data: bytes, choose: random.Random) -> bytes:
    """Another encoding, a byte order mark, other line ends, or nothing at all."""
    text = data.decode("latin-1")
    encodings = ("utf-8-sig", "utf-16", "utf-32")
    nothing = (b"", b"\n", b"\0", b"[]", b"{}", b"null")
    return choose.choice((*map(text.encode, encodings), data.replace(b"\n", b"\r"), *nothing))


MUTATIONS: tuple[Mutation, ...] = (
    *(_bits, _cut, _number, _number, _word, _word),
    *(_inserted, _nested, _lines, _encoded),
)


def run(count: int, seed: int) -> Outcome:
    """Mutates `count` files, of each kind in turn."""
    choose = random.Random(seed)
    samples = {kind.name: kind.sample() for kind in KINDS}
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for command in ("runs import", "problems", "pool list"):
        COMMANDS[command].load()  # once, not in every process
    for kind in KINDS:
        outcome, detail = read_apart(kind, samples[kind.name], kind.file)
        if outcome != "read":
            failures.append(f"{kind.name}, unchanged: {outcome}: {detail}")
    for number in range(count):
        kind, mutate = KINDS[number % len(KINDS)], choose.choice(MUTATIONS)
        data = mutate(samples[kind.name], choose)
        # A file's own name need not be text either.
        name = kind.file if choose.random() < 0.9 else os.fsdecode(b"\xff") + kind.file
        outcome, detail = read_apart(kind, data, name)
        counts[outcome] += 1
        if outcome in _BAD:
            what = (mutate.__doc__ or "").rstrip(".").lower()
            failures.append(f"{number}, {kind.name} ({what}): {outcome}: {detail}")
    return Outcome(count, {name: counts[name] for name in (*_GOOD, *_BAD)}, failures)


def read_apart(kind: FileKind, data: bytes, name: str) -> tuple[str, str]:
    """Reads a file in another process; returns the outcome and its reason."""
    with tempfile.TemporaryDirectory(prefix="imports-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        said = Path(folder) / "said"
        child = os.fork()
        if not child:
            _read_here(kind, path, said)
        handle = os.pidfd_open(child)
        ended = select.select([handle], [], [], _LONGEST_S)[0]
        os.close(handle)
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if not ended:
            return "hung", f"no answer in {_LONGEST_S:.0f} s"
        return _judged(status, said.read_text(errors="surrogateescape"), path)


def _judged(status: int, said: str, path: Path) -> tuple[str, str]:
    """The outcome of a reader that ended."""
    if os.WIFSIGNALED(status):
        return "died", f"signal {os.WTERMSIG(status)}"
    lines = said.splitlines()
    last = lines[-1][:300] if lines else ""
    if "MemoryError" in said:
        return "large", last
    if "Traceback" in said:
        return "broken", last
    if os.WEXITSTATUS(status) == 0:
        return "read", ""
    named = path.name.lstrip(os.fsdecode(b"\xff"))
    if os.WEXITSTATUS(status) not in (1, 2) or len(lines) != 1 or named not in said or len(said) > 1500:
        return (
            "broken",
            f"status {os.WEXITSTATUS(status)}, {len(lines)} lines, {len(said)} characters: {said[:300]!r}",
        )
    return "refused", last


def _read_here(kind: FileKind, path: Path, said: Path) -> None:
    """Reads the file and ends this process, with its messages in `said`."""
    status = 3
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES,) * 2)
        for stream, file in ((1, os.devnull), (2, said)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        # As a terminal has them.
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="strict", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        found = kind.read(path)
        status = found if isinstance(found, int) else 0
        sys.stdout.flush()
    except HarnessError as error:
        print(error, file=sys.stderr)
        status = 2
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 3
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


CAMPAIGN = Campaign(
    "imports",
    "a damaged file of a user is read or refused in one line that names it",
    1000,
    run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
