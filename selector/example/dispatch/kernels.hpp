// Stands for a library of kernels like CK Tile: one template, an instance for each configuration, and a
// function that says whether an instance supports a problem. It runs on the CPU, so that the example needs
// no GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tile_oracle/selector.hpp"

namespace library {

using tile_oracle::GroupedConvProblem;

inline std::int64_t out_height(const GroupedConvProblem& p) {
    return (p.Hi + 2 * p.pad_h - p.dilation_h * (p.Y - 1) - 1) / p.stride_h + 1;
}
inline std::int64_t out_width(const GroupedConvProblem& p) {
    return (p.Wi + 2 * p.pad_w - p.dilation_w * (p.X - 1) - 1) / p.stride_w + 1;
}

/// Operands in the layouts NHWGC, GKYXC and NHWGK.
struct Arguments {
    GroupedConvProblem problem;
    const float* x;
    const float* w;
    float* y;
};

/// Forward convolution as an implicit GEMM of M = N Ho Wo, N = K / G, K = Y X C / G, tile by tile.
template <int tile_m, int tile_n, int tile_k, int vector_c>
struct GroupedConvForward {
    static bool is_supported(const GroupedConvProblem& p) { return p.C / p.G % vector_c == 0; }

    static void launch(const Arguments& a) {
        const GroupedConvProblem& p = a.problem;
        const std::int64_t m = p.N * out_height(p) * out_width(p), n = p.K / p.G, k = p.Y * p.X * (p.C / p.G);
        for (std::int64_t group = 0; group < p.G; ++group)
            for (std::int64_t m0 = 0; m0 < m; m0 += tile_m)
                for (std::int64_t n0 = 0; n0 < n; n0 += tile_n)
                    tile(a, group, m0, std::min<std::int64_t>(m0 + tile_m, m), n0,
                         std::min<std::int64_t>(n0 + tile_n, n), k);
    }

private:
    static void tile(const Arguments& a, std::int64_t group, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                     std::int64_t n1, std::int64_t k) {
        std::vector<float> sums(static_cast<std::size_t>(tile_m) * tile_n);
        for (std::int64_t k0 = 0; k0 < k; k0 += tile_k)
            for (std::int64_t row = m0; row < m1; ++row)
                for (std::int64_t at = k0; at < std::min<std::int64_t>(k0 + tile_k, k); ++at) {
                    const float value = pixel(a, group, row, at);
                    const float* w = a.w + (group * (a.problem.K / a.problem.G) + n0) * k + at;
                    float* sum = sums.data() + (row - m0) * tile_n;
                    for (std::int64_t column = n0; column < n1; ++column, w += k) *sum++ += value * *w;
                }
        for (std::int64_t row = m0; row < m1; ++row)
            for (std::int64_t column = n0; column < n1; ++column)
                a.y[row * a.problem.K + group * (a.problem.K / a.problem.G) + column] =
                    sums[static_cast<std::size_t>((row - m0) * tile_n + column - n0)];
    }

    /// A(row, at) of the implicit GEMM: a value of x, or zero in the padding.
    static float pixel(const Arguments& a, std::int64_t group, std::int64_t row, std::int64_t at) {
        const GroupedConvProblem& p = a.problem;
        const std::int64_t width = out_width(p), height = out_height(p), channels = p.C / p.G;
        const std::int64_t c = at % channels, x = at / channels % p.X, y = at / channels / p.X;
        const std::int64_t h = row / width % height * p.stride_h - p.pad_h + y * p.dilation_h;
        const std::int64_t w = row % width * p.stride_w - p.pad_w + x * p.dilation_w;
        if (h < 0 || h >= p.Hi || w < 0 || w >= p.Wi) return 0;
        return a.x[((row / width / height * p.Hi + h) * p.Wi + w) * p.C + group * channels + c];
    }
};

}  // namespace library
