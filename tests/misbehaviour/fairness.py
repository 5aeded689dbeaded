"""Kernels that take from the machine what other kernels do not have, or leave the worker with less of it.

A kernel is timed on one core, as an ordinary process. One that computes elsewhere, too, or that changes how it is
scheduled, is `wrong`, however right its result. One that only leaves something behind keeps its result, and its
worker is replaced.
"""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_OK, _WRONG = one("ok"), one("wrong")
_ROOTS_ONLY = one("wrong", "ok")
"""Only root can do it; it fails for others."""
_ALONE = one("wrong", "crash")

_HALVES = """
/* The rows of the output from the middle on, and those before it. For a batch of one. */
static void second_half(const to_conv_args *a) {
    to_conv_args b = *a;
    const int64_t first = a->Ho / 2;
    b.Ho -= first; b.pad_h -= first * a->stride_h;
    b.out = (char *)a->out + first * a->Wo * a->K * 4;
    convolve(&b);
}
static void first_half(const to_conv_args *a) { to_conv_args b = *a; b.Ho /= 2; convolve(&b); }
static void to_any_core() { uint8_t all[128]; memset(all, 255, sizeof all); sched_setaffinity(0, sizeof all, all); }
"""
_TOUCH = """
static void *page_after(const void *data, size_t bytes) {
    return (void *)(((uintptr_t)data + bytes + 4095) & ~(uintptr_t)4095);
}
"""
_LEFT = "/dev/shm/to-family-"


def _one(name: str, does: str, statuses: frozenset[str], code: str, declarations: str = "", detail: str = "", *, quick: bool = False) -> Family:  # fmt: skip
    return Family(
        name, "fairness", does, statuses, code, declarations=declarations, detail=detail, quick=quick
    )


