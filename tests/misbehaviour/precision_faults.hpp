/* A forward 2D convolution of bf16 or fp16 with a fault of precision: `dtype` and `fault` are set by the test. */
#include "abi.h"

extern "C" {
__attribute__((visibility("default"))) int fault = 0; /* test_precision_faults.py: FAULTS */
__attribute__((visibility("default"))) int dtype = 0; /* 0 bf16, 1 fp16 */
}

static uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
static float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

/* The leading `digits` binary digits; half: 0 towards zero, 1 to nearest even, 2 to nearest, halves away from zero. */
static float digits_of(float value, int digits, int half) {
    const int low = 24 - digits;
    uint32_t word = bits_of(value);
    if (half == 1) word += (1u << (low - 1)) - 1 + (word >> low & 1);
    if (half == 2) word += 1u << (low - 1);
    return float_of(word & (0xFFFFFFFFu << low));
}

static int precision() { return dtype ? 11 : 8; }

static float load(const void *from, int64_t at) {
    float value = dtype ? (float)((const _Float16 *)from)[at] : float_of((uint32_t)((const uint16_t *)from)[at] << 16);
    if (fault == 1) return digits_of(value, 2, 1);
    if (fault == 2) return digits_of(value, 4, 1);
    if (fault == 3) return digits_of(value, 8, 1);
    if (fault == 4) return digits_of(value, precision() - 1, 0);
    if (fault == 10) return (float)(_Float16)value;
    if (fault == 11) return value > 32767 ? 32767 : value < -32768 ? -32768 : __builtin_rintf(value);
    if (fault == 12) return value < 1e-3f && value > -1e-3f ? 0 : value;
    if (fault == 13) return value > 1e5f ? 1e5f : value < -1e5f ? -1e5f : value;
    if (fault == 15) return value == value ? value : 0;
    if (fault == 16) return value > 3e38f ? 3e38f : value < -3e38f ? -3e38f : value;
    if (fault == 14) return __builtin_rintf(value * 16) / 16;
    return value;
}

static float rounded_sum(float sum) {
    if (fault == 5) return (float)(_Float16)sum;
    if (fault == 6) return digits_of(sum, 8, 1);
    return sum;
}

static void store(void *to, int64_t at, float value) {
    const int half = fault == 7 ? 0 : fault == 8 ? 2 : 1;
    value = digits_of(value, precision(), half);
    if (dtype) ((_Float16 *)to)[at] = (_Float16)value;
    else ((uint16_t *)to)[at] = (uint16_t)(bits_of(value) >> 16);
}

extern "C" {
int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
int64_t to_workspace_bytes(const to_conv_args *) { return 0; }

int32_t to_launch(const to_conv_args *a) {
    for (int64_t n = 0; n < a->N; ++n)
        for (int64_t ho = 0; ho < a->Ho; ++ho)
            for (int64_t wo = 0; wo < a->Wo; ++wo)
                for (int64_t q = 0; q < a->K; ++q) {
                    float sum = 0, block = 0;
                    int64_t count = 0;
                    for (int64_t r = 0; r < a->Y; ++r)
                        for (int64_t s = 0; s < a->X; ++s)
                            for (int64_t e = 0; e < a->C; ++e) {
                                const int64_t hi = ho * a->stride_h + r * a->dilation_h - a->pad_h;
                                const int64_t wi = wo * a->stride_w + s * a->dilation_w - a->pad_w;
                                const bool there = hi >= 0 && wi >= 0 && hi < a->Hi && wi < a->Wi;
                                if (!there && fault != 17) continue;
                                const int64_t h = hi < 0 ? 0 : hi < a->Hi ? hi : a->Hi - 1;
                                const int64_t w = wi < 0 ? 0 : wi < a->Wi ? wi : a->Wi - 1;
                                const float x = load(a->in0, ((n * a->Hi + h) * a->Wi + w) * a->C + e) * there;
                                const float product = x * load(a->in1, ((q * a->Y + r) * a->X + s) * a->C + e);
                                if (fault != 9) {
                                    sum = rounded_sum(sum + product);
                                    continue;
                                }
                                block += product;
                                if (++count % 8 == 0) sum += (float)(_Float16)block, block = 0;
                            }
                    store(a->out, ((n * a->Ho + ho) * a->Wo + wo) * a->K + q, sum + (float)(_Float16)block);
                }
    return TO_OK;
}
}
