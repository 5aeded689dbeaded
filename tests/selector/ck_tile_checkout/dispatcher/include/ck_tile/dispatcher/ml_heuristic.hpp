// A double of Composable Kernel's ml_heuristic.hpp: its interface, with code and comments of our own. The tests plant
// faults in copies of it.
#pragma once

#include "ck_tile/dispatcher/dispatcher.hpp"
#include "ck_tile/dispatcher/kernel_key.hpp"
#include "ck_tile/dispatcher/registry.hpp"
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ck_tile { namespace dispatcher {

extern "C" {
int LGBM_BoosterCreateFromModelfile(const char*, int*, void**);
int LGBM_BoosterPredictForMat(void*, const void*, int, int, int, int, int, int, int, const char*, std::int64_t*, double*);
int LGBM_BoosterFree(void*);
}

struct HardwareProfile {
    int num_cus = 0, max_clock_mhz = 0, lds_capacity = 65536;

    static HardwareProfile fromDevice(int device = 0) {
        HardwareProfile found;
        hipDeviceProp_t properties{};
        if (hipGetDeviceProperties(&properties, device) == hipSuccess) {
            found.num_cus = properties.multiProcessorCount;
            found.max_clock_mhz = properties.clockRate / 1000;
        }
        return found;
    }
};

inline double code_of(Pipeline one) {
    if (one == Pipeline::CompV4) return 1;
    if (one == Pipeline::CompV5) return 2;
    if (one == Pipeline::Mem) return 3;
    if (one == Pipeline::PreShuffleV2) return 4;
    return one == Pipeline::CompV6 ? 6 : 0;
}

/// All columns, in the order of the model's feature_spec.json.
inline std::vector<double> features_of(const Problem& problem, const KernelKey& key, const HardwareProfile& hardware) {
    const auto& with = key.algorithm;
    const double m = problem.M, n = problem.N, k = problem.K;
    const double size[] = {m, n, k};
    const double bytes = key.signature.dtype_a == DataType::FP8 ? 1 : key.signature.dtype_a == DataType::FP32 ? 4 : 2;
    const bool a = key.signature.layout_a == LayoutTag::RowMajor, b = key.signature.layout_b == LayoutTag::RowMajor;
    std::vector<double> out{m, n, k, double(problem.k_batch), std::log2(m), std::log2(n), std::log2(k), std::log2(m * n * k)};
    out.insert(out.end(), {2 * m * n * k / ((m * k + k * n + m * n) * bytes), m / n, m / k, n / k});
    out.push_back(a ? b : b ? 2 : 3);
    for (const auto& one : {with.tile_shape, with.wave_shape, with.warp_tile_shape})
        out.insert(out.end(), {double(one.m), double(one.n), double(one.k)});
    out.insert(out.end(), {code_of(with.pipeline), double(with.scheduler == Scheduler::Interwave),
                           double(with.epilogue == Epilogue::CShuffle)});
    const double pads[] = {double(with.pad_m), double(with.pad_n), double(with.pad_k)};
    out.insert(out.end(), {pads[0], pads[1], pads[2], double(with.persistent)});
    const double tile[] = {double(with.tile_shape.m), double(with.tile_shape.n), double(with.tile_shape.k)};
    const double lds = (tile[0] + tile[1]) * tile[2] * bytes;
    const double room = with.pipeline == Pipeline::CompV4 ? 32768 : hardware.lds_capacity;
    out.insert(out.end(), {double(with.wave_shape.m * with.wave_shape.n * with.wave_shape.k), tile[0] * tile[1] * tile[2],
                           tile[0] * tile[1], lds, lds / room});
    double tiles[3], fill[3], needs[3], small[3];
    for (int i = 0; i < 3; ++i) {
        const double rest = std::fmod(size[i], tile[i]);
        tiles[i] = std::ceil(size[i] / tile[i]), fill[i] = rest > 0 ? rest / tile[i] : 1;
        needs[i] = rest > 0, small[i] = size[i] < tile[i];
    }
    out.insert(out.end(), {tiles[0], tiles[1], tiles[2], tiles[0] * tiles[1], fill[0], fill[1], fill[2],
                           fill[0] * fill[1] * fill[2], tiles[0] * tiles[1] / hardware.num_cus});
    for (int i = 0; i < 3; ++i) out.push_back(size[i] / tile[i]);
    out.insert(out.end(), {small[0], small[1], small[2], std::max({small[0], small[1], small[2]})});
    out.insert(out.end(), {needs[0], needs[1], needs[2]});
    for (int i = 0; i < 3; ++i) out.push_back(needs[i] * pads[i]);
    double missing = 0;
    for (int i = 0; i < 3; ++i) {
        out.push_back(needs[i] * (1 - pads[i]));
        missing = std::max(missing, out.back());
    }
    out.push_back(missing);
    out.insert(out.end(), {double(hardware.num_cus), 4, 4.0 * hardware.num_cus, 32, double(hardware.max_clock_mhz), 32, 64,
                           double(hardware.lds_capacity), 32, 4096, 262144, 8});
    return out;
}

class MLHeuristic {
public:
    MLHeuristic(const std::string& path, const Registry* registry, HardwareProfile hardware = {}, bool log = false)
        : registry_(registry), hardware_(hardware), log_(log) {
        int trees = 0;
        LGBM_BoosterCreateFromModelfile(path.c_str(), &trees, &booster_);
    }
    ~MLHeuristic() { LGBM_BoosterFree(booster_); }

    double predict_tflops(const Problem& problem, const KernelKey& key) const {
        const std::vector<double> row = features_of(problem, key, hardware_);
        std::int64_t length = 0;
        double found = 0;
        const int data_type = 1;
        const int columns = static_cast<int>(row.size());
        if (LGBM_BoosterPredictForMat(booster_, row.data(), data_type, 1, columns, 1, 0, 0, 0, "", &length, &found)) return 0;
        return log_ ? std::expm1(found) : found;
    }

    std::vector<std::string> operator()(const Problem& problem) const {
        std::vector<std::pair<double, std::string>> ranked;
        for (const auto& one : registry_->get_all())
            ranked.emplace_back(predict_tflops(problem, one->get_key()), one->get_key().encode_identifier());
        std::stable_sort(ranked.begin(), ranked.end(), [](auto& one, auto& other) { return one.first > other.first; });
        std::vector<std::string> names;
        for (auto& one : ranked) names.push_back(one.second);
        return names;
    }

private:
    const Registry* registry_;
    HardwareProfile hardware_;
    bool log_;
    void* booster_ = nullptr;
};

}}  // namespace ck_tile::dispatcher