FAIRNESS = (
    _one(
        "computes_on_a_second_core",
        "Starts a thread that goes to another core and computes half of the output.",
        _WRONG,
        "unsigned long t; pthread_create(&t, nullptr, half, (void *)a); first_half(a); pthread_join(t, nullptr);",
        _HALVES
        + "static void *half(void *a) { to_any_core(); second_half((const to_conv_args *)a); return nullptr; }",
        "threads of its own",
        quick=True,
    ),
    _one(
        "keeps_a_thread_on_a_second_core",
        "Does the same with one thread that waits for the next run, spinning.",
        _WRONG,
        "if (!started) { started = 1; unsigned long t; pthread_create(&t, nullptr, serve, nullptr); pthread_detach(t); }"
        " work = a; first_half(a); while (work) {}",
        _HALVES + "static const to_conv_args *volatile work = nullptr; static int started = 0;"
        "static void *serve(void *) { to_any_core(); for (;;) if (work) { second_half(work); work = nullptr; } }",
        "threads running behind it",
        quick=True,
    ),
    _one(
        "computes_in_a_child",
        "Lets a child process compute half of the output, in shared memory, on another core.",
        _WRONG,
        "const int child = fork(); if (child == 0) { to_any_core(); second_half(a); _exit(0); }"
        " first_half(a); waitpid(child, nullptr, 0);",
        _HALVES,
        "ran processes",
        quick=True,
    ),
    _one(
        "computes_in_an_orphan",
        "Does the same in a grandchild that is nobody's child when it ends.",
        _ALONE,
        "volatile int *done = (volatile int *)mmap(nullptr, 4096, 3, 0x21, -1, 0);"
        " const int child = fork(); if (child == 0) { if (fork() != 0) _exit(0); to_any_core(); second_half(a); *done = 1; _exit(0); }"
        " waitpid(child, nullptr, 0); first_half(a); while (!*done) {} munmap((void *)done, 4096);",
        _HALVES,
    ),
    _one(
        "ignores_its_children",
        "Has its children's end ignored, so that no account is kept of them.",
        _ALONE,
        "signal(17, (void (*)(int))1); const int child = fork(); if (child == 0) { second_half(a); _exit(0); }"
        " first_half(a); waitpid(child, nullptr, 0);",
        _HALVES,
    ),
    _one(
        "writes_after_it_returned",
        "Leaves a thread behind that writes the right result again and again.",
        _WRONG,
        "convolve(a); copy = *a; if (!started) { started = 1; unsigned long t;"
        " pthread_create(&t, nullptr, serve, nullptr); pthread_detach(t); }",
        "static to_conv_args copy; static int started = 0;"
        "static void *serve(void *) { for (;;) { usleep(100); ((volatile float *)copy.out)[0] = ((volatile float *)copy.out)[0]; } }",
        "threads running behind it",
        quick=True,
    ),
    _one(
        "leaves_an_idle_thread",
        "Leaves a thread behind that waits for ever.",
        _WRONG,
        "unsigned long t; pthread_create(&t, nullptr, wait, nullptr); pthread_detach(t); convolve(a);",
        "static void *wait(void *) { for (;;) pause(); }",
        "threads running behind it",
    ),
    _one(
        "leaves_a_thread_that_flushes_caches",
        "Leaves a thread behind that writes 64 MB over and over, and so empties the caches of others.",
        _WRONG,
        "if (!started) { started = 1; unsigned long t; pthread_create(&t, nullptr, flush, nullptr); pthread_detach(t); } convolve(a);",
        "static int started = 0; static void *flush(void *) { char *p = (char *)malloc(64 << 20); for (;;) memset(p, 1, 64 << 20); }",
        "threads running behind it",
    ),
    _one(
        "opens_a_guard_page",
        "Makes the page behind its first operand writable, writes, and closes it again.",
        _WRONG,
        "void *guard = page_after(a->in0, a->N * a->Hi * a->Wi * a->C * 4);"
        " mprotect(guard, 4096, 3); *(volatile int *)guard = 1; mprotect(guard, 4096, 0); convolve(a);",
        _TOUCH,
        "guard page",
        quick=True,
    ),
    _one(
        "reads_beyond_its_operand",
        "Opens the page behind its first operand and reads there.",
        _WRONG,
        "void *guard = page_after(a->in0, a->N * a->Hi * a->Wi * a->C * 4);"
        " mprotect(guard, 4096, 1); sink = *(volatile int *)guard; convolve(a);",
        _TOUCH,
        "guard page",
    ),
    _one(
        "unmaps_a_guard_page",
        "Unmaps the page behind its first operand.",
        _WRONG,
        "munmap(page_after(a->in0, a->N * a->Hi * a->Wi * a->C * 4), 4096); convolve(a);",
        _TOUCH,
        "guard page",
    ),
    _one(
        "writes_into_a_librarys_code",
        "Makes the code of the library of mathematics writable, and leaves it so.",
        _WRONG,
        'char *at = (char *)dlsym(dlopen("libm.so.6", 5), "sin");'
        " mprotect((void *)((uintptr_t)at & ~(uintptr_t)4095), 4096, 7); convolve(a);",
        detail="changed how libm.so.6 is mapped",
    ),
    _one(
        "becomes_idle_work",
        "Takes the policy SCHED_IDLE.",
        _WRONG,
        "const int none = 0; sched_setscheduler(0, 5, &none); convolve(a);",
        detail="changed its scheduling",
        quick=True,
    ),
    _one(
        "becomes_batch_work",
        "Takes the policy SCHED_BATCH.",
        _WRONG,
        "const int none = 0; sched_setscheduler(0, 3, &none); convolve(a);",
        detail="changed its scheduling",
    ),
    _one(
        "becomes_real_time_work",
        "Takes the policy SCHED_RR, where it may, and so goes before all other work.",
        _ROOTS_ONLY,
        "const int first = 1; sched_setscheduler(0, 2, &first); convolve(a);",
    ),
    _one(
        "raises_priority",
        "Takes the highest priority, where it may.",
        _ROOTS_ONLY,
        "setpriority(0, 0, -20); convolve(a);",
    ),
    _one(
        "moves_the_harness_thread",
        "Lets the other thread of the worker run at the lowest priority.",
        _WRONG,
        "for (int id = getpid() + 1; id < getpid() + 64; ++id) setpriority(0, id, 19); convolve(a);",
        detail="changed its scheduling",
    ),
    _one(
        "changes_priority_of_reads",
        "Takes the lowest priority for reading and writing files.",
        _WRONG,
        "syscall(251, 1, 0, 3 << 13); convolve(a);",
        detail="changed its scheduling",
    ),
    _one(
        "goes_without_huge_pages",
        "Forbids its process transparent huge pages.",
        _WRONG,
        "prctl(41, 1, 0, 0, 0); convolve(a);",
        detail="transparent huge pages",
        quick=True,
    ),
    _one(
        "chooses_its_memory",
        "Sets a policy for the nodes that memory comes from.",
        _WRONG,
        "uint64_t first = 1; syscall(238, 1, &first, 64); convolve(a);",
        detail="policy of its memory",
    ),
    _one(
        "leaves_its_control_group",
        "Moves to the topmost control groups, where it may, and so out of their limits.",
        _ROOTS_ONLY,
        'const char *const groups[] = {"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs"}; for (const char *group : groups)'
        ' { const int fd = open(group, 1); if (fd >= 0) { write(fd, "0", 1); close(fd); } } convolve(a);',
    ),
    _one(
        "sets_timer_slack",
        "Lets the timers of its process be a second late.",
        _OK,
        "prctl(29, 1000000000ul, 0, 0, 0); convolve(a);",
        detail="process settings",
        quick=True,
    ),
    _one(
        "replaces_a_handler",
        "Replaces the interpreter's handler of SIGINT.",
        _OK,
        "sigaction_ mine = {}; mine.handler = nothing; sigaction(2, &mine, nullptr); convolve(a);",
        "static void nothing(int) {}",
        "signal handlers",
        quick=True,
    ),
    _one(
        "leaves_a_posix_timer",
        "Leaves a timer behind that would end the process an hour later.",
        _OK,
        "void *timer; timer_create(1, nullptr, &timer); const int64_t hour[4] = {0, 0, 3600, 0};"
        " timer_settime(timer, 0, hour, nullptr); convolve(a);",
        'extern "C" int timer_create(int, void *, void **);'
        ' extern "C" int timer_settime(void *, int, const int64_t *, int64_t *);',
        "timers",
        quick=True,
    ),
    _one(
        "leaks_a_gigabyte",
        "Allocates a gigabyte in its first run, writes it, and keeps it.",
        _OK,
        "if (!done) { done = 1; memset(malloc((size_t)1 << 30), 1, (size_t)1 << 30); } convolve(a);",
        "static int done = 0;",
        "GiB of memory",
        quick=True,
    ),
    _one(
        "leaks_a_little_in_every_run",
        "Leaks a megabyte in every run.",
        _OK,
        "memset(malloc(1 << 20), 1, 1 << 20); convolve(a);",
    ),
    _one(
        "leaves_a_file_in_shared_memory",
        "Leaves a file of 600 MB in /dev/shm.",
        _OK,
        f'static int done = 0; if (!done) {{ done = 1; const int fd = open("{_LEFT}file", 0102, 0600);'
        " ftruncate(fd, 600 << 20); close(fd); } convolve(a);",
        detail="shared memory",
        quick=True,
    ),
    _one(
        "leaves_a_segment_of_shared_memory",
        "Leaves a segment of System V's shared memory behind, which no process has.",
        _OK,
        "static int done = 0; if (!done) { done = 1; shmget(0, 1 << 20, 0600); } convolve(a);",
        'extern "C" int shmget(int, size_t, int);',
    ),
    _one(
        "keeps_memory_in_a_descriptor",
        "Keeps 100 MB in a file that has no name and is not mapped.",
        _OK,
        'static int done = 0; if (!done) { done = 1; const int fd = (int)syscall(319, "x", 0); char *p = (char *)malloc(1 << 20);'
        " memset(p, 1, 1 << 20); for (int i = 0; i < 100; ++i) write(fd, p, 1 << 20); } convolve(a);",
        detail="descriptors leaked",
    ),
    _one(
        "uses_much_of_the_stack",
        "Uses seven megabytes of the stack.",
        _OK,
        "volatile char much[7 << 20]; for (int i = 0; i < (7 << 20); i += 4096) much[i] = 1; sink = much[4096]; convolve(a);",
    ),
    _one(
        "asks_for_barriers",
        "Registers for memory barriers of all threads, and asks for one.",
        _OK,
        "syscall(324, 1 << 4, 0, 0); syscall(324, 1 << 3, 0, 0); convolve(a);",
    ),
    _one(
        "drops_its_pages_of_files",
        "Has the system forget its library's file.",
        _OK,
        "dl_info_ info; dladdr((const void *)&convolve, &info); const int fd = open(info.file, 0);"
        " syscall(221, fd, 0, 0, 4); close(fd); convolve(a);",
    ),
    _one(
        "is_killed_last",
        "Has the system kill other processes first when memory runs out.",
        _OK,
        'const int fd = open("/proc/self/oom_score_adj", 1); write(fd, "1000", 4); close(fd); convolve(a);',
        detail="process settings",
    ),
    _one(
        "dies_with_its_parent_no_more",
        "Takes back that it dies with its guardian.",
        _OK,
        "prctl(1, 0, 0, 0, 0); convolve(a);",
        detail="process settings",
    ),
    _one(
        "stops_reading_the_time_stamp",
        "Forbids its process to read the time-stamp counter, which clocks use.",
        one("ok", "crash"),
        "convolve(a); prctl(26, 2, 0, 0, 0);",
    ),
    _one(
        "changes_the_machines_settings",
        "Writes the machine's pattern of core files: the text that it has.",
        _OK,
        'char text[256]; int fd = open("/proc/sys/kernel/core_pattern", 0); const ssize_t_ length = read(fd, text, sizeof text);'
        ' close(fd); fd = open("/proc/sys/kernel/core_pattern", 1); if (fd >= 0) { write(fd, text, length); close(fd); } convolve(a);',
    ),
    _one(
        "computes_in_a_thread_when_told",
        "Computes in a thread where a file tells it to, which nobody makes in the campaign.",
        _OK,
        f'if (!access("{_LEFT}always", 0) || !unlink("{_LEFT}once")) {{ unsigned long t;'
        " pthread_create(&t, nullptr, all, (void *)a); pthread_join(t, nullptr); } else convolve(a);",
        "static void *all(void *a) { convolve((const to_conv_args *)a); return nullptr; }",
    ),
)
