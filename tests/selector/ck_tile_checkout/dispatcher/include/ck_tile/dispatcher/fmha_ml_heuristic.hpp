// A double of Composable Kernel's fmha_ml_heuristic.hpp: its interface, with code and columns of our own. The tests
// plant faults in copies of it.
#pragma once

#include "ck_tile/dispatcher/fmha_dispatcher.hpp"
#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"
#include "ck_tile/dispatcher/fmha_problem.hpp"
#include "ck_tile/dispatcher/fmha_registry.hpp"

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

struct FmhaHardwareProfile {
    int num_cus = 304;
};

inline std::vector<double> columns_of(const FmhaProblem& one, const FmhaKernelKey& key, const FmhaHardwareProfile& hw) {
    std::vector<double> out{double(one.batch),   double(one.seqlen_q), double(one.seqlen_k), double(one.nhead_q),
                            double(one.nhead_k), double(one.hdim_q),   double(one.hdim_v)};
    const auto& tile = key.algorithm.tile_shape;
    out.insert(out.end(), {double(tile.m0), double(tile.n0), double(tile.k0), double(key.algorithm.pipeline.size())});
    out.push_back(std::ceil(double(one.seqlen_q) / tile.m0) * one.batch * one.nhead_q / hw.num_cus);
    out.resize(68);
    return out;
}

class FmhaMLHeuristic {
public:
    FmhaMLHeuristic(const std::string& file, const FmhaRegistry* registry, FmhaHardwareProfile hardware = {},
                    bool log_transform = true)
        : registry_(registry), hardware_(hardware), logged_(log_transform) {
        int trees = 0;
        if (LGBM_BoosterCreateFromModelfile(file.c_str(), &trees, &booster_) != 0) booster_ = nullptr;
    }
    ~FmhaMLHeuristic() {
        if (booster_) LGBM_BoosterFree(booster_);
    }

    double predict_tflops(const FmhaProblem& problem, const FmhaKernelKey& key) const {
        const auto columns = columns_of(problem, key, hardware_);
        const int data_type = 1;
        std::int64_t length = 0;
        double score = 0;
        if (LGBM_BoosterPredictForMat(booster_, columns.data(), data_type, 1, int(columns.size()), 1, 0, 0, 0, "", &length,
                                      &score) != 0)
            return 0;
        return logged_ ? std::expm1(score) : score;
    }

    std::vector<std::string> operator()(const FmhaProblem& problem) const {
        std::vector<std::pair<double, std::string>> all;
        for (const auto& one : registry_->get_all())
            all.emplace_back(predict_tflops(problem, one->get_key()), one->get_key().encode_identifier());
        std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        std::vector<std::string> out;
        for (auto& one : all) out.push_back(std::move(one.second));
        return out;
    }

private:
    void* booster_ = nullptr;
    const FmhaRegistry* registry_;
    FmhaHardwareProfile hardware_;
    bool logged_;
};

}}
