// A dispatcher that picks among its own three functions. The selector is exported for these kernels alone:
//
//     tile-oracle export grouped_conv_forward_bf16_gfx950 -o exported --kernels selector/example/dispatch/names.txt
//     make -C exported
//     exported/build/dispatch exported/forward_bf16_2d.selector < problems
//
// A problem is a line "N C K G Hi Wi Y X stride pad". For each it prints the place of the solution in `table`
// and the sum of the result, or "none" where no function supports the problem.
#include <cstdio>
#include <exception>
#include <iostream>
#include <numeric>
#include <vector>

#include "kernels.hpp"
#include "tile_oracle/solutions.hpp"

namespace {

struct Functions {
    bool (*is_supported)(const tile_oracle::GroupedConvProblem&);
    void (*launch)(const library::Arguments&);
};

template <class Kernel>
constexpr Functions functions_of = {Kernel::is_supported, Kernel::launch};

constexpr tile_oracle::Solution<Functions> table[] = {
    {"grouped_conv_forward_bf16_2d_128x64x128_compv5_intrawave",
     functions_of<library::GroupedConvForward<128, 64, 128, 8>>},
    {"grouped_conv_forward_bf16_2d_16x64x64_compv3_intrawave",
     functions_of<library::GroupedConvForward<16, 64, 64, 1>>},
    {"grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave",
     functions_of<library::GroupedConvForward<64, 64, 64, 4>>},
};

/// Runs the solution on operands of small integers, whose sums are exact in any order.
double sum_of_result(const tile_oracle::Solution<Functions>& solution, const tile_oracle::GroupedConvProblem& p) {
    std::vector<float> x(static_cast<std::size_t>(p.N * p.Hi * p.Wi * p.C));
    std::vector<float> w(static_cast<std::size_t>(p.K * p.Y * p.X * (p.C / p.G)));
    std::vector<float> y(static_cast<std::size_t>(p.N * library::out_height(p) * library::out_width(p) * p.K));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 2;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 1;
    solution.function.launch({p, x.data(), w.data(), y.data()});
    return std::accumulate(y.begin(), y.end(), 0.0);
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) {
        std::fprintf(stderr, "usage: dispatch FILE.selector < problems\n");
        return 2;
    }
    try {
        const tile_oracle::Solutions solutions(tile_oracle::Selector::load(words[1]), table);
        tile_oracle::GroupedConvProblem p;
        while (std::cin >> p.N >> p.C >> p.K >> p.G >> p.Hi >> p.Wi >> p.Y >> p.X >> p.stride_h >> p.pad_h) {
            p.stride_w = p.stride_h, p.pad_w = p.pad_h;
            const auto place =
                solutions.get_solution(p, [&](std::size_t i) { return table[i].function.is_supported(p); });
            if (place)
                std::printf("%zu %.0f\n", *place, sum_of_result(table[*place], p));
            else
                std::puts("none");
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dispatch: %s\n", error.what());
        return 2;
    }
    return 0;
}
