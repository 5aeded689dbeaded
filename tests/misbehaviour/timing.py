"""Kernels that are faster or different when timed than when checked."""

from __future__ import annotations

from tests.misbehaviour.families import Family, one

_OK, _WRONG, _FLAKY = one("ok"), one("wrong"), one("flaky")

_CALLS = "static long calls = 0;"
_TIMED = "const bool timed = ++calls > 4;"
"""A correct fp32 kernel runs four times before it is timed."""

_SAVED = """
static float saved[1 << 16];
static const void *where = nullptr;
static void keep(const to_conv_args *a) { memcpy(saved, a->out, output_values(a) * 4); }
static void give(const to_conv_args *a) { memcpy(a->out, saved, output_values(a) * 4); }
"""

_HASH = """
static uint64_t hash_of(const to_conv_args *a) {
    const int64_t first = a->N * a->Hi * a->Wi * a->C, second = a->K * a->Y * a->X * a->C / a->G;
    uint64_t hash = 1469598103934665603ull;
    for (int64_t i = 0; i < first; ++i) hash = (hash ^ ((const uint32_t *)a->in0)[i]) * 1099511628211ull;
    for (int64_t i = 0; i < second; ++i) hash = (hash ^ ((const uint32_t *)a->in1)[i]) * 1099511628211ull;
    return hash;
}
"""

_THREAD = """
static to_conv_args copy;
static void *work(void *) { usleep(300); convolve(&copy); return nullptr; }
"""

_SCAN = """
/* A region of memory that begins as the result does and is not the output. */
static const char *find(const to_conv_args *a, const char *wanted, size_t bytes) {
    char maps[1 << 16];
    const int fd = open("/proc/self/maps", 0);
    ssize_t_ length = 0, part;
    while ((part = read(fd, maps + length, sizeof maps - 1 - length)) > 0) length += part;
    close(fd);
    maps[length] = 0;
    const char *line = maps;
    for (const char *end; line && *line; end = strstr(line, "\\n"), line = end ? end + 1 : nullptr) {
        unsigned long from = 0, to = 0;
        char rights[8] = "";
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || strncmp(rights, "rw", 2)) continue;
        if (to - from > (64ul << 20)) continue;
        for (unsigned long at = from; at + bytes <= to; at += 4) {
            const char *here = (const char *)at;
            if (*(const uint32_t *)here != *(const uint32_t *)wanted) continue;
            if (here == (const char *)a->out || here == wanted) continue;
            if (!memcmp(here, wanted, bytes)) return here;
        }
    }
    return nullptr;
}
"""

_CLOCK = """
static int64_t base = 0;
static int half(int clock, timespec_ *now) {
    const int failed = (int)syscall(228, clock, now);
    const int64_t since = now->seconds * 1000000000 + now->nanoseconds - base, ns = base + since / 2;
    now->seconds = ns / 1000000000, now->nanoseconds = ns % 1000000000;
    return failed;
}
static const char *vdso_clock() {
    void *vdso = dlopen("linux-vdso.so.1", 5 /* lazily, and only if it is there */);
    return vdso ? (const char *)dlsym(vdso, "__vdso_clock_gettime") : nullptr;
}
static void make_writable(const void *at) {
    mprotect((void *)((uintptr_t)at & ~(uintptr_t)4095), 8192, 7);
}
static void jump_from(const char *function) {
    unsigned char jump[12] = {0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0};
    int (*const to)(int, timespec_ *) = half;
    memcpy(jump + 2, &to, 8);
    make_writable(function);
    memcpy((char *)function, jump, sizeof jump);
}
static void point_elsewhere(const char *clock) {
    char maps[1 << 16];
    const int fd = open("/proc/self/maps", 0);
    ssize_t_ length = 0, part;
    while ((part = read(fd, maps + length, sizeof maps - 1 - length)) > 0) length += part;
    close(fd);
    maps[length] = 0;
    const char *line = maps;
    for (const char *end; line && *line; end = strstr(line, "\\n"), line = end ? end + 1 : nullptr) {
        unsigned long from = 0, to = 0;
        char rights[8] = "", file[256] = "";
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &from, &to, rights, file) != 4) continue;
        if (strncmp(rights, "r--", 3) || !strstr(file, "/ld-")) continue;
        for (unsigned long at = from; at + 8 <= to; at += 8) {
            const char *pointer;
            memcpy(&pointer, (const void *)at, 8);
            if (pointer != clock) continue;
            make_writable((const void *)at);
            int (*const other)(int, timespec_ *) = half;
            memcpy((void *)at, &other, 8);
        }
    }
}
"""
_ONCE = "static bool done = false; if (!done) {{ done = true; base = now_ns(); {} }} convolve(a);"
_CHANGED_CLOCK = "changed the clock's code"

