"""Kernels that save work between runs: by what changes, by addresses, calls, the clock and open files."""

from __future__ import annotations

from tests.misbehaviour.families import Family, one

_OK, _WRONG, _FAIL = one("ok"), one("wrong"), one("wrong", "flaky")

_COPIES = """
static float old_x[1 << 16], old_w[1 << 16], old_y[1 << 16];
static bool known = false;
static long calls = 0;
static int64_t in_x(const to_conv_args *a) { return a->N * a->Hi * a->Wi * a->C; }
static int64_t in_w(const to_conv_args *a) { return a->K * a->Y * a->X * a->C / a->G; }
static void note(const to_conv_args *a) {
    memcpy(old_x, a->in0, in_x(a) * 4), memcpy(old_w, a->in1, in_w(a) * 4);
    memcpy(old_y, a->out, output_values(a) * 4), known = true;
}
static void give(const to_conv_args *a) { memcpy(a->out, old_y, output_values(a) * 4); }
/* Whether at most this many elements differ from those of the run before. */
static bool alike(const float *now, const float *then, int64_t count, int64_t most) {
    int64_t differ = 0;
    for (int64_t i = 0; i < count; ++i) differ += now[i] != then[i];
    return differ <= most;
}
static void columns(const to_conv_args *a, int64_t from, int64_t to) { /* only these of the result */
    static float all[1 << 16];
    to_conv_args b = *a;
    b.out = all, convolve(&b);
    for (int64_t i = 0; i < output_values(a); ++i)
        if (i % a->K >= from && i % a->K < to) ((float *)a->out)[i] = all[i];
}
"""


def _family(name: str, does: str, launch: str, statuses: frozenset[str] = _FAIL, **more: object) -> Family:
    return Family(name, "saving", does, statuses, launch, declarations=_COPIES, **more)  # type: ignore[arg-type]


SAVING = (
    _family(
        "computes_what_one_weight_changes",
        "Gives its last result, and computes only the column whose weight has changed.",
        "if (!known) convolve(a); else { give(a); for (int64_t q = 0, n = in_w(a) / a->K; q < a->K; ++q)"
        "if (!alike((const float *)a->in1 + q * n, old_w + q * n, n, 0)) { columns(a, q, q + 1); break; } }"
        "note(a);",
        quick=True,
    ),
    _family(
        "computes_what_the_weights_change",
        "The same for all columns whose weights have changed: all have, in every run.",
        "if (!known) convolve(a); else { give(a); for (int64_t q = 0, n = in_w(a) / a->K; q < a->K; ++q)"
        "if (!alike((const float *)a->in1 + q * n, old_w + q * n, n, 0)) columns(a, q, q + 1); } note(a);",
        _OK,
    ),
    _family(
        "computes_all_if_much_changes",
        "Looks for what has changed and saves its work where that is little: it never is.",
        "if (known && alike((const float *)a->in0, old_x, in_x(a), 4) && alike((const float *)a->in1, old_w,"
        "in_w(a), 4)) give(a); else convolve(a); note(a);",
        _OK,
    ),
    _family(
        "trusts_the_first_operand",
        "Packs the first operand once for its address, and computes with the copy.",
        "static const void *seen = nullptr; if (seen != a->in0) note(a), seen = a->in0;"
        "to_conv_args b = *a; b.in0 = old_x; convolve(&b);",
        quick=True,
    ),
    _family(
        "trusts_the_magnitudes",
        "Packs the first operand once, and takes only its first sign from each run.",
        "static const void *seen = nullptr; static float first = 0;"
        "if (seen != a->in0) note(a), seen = a->in0, first = *(const float *)a->in0;"
        "to_conv_args b = *a; b.in0 = old_x; convolve(&b);"
        "if (*(const float *)a->in0 != first) for (int64_t i = 0; i < output_values(a); ++i)"
        "((float *)a->out)[i] = -((float *)a->out)[i];",
    ),
    _family(
        "works_in_the_last_run_only",
        "Works where the weights are those of its check, as the last run of a batch once had them.",
        "if (!known) { convolve(a); if (++calls > 3) note(a); }"
        "else if (alike((const float *)a->in1, old_w, in_w(a), 0)) convolve(a); else give(a);",
        quick=True,
    ),
    _family(
        "works_in_every_fourth_run",
        "Gives an earlier result in three of four runs.",
        "if (++calls < 6 || calls % 4 == 0) convolve(a), note(a); else give(a);",
    ),
    _family(
        "writes_what_was_watched",
        "Computes the 16 values that earlier versions looked at, and gives an earlier result for the rest.",
        "if (++calls < 6) convolve(a), note(a); else { static float all[1 << 16]; to_conv_args b = *a;"
        "b.out = all, convolve(&b), give(a); const int64_t last = output_values(a) - 1;"
        "for (int64_t i = 0; i < 16; ++i) ((float *)a->out)[last * i / 15] = all[last * i / 15]; }",
    ),
    _family(
        "writes_where_it_finds_poison",
        "Keeps the values of its last result that it still finds: the harness spoils 16 of them.",
        "if (++calls < 6) convolve(a), note(a); else { static float all[1 << 16]; to_conv_args b = *a;"
        "b.out = all, convolve(&b); for (int64_t i = 0; i < output_values(a); ++i)"
        "if (((const unsigned char *)a->out)[4 * i + 3] == 0xFF) ((float *)a->out)[i] = all[i]; }",
    ),
    _family(
        "rests_where_it_was_timed",
        "Does nothing where its output lies at an address that 64 divides, from its seventh run on.",
        "if (++calls < 7 || (uintptr_t)a->out & 63) convolve(a);",
        _WRONG,
    ),
    _family(
        "rests_by_the_clock",
        "Does nothing where less than a millisecond has passed since its last run.",
        "static int64_t then = 0; const int64_t now = now_ns(); if (++calls < 6 || now - then > 1000000)"
        "convolve(a); then = now;",
    ),
    _family(
        "rests_while_its_journal_grows",
        "Does nothing once the harness has files open for writing, from its seventh run on.",
        "char name[64]; bool open_ = false; for (int fd = 3; fd < 32; ++fd) { snprintf(name, 64,"
        '"/proc/self/fd/%d", fd); open_ |= access(name, 2) == 0; }'
        "if (++calls < 7 || !open_) convolve(a);",
        one("wrong", "flaky", "ok"),
    ),
)
"""All are fp32: a kernel runs four times when it is checked."""
