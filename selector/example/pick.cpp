// Ranks the kernels of an exported selector for one problem:
//
//     pick forward_bf16_2d.selector N=8 C=64 K=64 Hi=56 Wi=56 Y=3 X=3 pad_h=1 pad_w=1
//
// Prints the five best, best first, with their predicted TFLOPS, and how long one pick takes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tile_oracle/selector.hpp"

namespace {

/// The problem's values in the order of fields(): 1, or 0 for padding, where the command line says nothing.
std::vector<double> values_of(const tile_oracle::Selector& selector, int count, char** words) {
    std::vector<double> values;
    for (const std::string& field : selector.fields()) values.push_back(field.starts_with("pad") ? 0 : 1);
    for (int i = 0; i < count; ++i) {
        const std::string word = words[i];
        const std::size_t equals = word.find('=');
        const auto fields = selector.fields();
        const auto found = std::find(fields.begin(), fields.end(), word.substr(0, equals));
        if (equals == std::string::npos || found == fields.end())
            throw std::invalid_argument(word + " is not FIELD=VALUE with a field of " + selector.kind());
        values[static_cast<std::size_t>(found - fields.begin())] = std::atof(word.c_str() + equals + 1);
    }
    return values;
}

}  // namespace

int main(int count, char** words) {
    if (count < 2) {
        std::fprintf(stderr, "usage: pick FILE.selector FIELD=VALUE...\n");
        return 2;
    }
    try {
        const auto selector = tile_oracle::Selector::load(words[1]);
        const auto values = values_of(selector, count - 2, words + 2);
        std::printf("%s on %s, %u kernels\n", selector.kind().c_str(), selector.arch().c_str(), selector.size());
        for (const auto& [kernel, tflops] : selector.rank(values, 5))
            std::printf("%9.2f TFLOPS  %s\n", tflops, selector.name(kernel).c_str());

        using Clock = std::chrono::steady_clock;
        std::vector<double> microseconds;
        for (int i = 0; i < 200; ++i) {
            const auto start = Clock::now();
            if (selector.pick(values) >= selector.size()) return 1;
            microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
        }
        std::nth_element(microseconds.begin(), microseconds.begin() + 100, microseconds.end());
        std::printf("one pick: %.1f us (median of 200)\n", microseconds[100]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pick: %s\n", error.what());
        return 2;
    }
    return 0;
}
