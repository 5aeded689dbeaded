"""Kernels that end, stop or hang themselves or others."""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_CRASH, _TIMEOUT = one("crash"), one("timeout")
_HARNESS = """
/* The process above the guardian: the harness. In a namespace of processes there is no such number. */
static int above(int pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, 0);
    const long size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (size <= 0) return 0;
    text[size] = 0;
    const char *end = strrchr(text, ')');
    int found = 0;
    char state;
    return end && sscanf(end + 1, " %c %d", &state, &found) == 2 ? found : 0;
}
static int harness() { return above(getppid()); }
"""

SIGNALS = (
    Family(
        "segfault",
        "signals",
        "Writes to an address that is not mapped.",
        _CRASH,
        "segfault();",
        detail="SIGSEGV",
    ),
    Family("abort", "signals", "Calls abort().", _CRASH, "abort();", detail="SIGABRT"),
    Family(
        "abort_in_thread",
        "signals",
        "Calls abort() in a thread while its caller computes.",
        _CRASH,
        "unsigned long t; pthread_create(&t, nullptr, die, nullptr); pthread_join(t, nullptr); convolve(a);",
        declarations="static void *die(void *) { abort(); }",
        detail="SIGABRT",
    ),
    Family("exit_0", "signals", "Calls exit(0), as if all were well.", _CRASH, "exit(0);"),
    Family("exit_now", "signals", "Calls _exit(0): no handler runs.", _CRASH, "_exit(0);"),
    Family(
        "divides_by_zero",
        "signals",
        "Divides an integer by zero.",
        _CRASH,
        "raise(8); spin();",
        detail="SIGFPE",
    ),
    Family(
        "bad_instruction", "signals", "Runs into an instruction that is none.", _CRASH, "__builtin_trap();"
    ),
    Family(
        "kill_self",
        "signals",
        "Sends itself SIGKILL.",
        _CRASH,
        "kill(getpid(), 9); spin();",
        detail="SIGKILL",
    ),
    Family("stop_self", "signals", "Stops itself.", _TIMEOUT, "kill(getpid(), 19); spin();", limit_s=2.0),
    Family(
        "kill_group",
        "signals",
        "Sends SIGKILL to its process group.",
        _CRASH,
        "kill(0, 9); spin();",
        detail="SIGKILL",
    ),
    Family(
        "kill_all",
        "signals",
        "Sends SIGTERM to every process of its session and group that it sees.",
        one("crash", "timeout"),
        "killpg(getpgrp(), 15); spin();",
        limit_s=2.0,
    ),
    Family("hang_when_launched", "signals", "Never returns.", _TIMEOUT, "spin();", limit_s=2.0),
    Family(
        "hang_when_timed",
        "signals",
        "Never returns from its second timed run, the fifth in all: even the slowest machine makes two.",
        _TIMEOUT,
        "static int runs = 0; if (++runs > 4) spin(); convolve(a);",
        limit_s=2.0,
    ),
    Family(
        "hang_deaf",
        "signals",
        "Blocks every signal and never returns.",
        _TIMEOUT,
        "uint64_t all[16]; sigfillset(all); sigprocmask(0, all, nullptr); spin();",
        limit_s=2.0,
        quick=True,
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
    Family(
        "throws_exception",
        "signals",
        "Throws a C++ exception that nobody catches.",
        _CRASH,
        'void *cxx = dlopen("libstdc++.so.6", 2); if (!cxx) abort();'
        ' auto make = (void *(*)(size_t))dlsym(cxx, "__cxa_allocate_exception");'
        ' auto throw_ = (void (*)(void *, void *, void *))dlsym(cxx, "__cxa_throw");'
        ' void *thrown = make(4); *(int *)thrown = 1; throw_(thrown, dlsym(cxx, "_ZTIi"), nullptr);',
    ),
    Family(
        "jumps_away",
        "signals",
        "Jumps to a stack frame that has returned.",
        _CRASH,
        "static uint64_t place[64]; mark(place); unsigned char noise[2048]; memset(noise, 0x41, sizeof noise);"
        " sink = noise[1000]; place[0] = place[1] = place[6] = place[7] = 0x41414141; longjmp(place, 1);",
        declarations="__attribute__((noinline)) static void mark(void *place) { _setjmp(place); }",
    ),
    Family(
        "kill_harness",
        "signals",
        "Sends SIGKILL to the harness and the guardian, and hangs.",
        one("crash", "timeout"),
        "const int up = harness(); if (up > 1) kill(up, 9); if (getppid() > 1) kill(getppid(), 9); spin();",
        declarations=_HARNESS,
        limit_s=2.0,
        own_session=True,
        uncontained=True,
    ),
    Family(
        "stop_harness",
        "signals",
        "Stops the harness, and hangs.",
        _TIMEOUT,
        "const int up = harness(); if (up > 1) kill(up, 19); spin();",
        declarations=_HARNESS,
        limit_s=2.0,
        own_session=True,
        uncontained=True,
        quick=True,
    ),
    Family(
        "trace_harness",
        "signals",
        "Traces the harness, which stops it, and hangs.",
        _TIMEOUT,
        "const int up = harness(); if (up > 1) ptrace(16, up, nullptr, nullptr); spin();",
        declarations=_HARNESS,
        limit_s=2.0,
        own_session=True,
        uncontained=True,
    ),
)
