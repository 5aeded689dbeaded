// Asks the MLHeuristic of a checkout of Composable Kernel for every kernel of a pool, and writes what it says.
//
//     driver LIB_LIGHTGBM MODEL LOG WIDTH OUTPUT < kernels and problems
//
// Input: the number of kernels, their fields, the number of problems, their sizes (ck_tile_parity.py writes it).
// Output, doubles: for each kernel whether it has a KernelKey; then for each problem its `answer` (answers.hpp).
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "answers.hpp"
#include "ck_tile/dispatcher/ml_heuristic.hpp"

namespace ckd = ck_tile::dispatcher;

namespace {

/// The value of an enumeration that the checkout's own to_string writes so; false if it has none.
template <class Enum>
bool named(const std::string& text, Enum& found) {
    for (int value = 0; value < 64; ++value)
        if (ckd::to_string(static_cast<Enum>(value)) == text) {
            found = static_cast<Enum>(value);
            return true;
        }
    return false;
}

bool read_kernel(std::istream& in, ckd::KernelKey& key) {
    std::string dtype, a, b, c, pipeline, scheduler, epilogue;
    int tile[3], waves[3], warp_tile[3], pads[3], persistent;
    in >> dtype >> a >> b >> c;
    for (auto* sizes : {tile, waves, warp_tile})
        for (int axis = 0; axis < 3; ++axis) in >> sizes[axis];
    in >> pipeline >> scheduler >> epilogue >> pads[0] >> pads[1] >> pads[2] >> persistent;
    auto& signature = key.signature;
    auto& algorithm = key.algorithm;
    algorithm.tile_shape.m = tile[0], algorithm.tile_shape.n = tile[1], algorithm.tile_shape.k = tile[2];
    algorithm.wave_shape.m = waves[0], algorithm.wave_shape.n = waves[1], algorithm.wave_shape.k = waves[2];
    algorithm.warp_tile_shape.m = warp_tile[0];
    algorithm.warp_tile_shape.n = warp_tile[1];
    algorithm.warp_tile_shape.k = warp_tile[2];
    algorithm.pad_m = pads[0], algorithm.pad_n = pads[1], algorithm.pad_k = pads[2];
    algorithm.persistent = persistent;
    bool known = named(dtype, signature.dtype_a) && named(a, signature.layout_a) && named(b, signature.layout_b) &&
                 named(c, signature.layout_c) && named(pipeline, algorithm.pipeline) &&
                 named(scheduler, algorithm.scheduler) && named(epilogue, algorithm.epilogue);
    signature.dtype_b = signature.dtype_a;
    return known;
}

/// What the checkout's profile of the hardware is on the device: asked of it where the header can.
template <class Profile>
Profile profile() {
    if constexpr (requires { Profile::fromDevice(); })
        return Profile::fromDevice();
    else
        return Profile{};
}

}  // namespace

int main(int, char** argv) {
    lightgbm_calls::load(argv[1]);
    const int width = std::atoi(argv[4]);
    ckd::Registry registry;
    std::vector<double> out;
    std::map<std::string, int> number_of;
    std::size_t kernels = 0, problems = 0;
    std::cin >> kernels;
    for (std::size_t i = 0; i < kernels; ++i) {
        ckd::KernelKey key{};
        const bool known = read_kernel(std::cin, key);
        out.push_back(known);
        if (!known) continue;
        number_of.emplace(key.encode_identifier(), static_cast<int>(registry.all.size()));
        registry.all.push_back(std::make_shared<ckd::KernelInstance>(key));
    }
    const ckd::MLHeuristic heuristic(argv[2], &registry, profile<ckd::HardwareProfile>(), std::atoi(argv[3]) != 0);
    std::cin >> problems;
    for (std::size_t p = 0; p < problems; ++p) {
        ckd::Problem problem;
        std::cin >> problem.M >> problem.N >> problem.K >> problem.k_batch;
        answer(heuristic, registry, problem, number_of, width, out);
    }
    return written(out, argv[5]);
}
