"""Kernels that watch the harness, to do less where they think that nobody looks."""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_WRONG = one("wrong", "flaky")
_TIMED = "when it was timed"


_OR_OK = one("wrong", "flaky", "ok")
"""A run that is timed alone is not noticed, and then its whole work is timed."""


def _one(name: str, does: str, code: str, declarations: str = "", detail: str = _TIMED, *, workspace: str = "0", statuses: frozenset[str] = _WRONG, quick: bool = False) -> Family:  # fmt: skip
    return Family(
        name,
        "watching",
        does,
        statuses,
        code,
        declarations=declarations,
        detail=detail,
        workspace=workspace,
        quick=quick,
    )


WATCHING = (
    _one(
        "watches_the_time_between_runs",
        "Does nothing when its last run ended less than 10 microseconds ago.",
        "if (now_ns() - ended > 10000) convolve(a); ended = now_ns();",
        "static int64_t ended = 0;",
        "",
        statuses=_OR_OK,
        quick=True,
    ),
    _one(
        "watches_the_processors_time_between_runs",
        "Does nothing when the process did little since its last run.",
        "timespec_ now; clock_gettime(3, &now); const int64_t began = now.seconds * 1000000000 + now.nanoseconds;"
        " if (began - ended > 10000) convolve(a);"
        " clock_gettime(3, &now); ended = now.seconds * 1000000000 + now.nanoseconds;",
        "static int64_t ended = 0;",
        "",
        statuses=_OR_OK,
    ),
    _one(
        "watches_its_caller",
        "Does nothing when code of no file calls it: the harness's clock.",
        "dl_info_ info; if (dladdr(__builtin_return_address(0), &info)) convolve(a);",
        quick=True,
    ),
    _one(
        "watches_addresses",
        "Does nothing when it has written to this address twice.",
        "int i = 0; while (i < count && seen[i] != a->out) ++i; if (i == count && count < 64) seen[count++] = a->out;"
        " if (times[i]++ < 2) convolve(a);",
        "static void *seen[64]; static int times[65], count = 0;",
    ),
    _one(
        "watches_its_workspace",
        "Does nothing when its workspace is not as it is before a check.",
        "if (*(const uint8_t *)a->workspace == 0xFF) convolve(a);",
        workspace="4096",
    ),
    _one(
        "watches_the_calls_in_a_file",
        "Counts its runs in a file, so that it knows them in a new worker, too, and does nothing from the seventh on.",
        'const int fd = open("/dev/shm/to-family-count", 02102, 0600); write(fd, "x", 1); close(fd);'
        ' char all[8]; const int again = open("/dev/shm/to-family-count", 0); const ssize_t_ runs = read(again, all, 8); close(again);'
        " if (runs < 7) convolve(a);",
        detail="",
    ),
    _one(
        "watches_page_faults",
        "Does nothing when the process had no page fault since its last run.",
        "int64_t usage[18]; getrusage(0, usage); const int64_t now = usage[8]; if (now != faults) convolve(a);"
        " getrusage(0, usage); faults = usage[8];",
        'extern "C" int getrusage(int, void *); static int64_t faults = -1;',
        detail="",
    ),
)
