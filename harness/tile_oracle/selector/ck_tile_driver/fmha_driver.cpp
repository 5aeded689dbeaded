// Asks the FmhaMLHeuristic of a checkout of Composable Kernel, as driver.cpp does the MLHeuristic of GEMM.
//
//     driver LIB_LIGHTGBM MODEL LOG WIDTH OUTPUT < kernels and problems
#include <cstdlib>
#include <iostream>
#include <memory>

#include "answers.hpp"
#include "ck_tile/dispatcher/fmha_ml_heuristic.hpp"

namespace ckd = ck_tile::dispatcher;

int main(int, char** argv) {
    lightgbm_calls::load(argv[1]);
    const int width = std::atoi(argv[4]);
    ckd::FmhaRegistry registry;
    std::vector<double> out;
    std::map<std::string, int> number_of;
    std::size_t kernels = 0, problems = 0;
    std::cin >> kernels;
    for (std::size_t i = 0; i < kernels; ++i) {
        ckd::FmhaKernelKey key{};
        auto& tile = key.algorithm.tile_shape;
        int hdim, pad;
        std::cin >> key.signature.data_type >> hdim >> key.algorithm.pipeline >> key.signature.mask_type;
        std::cin >> tile.m0 >> tile.n0 >> tile.k0 >> tile.n1 >> tile.k1 >> tile.k0max >> pad;
        key.signature.hdim_q = key.signature.hdim_v = hdim;
        key.algorithm.pad_s = key.algorithm.pad_sk = key.algorithm.pad_d = key.algorithm.pad_dv = pad;
        out.push_back(1);
        number_of.emplace(key.encode_identifier(), static_cast<int>(registry.all.size()));
        registry.all.push_back(std::make_shared<ckd::FmhaKernelInstance>(key));
    }
    const ckd::FmhaMLHeuristic heuristic(argv[2], &registry, {}, std::atoi(argv[3]) != 0);
    std::cin >> problems;
    for (std::size_t p = 0; p < problems; ++p) {
        ckd::FmhaProblem problem;
        std::cin >> problem.data_type >> problem.mask_type >> problem.batch >> problem.nhead_q >> problem.nhead_k;
        std::cin >> problem.seqlen_q >> problem.seqlen_k >> problem.hdim_q;
        problem.hdim_v = problem.hdim_q;
        answer(heuristic, registry, problem, number_of, width, out);
    }
    return written(out, argv[5]);
}
