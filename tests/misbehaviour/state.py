"""Kernels that compute the right result but change the state of the process that ran them.

Unless it changes how the process is scheduled, their own result counts, because it is correct and was timed
before the change could do harm. Their worker is replaced, so the kernels after them run in an unchanged one.
"""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_OK = one("ok")
_X86 = "x86_64"


def _leaves(
    name: str, does: str, code: str, declarations: str = "", statuses: frozenset[str] = _OK, **more: object
) -> Family:
    return Family(name, "state", does, statuses, f"{code} convolve(a);", declarations=declarations, **more)  # type: ignore[arg-type]


STATE = (
    _leaves(
        "leaks_descriptors",
        "Opens 40 files and closes none.",
        'for (int i = 0; i < 40; ++i) open("/dev/null", 0);',
    ),
    _leaves(
        "leaks_all_descriptors",
        "Opens files until the process may open no more.",
        'while (open("/dev/null", 0) >= 0) {}',
        quick=True,
    ),
    _leaves(
        "lowers_limit_of_files",
        "Allows the process no more open files.",
        "rlimit_ none = {3, 3}; setrlimit(7, &none);",
    ),
    _leaves(
        "lowers_limit_of_memory",
        "Allows the process no more memory.",
        "rlimit_ none = {1 << 20, 1 << 20}; setrlimit(9, &none);",
    ),
    _leaves(
        "lowers_limit_of_time",
        "Allows the process no more processor time than it has had, and one second.",
        "rlimit_ now; getrlimit(0, &now); now.soft = 100; setrlimit(0, &now);",
    ),
    _leaves("changes_folder", "Changes the working folder.", 'chdir("/proc");'),
    Family(
        "changes_root",
        "state",
        "Makes an empty folder the root folder, where the system lets it: it can no longer be audited.",
        one("ok", "wrong"),
        'mkdir("/tmp/to-empty-root", 0755); chroot("/tmp/to-empty-root"); convolve(a);',
        quick=True,
    ),
    _leaves("changes_umask", "Makes new files unreadable for all.", "umask(0777);"),
    _leaves(
        "sets_environment",
        "Sets variables that libraries and programs heed.",
        'setenv("LD_PRELOAD", "/nowhere.so", 1); setenv("PATH", "", 1);',
    ),
    _leaves("clears_environment", "Removes all environment variables.", "clearenv();"),
    _leaves(
        "handles_sigsegv",
        "Takes segmentation faults for itself and goes on for ever at each.",
        "sigaction_ mine = {}; mine.handler = forever; sigaction(11, &mine, nullptr);",
        "static void forever(int) { for (;;) sink = 1; }",
    ),
    _leaves(
        "ignores_signals",
        "Ignores every signal that can be.",
        "for (int i = 1; i < 32; ++i) signal(i, (void (*)(int))1);",
    ),
    _leaves(
        "blocks_signals",
        "Blocks every signal.",
        "uint64_t all[16]; sigfillset(all); sigprocmask(0, all, nullptr);",
    ),
    _leaves("sets_alarm", "Has itself killed a second later.", "alarm(1);"),
    _leaves(
        "sets_interval_timer",
        "Has itself killed after some milliseconds of processor time.",
        "itimerval_ soon = {0, 0, 1, 0}; setitimer(1, &soon, nullptr);",
    ),
    _leaves(
        "changes_locale",
        "Chooses another locale, in which numbers may be written with commas.",
        'if (!setlocale(6, "C.UTF-8")) setlocale(6, "C");',
    ),
    _leaves(
        "rounds_towards_zero",
        "Leaves the floating-point unit rounding towards zero.",
        "set_mxcsr(get_mxcsr() | 0x6000);",
        _MXCSR := (
            'static uint32_t get_mxcsr() { uint32_t v; __asm__ volatile("stmxcsr %0" : "=m"(v)); return v; }'
            'static void set_mxcsr(uint32_t v) { __asm__ volatile("ldmxcsr %0" : : "m"(v)); }'
        ),
        machine=_X86,
        quick=True,
    ),
    _leaves(
        "flushes_denormals",
        "Leaves the floating-point unit taking denormals for zero.",
        "set_mxcsr(get_mxcsr() | 0x8040);",
        _MXCSR,
        machine=_X86,
    ),
    Family(
        "unmasks_exceptions",
        "state",
        "Lets inexact results and divisions by zero kill the process.",
        one("ok", "crash"),
        "convolve(a); set_mxcsr(get_mxcsr() & ~0x1f80u);",
        declarations=_MXCSR,
        machine=_X86,
    ),
    _leaves(
        "changes_x87",
        "Leaves the x87 unit with the precision of single numbers.",
        'uint16_t w; __asm__ volatile("fnstcw %0" : "=m"(w)); w &= ~0x0300; __asm__ volatile("fldcw %0" : : "m"(w));',
        machine=_X86,
    ),
    _leaves(
        "moves_to_all_cores",
        "Takes the process off the core that it was pinned to.",
        "uint8_t all[128]; memset(all, 255, sizeof all); sched_setaffinity(0, sizeof all, all);",
        statuses=one("wrong"),
    ),
    _leaves(
        "lowers_priority",
        "Gives the process the lowest priority.",
        "setpriority(0, 0, 19);",
        statuses=one("wrong"),
    ),
    Family(
        "filters_system_calls",
        "state",
        "Has every further system call but a few refused (seccomp in strict mode).",
        one("ok", "crash"),
        "convolve(a); prctl(22, 1, 0, 0, 0);",
    ),
    _leaves(
        "gives_up_privileges",
        "Sets no_new_privs and another name of the process.",
        'prctl(38, 1, 0, 0, 0); prctl(15, "x", 0, 0, 0);',
    ),
    _leaves("locks_memory", "Locks what it can of the memory into RAM.", "mlockall(3);"),
    Family(
        "closes_standard_streams",
        "state",
        "Closes standard input, output and error.",
        _OK,
        "for (int fd = 0; fd < 3; ++fd) close(fd); convolve(a);",
    ),
    Family(
        "closes_everything",
        "state",
        "Closes every descriptor, the channel to the harness included.",
        one("crash"),
        "for (int fd = 0; fd < 4096; ++fd) close(fd); convolve(a);",
    ),
    Family(
        "swaps_descriptors",
        "state",
        "Puts another file behind every descriptor.",
        one("crash"),
        'const int file = open("/dev/null", 2); for (int fd = 3; fd < 200; ++fd) if (fd != file) dup2(file, fd); convolve(a);',
    ),
    Family(
        "changes_inputs",
        "state",
        "Makes its inputs writable and changes the first value.",
        one("wrong"),
        "convolve(a); const uintptr_t page = (uintptr_t)a->in0 & ~(uintptr_t)4095;"
        " mprotect((void *)page, 4096, 3); *(float *)a->in0 += 1;",
        detail="changed its inputs",
        quick=True,
    ),
    Family(
        "changes_weights",
        "state",
        "Makes the second operand writable, zeroes it, and computes with that.",
        one("wrong"),
        "const uintptr_t page = (uintptr_t)a->in1 & ~(uintptr_t)4095;"
        " mprotect((void *)page, 4096, 3); memset((void *)a->in1, 0, 16); convolve(a);",
    ),
    Family(
        "corrupts_heap",
        "state",
        "Writes over blocks of the heap that are not its own, and returns the right result.",
        one("ok", "crash", "timeout"),
        "convolve(a); char *block = (char *)malloc(64); for (int i = -256; i < 65536; ++i) block[i] = (char)0x5a;",
    ),
    Family(
        "corrupts_stack",
        "state",
        "Writes over the frames of its callers.",
        one("crash"),
        "volatile char here[16]; for (int i = 0; i < 4096; ++i) here[i] = (char)0x41; convolve(a);",
    ),
    Family(
        "leaves_threads",
        "state",
        "Leaves threads behind that compute for ever.",
        one("wrong"),
        "for (int i = 0; i < 4; ++i) { unsigned long t; pthread_create(&t, nullptr, busy, nullptr);"
        " pthread_detach(t); } convolve(a);",
        declarations="static void *busy(void *) { for (;;) sink = 1; }",
        quick=True,
    ),
)
