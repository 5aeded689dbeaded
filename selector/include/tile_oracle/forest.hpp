// A gradient-boosted forest as the scoring engine reads it: LightGBM's own columns, without their text.
// harness/tile_oracle/model/model_text.py writes the bytes. Immutable once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tile_oracle {

/// What a numerical split takes for a missing value, as LightGBM numbers it.
enum class Missing : std::uint8_t { none = 0, zero = 1, nan = 2 };

/// One split. A child >= 0 is an inner node of the same tree, a child < 0 is the leaf ~child.
struct Split {
    double threshold;     ///< numerical: a value <= threshold goes left
    std::uint32_t feature;
    std::int32_t left;
    std::int32_t right;
    std::int32_t bitset;  ///< categorical: its number in Forest::bitsets; numerical: -1
    Missing missing;      ///< numerical
    bool missing_left;    ///< numerical: where a missing value goes
};

/// n_leaves - 1 splits from first_split and n_leaves values from first_leaf; the root is the first split.
struct Tree {
    std::uint32_t first_split;
    std::uint32_t first_leaf;
    std::uint32_t n_leaves;
};

class Forest {
public:
    /// Reads a forest. Null, and what is wrong in one line in `error`, if the bytes are not a whole one.
    /// Every tree of a forest is one: each of its splits and leaves is reached from its root once.
    static std::shared_ptr<const Forest> read(const void* bytes, std::size_t size, std::string& error);

    std::uint32_t n_features = 0;
    std::vector<Tree> trees;
    std::vector<Split> splits;
    std::vector<double> leaf_values;
    std::vector<std::vector<std::uint32_t>> bitsets;  ///< words of 32 categories; a set bit goes left
};

}  // namespace tile_oracle
