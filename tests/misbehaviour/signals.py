"""Kernels that end themselves or others, or do not end."""

from __future__ import annotations

from tests.misbehaviour.families import Family, one

_CRASH, _TIMEOUT = one("crash"), one("timeout")

SIGNALS = (
    Family(
        "segfault",
        "signals",
        "Writes to an address that is not mapped.",
        _CRASH,
        "segfault();",
        detail="SIGSEGV",
        quick=True,
    ),
    Family("abort", "signals", "Calls abort().", _CRASH, "abort();", detail="SIGABRT"),
    Family("exit_0", "signals", "Calls exit(0), as if all were well.", _CRASH, "exit(0);", quick=True),
    Family("exit_now", "signals", "Calls _exit(0): no handler runs.", _CRASH, "_exit(0);"),
    Family(
        "kill_self",
        "signals",
        "Sends itself SIGKILL.",
        _CRASH,
        "kill(getpid(), 9); spin();",
        detail="SIGKILL",
    ),
    Family(
        "hang_when_launched",
        "signals",
        "Never returns.",
        _TIMEOUT,
        "spin();",
        limit_s=0.7,
    ),
    Family(
        "endless_recursion",
        "signals",
        "Calls itself until the stack is full.",
        _CRASH,
        "sink = recurse(0);",
        declarations=(
            "__attribute__((noinline)) static int recurse(int depth) {"
            " volatile char frame[4096]; frame[0] = (char)depth; return recurse(depth + 1) + frame[0]; }"
        ),
        detail="SIGSEGV",
    ),
)
