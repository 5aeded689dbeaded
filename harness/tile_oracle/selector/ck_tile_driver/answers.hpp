// What a heuristic of Composable Kernel says of all registered kernels, in the form that ck_tile_parity.py reads.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "lightgbm_calls.hpp"

/// Appends for each kernel: score, status of LightGBM, its data type and number of features, WIDTH features as
/// LightGBM reads them, and WIDTH as doubles; then the kernels' numbers, best first, -1 for an identifier that is no
/// kernel's.
template <class Heuristic, class Registry, class Problem>
void answer(const Heuristic& heuristic, const Registry& registry, const Problem& problem,
            const std::map<std::string, int>& number_of, int width, std::vector<double>& out) {
    for (const auto& one : registry.all) {
        lightgbm_calls::last = {};
        out.push_back(heuristic.predict_tflops(problem, one->get_key()));
        const auto& call = lightgbm_calls::last;
        out.insert(out.end(), {double(call.status), double(call.data_type), double(call.columns)});
        for (const auto* values : {&call.features, &call.doubles})
            for (int i = 0; i < width; ++i) out.push_back(i < int(values->size()) ? (*values)[i] : 0.0);
    }
    const auto order = heuristic(problem);
    for (std::size_t i = 0; i < registry.all.size(); ++i) {
        const auto found = i < order.size() ? number_of.find(order[i]) : number_of.end();
        out.push_back(found == number_of.end() ? -1 : found->second);
    }
}

/// Writes the numbers; the program's exit status.
inline int written(const std::vector<double>& out, const char* path) {
    std::FILE* file = std::fopen(path, "wb");
    const bool whole = file && std::fwrite(out.data(), sizeof(double), out.size(), file) == out.size();
    return file && std::fclose(file) == 0 && whole ? 0 : 1;
}
