// Forward convolution in 2D of fp32, NHWGC by GKYXC: CHANNELS output channels and PIXELS pixels of a row at once.
#include "abi.h"

namespace {

constexpr int64_t channels = CHANNELS;
constexpr int64_t pixels = PIXELS;

/// The block of outputs of image n, row i, pixels from j, channels from o.
void block(const to_conv_args& a, int64_t n, int64_t i, int64_t j, int64_t o) {
    const auto* const x = static_cast<const float*>(a.in0);
    const auto* const w = static_cast<const float*>(a.in1);
    auto* const y = static_cast<float*>(a.out);
    const int64_t inputs = a.C / a.G;
    const int64_t first_input = o / (a.K / a.G) * inputs;
    float sums[pixels][channels] = {};
    for (int64_t r = 0; r < a.Y; ++r) {
        const int64_t h = i * a.stride_h + r * a.dilation_h - a.pad_h;
        if (h < 0 || h >= a.Hi) continue;
        for (int64_t s = 0; s < a.X; ++s) {
            for (int64_t p = 0; p < pixels; ++p) {
                const int64_t v = (j + p) * a.stride_w + s * a.dilation_w - a.pad_w;
                if (j + p >= a.Wo || v < 0 || v >= a.Wi) continue;
                const float* const from = x + ((n * a.Hi + h) * a.Wi + v) * a.C + first_input;
                for (int64_t q = 0; q < channels; ++q) {
                    const float* const weights = w + (((o + q) * a.Y + r) * a.X + s) * inputs;
                    float sum = sums[p][q];
                    for (int64_t e = 0; e < inputs; ++e) sum += from[e] * weights[e];
                    sums[p][q] = sum;
                }
            }
        }
    }
    for (int64_t p = 0; p < pixels && j + p < a.Wo; ++p) {
        for (int64_t q = 0; q < channels; ++q) y[((n * a.Ho + i) * a.Wo + j + p) * a.K + o + q] = sums[p][q];
    }
}

}  // namespace

extern "C" {

int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
int64_t to_workspace_bytes(const to_conv_args*) { return 0; }

int32_t to_launch(const to_conv_args* a) {
    for (int64_t n = 0; n < a->N; ++n) {
        for (int64_t i = 0; i < a->Ho; ++i) {
            for (int64_t j = 0; j < a->Wo; j += pixels) {
                for (int64_t o = 0; o < a->K; o += channels) block(*a, n, i, j, o);
            }
        }
    }
    return TO_OK;
}
}
