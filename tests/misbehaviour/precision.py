"""Kernels that compute with less precision than required, in fp32."""

from __future__ import annotations

from tests.misbehaviour.families import Family, one

_WRONG = one("wrong")

_CONVOLVE = """
static float cut(float value, int bits) { /* towards zero */
    uint32_t word = __builtin_bit_cast(uint32_t, value) & (0xFFFFFFFFu << (24 - bits));
    return __builtin_bit_cast(float, word);
}
static float near(float value, int bits) { /* to nearest even */
    uint32_t word = __builtin_bit_cast(uint32_t, value);
    const int low = 24 - bits;
    word += (1u << (low - 1)) - 1 + (word >> low & 1);
    return __builtin_bit_cast(float, word & (0xFFFFFFFFu << low));
}
template <class First, class Second, class Sum>
static void convolve_with(const to_conv_args *a, First first, Second second, Sum add) {
    const float *x = (const float *)a->in0, *w = (const float *)a->in1;
    float *y = (float *)a->out;
    for (int64_t n = 0; n < a->N; ++n)
    for (int64_t ho = 0; ho < a->Ho; ++ho)
    for (int64_t wo = 0; wo < a->Wo; ++wo)
    for (int64_t q = 0; q < a->K; ++q) {
        float sum = 0;
        for (int64_t r = 0; r < a->Y; ++r)
        for (int64_t s = 0; s < a->X; ++s)
        for (int64_t e = 0; e < a->C; ++e) {
            const int64_t hi = ho * a->stride_h + r * a->dilation_h - a->pad_h;
            const int64_t wi = wo * a->stride_w + s * a->dilation_w - a->pad_w;
            if (hi < 0 || wi < 0 || hi >= a->Hi || wi >= a->Wi) continue;
            const float p = first(x[((n * a->Hi + hi) * a->Wi + wi) * a->C + e]);
            sum = add(sum + p * second(w[((q * a->Y + r) * a->X + s) * a->C + e]));
        }
        y[((n * a->Ho + ho) * a->Wo + wo) * a->K + q] = sum;
    }
}
#define SAME [](float v) { return v; }
#define CUT(bits) [](float v) { return cut(v, bits); }
#define TO(type) [](float v) { return (float)(type)v; }
#define FLUSH [](float v) { return v < 1e-3f && v > -1e-3f ? 0 : v; }
#define CLAMP [](float v) { return v > 1e5f ? 1e5f : v < -1e5f ? -1e5f : v; }
#define SPREAD [a](float v) { return v + 0 * *(const float *)a->in0; }
#define NUMBER [](float v) { return v == v ? v : 0; }
#define FINITE [](float v) { return v > 3e38f ? 3e38f : v < -3e38f ? -3e38f : v; }
#define NEAR(bits) [](float v) { return near(v, bits); }
"""


def _family(name: str, does: str, first: str, second: str, add: str, quick: bool = False) -> Family:
    launch = f"convolve_with(a, {first}, {second}, {add});"
    return Family(name, "precision", does, _WRONG, launch, declarations=_CONVOLVE, quick=quick)


PRECISION = (
    _family("fp32_as_bf16", "Cuts both operands to bf16.", "CUT(8)", "CUT(8)", "SAME"),
    _family("fp32_as_tf32", "Rounds both operands to tf32.", "NEAR(11)", "NEAR(11)", "SAME", quick=True),
    _family("first_operand_as_tf32", "Rounds the first operand to tf32.", "NEAR(11)", "SAME", "SAME"),
    _family("second_operand_as_tf32", "Rounds the second operand to tf32.", "SAME", "NEAR(11)", "SAME"),
    _family("first_operand_23_bits", "Cuts the last bit of the first operand.", "CUT(23)", "SAME", "SAME"),
    _family("second_operand_23_bits", "Cuts the last bit of the second one.", "SAME", "CUT(23)", "SAME"),
    _family("sums_in_fp16_digits", "Adds with 11 bits.", "SAME", "SAME", "NEAR(11)"),
    _family("sums_in_bf16_digits", "Adds with 8 bits.", "SAME", "SAME", "NEAR(8)"),
    _family("fp32_as_integers", "Takes operands for integers.", *("TO(int64_t)",) * 2, "SAME"),
    _family("fp32_through_fp16", "Stores both operands as fp16.", *("TO(_Float16)",) * 2, "SAME"),
    _family("fp32_small_flushed", "Takes values under 1e-3 for zero.", "FLUSH", "FLUSH", "SAME"),
    _family("fp32_large_clamped", "Takes values over 1e5 for 1e5.", "CLAMP", "CLAMP", "SAME"),
    _family("nan_dropped", "Takes NaN for zero.", "NUMBER", "NUMBER", "SAME", quick=True),
    _family("nan_of_the_second_dropped", "Takes a NaN weight for zero.", "SAME", "NUMBER", "SAME"),
    _family("infinities_clamped", "Takes infinities for a large number.", "FINITE", "FINITE", "SAME"),
    _family("nan_spread", "Adds the first element, times zero, to each sum.", "SAME", "SAME", "SPREAD"),
    _family("sums_in_20_bits", "Adds with 20 bits.", "SAME", "SAME", "NEAR(20)"),
)
"""fp32 operands and sums with fewer than 24 bits, or without infinities and NaN."""
