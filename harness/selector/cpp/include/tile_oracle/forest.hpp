// A gradient-boosted forest as the scoring engine reads it: the bytes that harness/selector/forest.py
// writes from a LightGBM model. Immutable once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tile_oracle {

/// What a numerical split takes for a missing value, as LightGBM numbers it.
enum class Missing : std::uint8_t { none = 0, zero = 1, nan = 2 };

/// Distinct conditions of one feature that sort: `value <= threshold[i]` goes left. Conditions of one
/// group are alike in what they do with a missing value; a forest has a group for each way it uses.
struct NumericalGroup {
    std::uint32_t feature;
    Missing missing;
    bool missing_left;                  ///< where a missing value goes; means nothing for Missing::none
    std::uint32_t first_condition;      ///< condition number of thresholds[0]; the rest follow
    std::vector<double> thresholds;     ///< strictly rising
};

/// Distinct conditions of one categorical feature: a category whose bit is set goes left.
struct CategoricalGroup {
    std::uint32_t feature;
    std::uint32_t first_condition;
    std::vector<std::vector<std::uint32_t>> bitsets;  ///< LightGBM's words, 32 categories each
};

/// The trees of one model. Inner nodes of a tree are numbered breadth first, the root is 0; so are its
/// leaves. A node's inner children have consecutive numbers from `first_inner`, and its leaf children
/// from 2 * node - (first_inner - 1): each node before it has two children, and those that are not inner
/// nodes are leaves.
struct Tree {
    std::uint32_t first_node;   ///< in Forest::conditions and Forest::children
    std::uint32_t first_leaf;   ///< in Forest::leaf_values
    std::uint32_t n_leaves;     ///< inner nodes: n_leaves - 1
};

class Forest {
public:
    /// Reads a forest. Null, and what is wrong in one line in `error`, if the bytes are not one.
    static std::shared_ptr<const Forest> read(const void* bytes, std::size_t size, std::string& error);

    std::uint32_t n_features = 0;
    std::uint32_t n_conditions = 0;
    std::vector<NumericalGroup> numerical;
    std::vector<CategoricalGroup> categorical;
    std::vector<Tree> trees;
    std::vector<std::uint32_t> conditions;  ///< per inner node: the number of its condition
    std::vector<std::uint32_t> children;    ///< per inner node: first_inner << 2 | right is leaf << 1 | left is leaf
    std::vector<double> leaf_values;
};

}  // namespace tile_oracle
