// A fully connected network that scores the rows of a pool (harness/tile_oracle/model/network.py), in single precision.
// The sums of its first layer have three parts: the kernels' is in the file, the problem's is computed once a problem,
// and that of columns of both once for each class of rows that these columns tell apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aligned.hpp"
#include "column.hpp"

namespace tile_oracle {

struct Network {
    /// One layer. weights: of the first input for all units, then of the second, ...
    struct Layer {
        std::uint32_t units;
        Aligned<float> weights, bias;
    };
    /// Floats of a vector: rows that are scored together; the units of the first layer are filled up to whole vectors.
    static constexpr std::uint32_t block = 16;

    std::uint32_t n_rows, n_classes, n_vectors;
    std::vector<Column> of_problem, joint;
    std::vector<std::uint32_t> class_of;  // of each row
    Aligned<float> kernel_sums, problem_weights, joint_weights;  // (rows or columns, units)
    std::vector<Layer> layers;                                   // the first has no weights here
    std::uint32_t most_units;

    Network(ByteReader& from, const Program& program);
    /// Adds the scores of these rows to `out`, which has room for n_rows. `work` grows to what it needs.
    void scores(const Program& program, const double* memory, std::span<const std::uint32_t> rows, Aligned<float>& work,
                double* out) const;
    std::size_t bytes() const noexcept;
};

}  // namespace tile_oracle