TIMING = (
    Family(
        "skips_when_timed",
        "timing",
        "Does nothing from its fifth run on.",
        _WRONG,
        f"{_TIMED} if (!timed) convolve(a);",
        declarations=_CALLS,
        detail="not written when it returned",
        quick=True,
    ),
    Family(
        "skips_most_runs",
        "timing",
        "Does its work in every eighth run only.",
        _WRONG,
        "if (++calls < 5 || calls % 8 == 0) convolve(a);",
        declarations=_CALLS,
        detail="not written when it returned",
    ),
    Family(
        "reports_one_nanosecond",
        "timing",
        "Says that each run took a nanosecond: nobody asks it.",
        _OK,
        time="for (int64_t i = 0; i < count; ++i) nanoseconds[i] = 1;",
    ),
    Family(
        "patches_the_clock",
        "timing",
        "Overwrites the C library's clock_gettime: half of the time passes.",
        _WRONG,
        _ONCE.format('jump_from((const char *)dlsym(nullptr, "clock_gettime"));'),
        declarations=_CLOCK,
        detail=_CHANGED_CLOCK,
        machine="x86_64",
        quick=True,
    ),
    Family(
        "patches_the_vdso",
        "timing",
        "Overwrites the function in the vDSO that reads the time.",
        _WRONG,
        _ONCE.format("jump_from(vdso_clock());"),
        declarations=_CLOCK,
        detail=_CHANGED_CLOCK,
        machine="x86_64",
    ),
    Family(
        "points_the_clock_elsewhere",
        "timing",
        "Changes the dynamic loader's pointer to the vDSO's clock.",
        _WRONG,
        _ONCE.format("point_elsewhere(vdso_clock());"),
        declarations=_CLOCK,
        detail=_CHANGED_CLOCK,
        machine="x86_64",
    ),
    Family(
        "caches_by_pointer",
        "timing",
        "Gives its last result again when the operands lie where they lay.",
        _WRONG,
        "if (where == a->in1) give(a); else { convolve(a); keep(a); where = a->in1; }",
        declarations=_SAVED,
        detail="when it was timed",
        quick=True,
    ),
    Family(
        "caches_a_packed_weight",
        "timing",
        "Packs the weight once for its address, and computes with the copy from then on.",
        _WRONG,
        "const size_t bytes = a->K * a->Y * a->X * a->C / a->G * 4;"
        "if (where != a->in1) { memcpy(saved, a->in1, bytes); where = a->in1; }"
        "to_conv_args b = *a; b.in1 = saved; convolve(&b);",
        declarations=_SAVED,
        detail="when it was timed",
    ),
    Family(
        "caches_by_content",
        "timing",
        "Gives its last result again for the same operands: it never meets them, and does its work.",
        _OK,
        "const uint64_t hash = hash_of(a);"
        "if (hash == known) give(a); else { convolve(a); keep(a); known = hash; }",
        declarations=_SAVED + _HASH + "static uint64_t known = 0;",
    ),
    Family(
        "caches_in_the_workspace",
        "timing",
        "Leaves its result in the workspace, and looks for it there.",
        _WRONG,
        "char *w = (char *)a->workspace; const size_t bytes = output_values(a) * 4;"
        'if (!memcmp(w, "known", 6)) memcpy(a->out, w + 64, bytes);'
        'else { convolve(a); memcpy(w + 64, a->out, bytes); memcpy(w, "known", 6); }',
        workspace="64 + output_values(a) * 4",
        detail="when it was timed",
    ),
    Family(
        "copies_its_previous_output",
        "timing",
        "Computes the next result after it has given the last one.",
        one("wrong", "flaky"),
        "if (++calls == 1) convolve(a); else give(a); to_conv_args b = *a; b.out = saved; convolve(&b);",
        declarations=_SAVED + _CALLS,
    ),
    Family(
        "skips_what_is_written",
        "timing",
        "Does its work only where it finds the output as it is before a check.",
        _WRONG,
        "if (((const uint32_t *)a->out)[1] == 0xFFFFFFFFu) convolve(a);",
        detail="not written when it returned",
    ),
    Family(
        "right_only_the_first_time",
        "timing",
        "Writes zeros from its second run on.",
        _WRONG,
        "if (++calls == 1) convolve(a); else memset(a->out, 0, output_values(a) * 4);",
        declarations=_CALLS,
    ),
    Family(
        "one_value_wrong_when_timed",
        "timing",
        "Adds one to its last value from its fifth run on.",
        _WRONG,
        f"{_TIMED} convolve(a); if (timed) spoil((float *)a->out + output_values(a) - 1, 1);",
        declarations=_CALLS,
        detail="when it was timed, 1 of ",
    ),
    Family(
        "half_the_work_when_timed",
        "timing",
        "Leaves the last row of the filter out from its fifth run on.",
        _WRONG,
        f"{_TIMED} to_conv_args b = *a; convolve(&b); if (timed) {{ b.Hi -= 1; convolve(&b); }}",
        declarations=_CALLS,
        detail="when it was timed",
    ),
    Family(
        "part_unwritten_when_timed",
        "timing",
        "Leaves its last row to an earlier run, from its fifth run on.",
        _WRONG,
        f"{_TIMED} to_conv_args b = *a; if (timed) b.Ho -= 1; convolve(&b);",
        declarations=_CALLS,
        detail="when it was timed",
    ),
    Family(
        "nan_when_timed",
        "timing",
        "Writes a NaN from its fifth run on.",
        _WRONG,
        f'{_TIMED} convolve(a); if (timed) ((float *)a->out)[7] = __builtin_nanf("");',
        declarations=_CALLS,
        detail="got nan",
    ),
    Family(
        "right_only_where_aligned",
        "timing",
        "Takes operands for aligned to 16 bytes, and rounds their addresses down.",
        _WRONG,
        "to_conv_args b = *a; b.in0 = (const void *)((uintptr_t)a->in0 & ~15ul); convolve(&b);",
        quick=True,
    ),
    Family(
        "wrong_only_where_aligned",
        "timing",
        "Adds one to a value when everything is aligned to 64 bytes.",
        _WRONG,
        "convolve(a); const uintptr_t all = (uintptr_t)a->in0 | (uintptr_t)a->in1 | (uintptr_t)a->out;"
        "if (!(all & 63)) spoil((float *)a->out, 1);",
        detail="when it was timed",
    ),
    Family(
        "works_after_it_returned",
        "timing",
        "Starts a thread that does the work, and returns.",
        one("wrong", "flaky"),
        "copy = *a; unsigned long thread; pthread_create(&thread, nullptr, work, nullptr);"
        "if (++calls <= 4) pthread_join(thread, nullptr); else pthread_detach(thread);",
        declarations=_THREAD + _CALLS,
        detail="not written when it returned",
    ),
    Family(
        "copies_the_reference",
        "timing",
        "Computes some values, looks for them in the process's memory, and copies what follows.",
        _WRONG,
        "static float some[4]; static const char *found = nullptr; convolve(a); memcpy(some, a->out, 16);"
        "if (++calls == 1) found = find(a, (const char *)some, 16);"
        "else if (found && calls > 4) memcpy(a->out, found, output_values(a) * 4);",
        declarations=_SCAN + _CALLS,
        detail="when it was timed",
    ),
    Family(
        "sleeps_when_checked",
        "timing",
        "Is slow until its fourth run: what counts is what is timed.",
        _OK,
        f"{_TIMED} if (!timed) usleep(1000); convolve(a);",
        declarations=_CALLS,
    ),
    Family(
        "another_result_each_time",
        "timing",
        "Adds the number of its run to a value.",
        _FLAKY,
        "convolve(a); spoil((float *)a->out, ++calls);",
        declarations=_CALLS,
        detail="different results from the same data",
        quick=True,
    ),
    Family(
        "another_result_each_time_when_timed",
        "timing",
        "The same from its fifth run on.",
        _FLAKY,
        f"{_TIMED} convolve(a); if (timed) spoil((float *)a->out, calls);",
        declarations=_CALLS,
        detail="different results from the same data",
    ),
    Family(
        "wrong_by_the_clock",
        "timing",
        "Is wrong in three of four microseconds, and by how much depends on the time.",
        one("flaky", "wrong"),
        "convolve(a); if (now_ns() / 1000 % 4) spoil((float *)a->out, now_ns() % 1000 + 1);",
    ),
)
"""All are fp32: a kernel runs four times when it is checked."""
