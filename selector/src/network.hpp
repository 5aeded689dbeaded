// A fully connected network that scores the rows of a pool (harness/tile_oracle/model/network.py), in single precision.
// What the kernels add to the sums of the first layer is in the file, what the problem adds is computed once a problem,
// so that only columns of both are left for each row.
#pragma once

#include <cstdint>
#include <vector>

#include "column.hpp"

namespace tile_oracle {

struct Network {
    /// One layer. weights: of the first input for all units, then of the second, ...
    struct Layer {
        std::uint32_t units;
        std::vector<float> weights, bias;
    };
    /// Rows are scored in blocks of so many.
    static constexpr std::uint32_t block = 16;

    std::uint32_t n_rows, n_blocks;
    std::vector<Column> of_problem, joint;
    std::vector<float> kernel_sums;  // of the first layer: for each block, each unit's for all its rows
    std::vector<float> problem_weights, joint_weights;
    std::vector<std::uint32_t> classes;  // for each block, each joint column's for all its rows
    std::vector<Layer> layers;           // the first has no weights here
    std::uint32_t most_units;

    Network(ByteReader& from, const Program& program);
    /// Adds the scores to `out`, which has room for n_rows. `work` grows to what it needs.
    void scores(const Program& program, const double* memory, std::vector<float>& work, double* out) const;
    std::size_t bytes() const noexcept;
};

}  // namespace tile_oracle
