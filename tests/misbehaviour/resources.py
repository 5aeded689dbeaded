"""Kernels that use too many resources. The amounts are bounded, so that the machine survives the test."""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_CRASH = one("crash")
_BURN = "static void burn() { for (;;) sink = 1; }"

RESOURCES = (
    Family(
        "workspace_of_exabytes",
        "resources",
        "Asks for a workspace of four exabytes.",
        one("unsupported"),
        workspace="INT64_MAX / 2",
        detail="its workspace: ",
    ),
    Family(
        "workspace_beyond_memory",
        "resources",
        "Asks for a workspace that the address space has and the memory has not.",
        one("unsupported"),
        workspace="(int64_t)1 << 42",
        detail="GiB of memory are free",
        quick=True,
    ),
    Family(
        "workspace_negative",
        "resources",
        "Asks for a workspace of less than nothing.",
        one("ok"),
        workspace="-5",
    ),
    Family(
        "maps_address_space",
        "resources",
        "Maps memory until there is no more to be had, and touches none of it.",
        one("ok"),
        "for (int i = 0; i < 100000; ++i) if (mmap(nullptr, (size_t)1 << 30, 3, 0x22, -1, 0) == (void *)-1) break;"
        " convolve(a);",
    ),
    Family(
        "takes_memory",
        "resources",
        "Allocates memory and fills it, until it is refused.",
        one("crash", "timeout"),
        "for (;;) { char *p = (char *)malloc(64 << 20); if (!p) abort(); memset(p, 1, 64 << 20); }",
        limit_s=20.0,
    ),
    Family(
        "takes_shared_memory",
        "resources",
        "Fills memory that is shared with no process and so counted by no limit of the process.",
        one("crash", "timeout"),
        "for (;;) { void *p = mmap(nullptr, 64 << 20, 3, 0x21, -1, 0); if (p == (void *)-1) abort();"
        " memset(p, 1, 64 << 20); }",
        limit_s=20.0,
    ),
    Family(
        "forks_without_end",
        "resources",
        "Starts processes that stay (3,000 at most).",
        _CRASH,
        "for (int i = 0; i < 3000; ++i) if (fork() == 0) for (;;) pause(); spin();",
        limit_s=20.0,
    ),
    Family(
        "forks_and_leaves_them",
        "resources",
        "Starts some processes that stay, and returns the right result.",
        _CRASH,
        "for (int i = 0; i < 5; ++i) if (fork() == 0) for (;;) pause(); convolve(a);",
        detail="processes running",
        quick=True,
    ),
    Family(
        "daemon_burns_core",
        "resources",
        "Starts a process in a session of its own, which computes for ever, and returns.",
        _CRASH,
        "const int child = fork(); if (child == 0) { setsid(); if (fork() != 0) _exit(0); setsid(); burn(); }"
        " waitpid(child, nullptr, 0); convolve(a);",
        declarations=_BURN,
        detail="processes running",
    ),
    Family(
        "daemon_outlives_crash",
        "resources",
        "Starts a process in a session of its own, which computes for ever, and crashes.",
        _CRASH,
        "if (fork() == 0) { setsid(); if (fork() != 0) _exit(0); burn(); } usleep(20000); segfault();",
        declarations=_BURN,
    ),
    Family(
        "threads_without_end",
        "resources",
        "Starts threads that stay (4,000 at most).",
        one("crash", "timeout"),
        "for (int i = 0; i < 4000; ++i) { unsigned long t; if (pthread_create(&t, nullptr, wait, nullptr)) break; }"
        " spin();",
        declarations="static void *wait(void *) { for (;;) pause(); }",
        limit_s=20.0,
    ),
    Family(
        "fills_disk",
        "resources",
        "Writes a file that grows for ever; it has holes, so that the disk stays free.",
        one("ok"),
        'const int fd = open("/tmp/to-endless", 0101 | 01000, 0600); unlink("/tmp/to-endless");'
        " for (int64_t size = 1; size > 0 && size < ((int64_t)1 << 60); size *= 2)"
        " if (ftruncate(fd, size)) break; close(fd); convolve(a);",
        quick=False,
    ),
    Family(
        "prints_for_ever",
        "resources",
        "Prints without end.",
        one("timeout"),
        'for (;;) write(1, "garbage\\n", 8);',
        limit_s=2.0,
    ),
    Family(
        "prints_much",
        "resources",
        "Prints some megabytes of what no terminal should see, to both streams.",
        one("ok"),
        'for (int i = 0; i < 20000; ++i) write(1 + i % 2, "\\x00\\xff{\\"done\\":1}\\n\\x1b[31m%s%n<b>&amp;", 28); convolve(a);',
    ),
    Family(
        "dumps_core",
        "resources",
        "Raises the limit of core files and aborts.",
        _CRASH,
        "rlimit_ all = {~0ull, ~0ull}; setrlimit(4, &all); abort();",
    ),
)
