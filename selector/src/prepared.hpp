// What a Scorer prepares when it is made, and the memory that scoring writes to. Internal.
//
// Within one problem every candidate passes the same trees, so a tree is walked once for all of them: a node
// holds the set of candidates that reach it, one bit each, and hands `set & mask` to its left child and
// `set & ~mask` to its right, where mask is the set of all candidates for which the node's condition holds.
//
// Conditions are numbered over all forests; those of one feature that treat missing values alike form a group,
// sorted by threshold. A value's bucket in a group is the number of thresholds below it: condition i of the
// group holds for the values of buckets 0 to i. A problem decides the bucket of each class of candidates; the
// masks of a group are unions of the classes' sets in the order of their buckets, and conditions between which
// no class lies share a mask. That indirection (`mask_of_condition`) makes nodes on constant features no
// different from others: their conditions point to the empty or to the full mask.
//
// Candidates that no condition can tell apart are one. The rest are sorted, so that like ones are neighbours,
// and cut into blocks of at most 64 * words: a set that fits in a register is what makes a node cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "aligned.hpp"
#include "tile_oracle/scorer.hpp"

namespace tile_oracle {

/// The first masks of every block: no candidate, every candidate.
constexpr std::uint32_t mask_none = 0;
constexpr std::uint32_t mask_all = 1;

/// Inner nodes of all trees lie one after the other, each tree breadth first; a tree's leaves are numbered in
/// the same walk. A node's inner children follow it at distance `delta`. Before node i of a tree come i nodes
/// with two children each, so its leaf children begin at leaf i - delta + 1 of the tree. A tree has one leaf
/// more than inner nodes; one unused node fills the gap, so that its first node and leaf have the same number.
template <class Number>
struct NodeOf {
    Number condition;
    Number link;  ///< delta << 2 | right child is a leaf << 1 | left child is a leaf
};
/// 4 bytes a node: a large forest is read from L2 and L3, and that is what bounds few candidates.
using Node = NodeOf<std::uint16_t>;
/// For forests with more conditions or masks, or larger trees, than 16 bits can name.
using WideNode = NodeOf<std::uint32_t>;

struct PreparedTree {
    std::uint32_t first_node;  ///< and first leaf
    std::uint32_t n_leaves;
};

/// Trees of one forest that are walked together.
struct Batch {
    std::uint32_t begin, end;
    std::uint32_t forest;
};

/// Conditions of one feature that sort.
struct Group {
    std::uint32_t feature;
    std::uint32_t first_condition;
    std::uint32_t first_threshold;  ///< in Prepared::thresholds
    std::uint32_t n_thresholds;
    std::uint32_t first_bucket;     ///< interaction: in Scratch::Memory::buckets, one per class
    std::uint32_t partition;        ///< interaction: in Block::partitions
    FeatureKind kind;
    Missing missing;
    bool missing_left;
};

/// One condition of a categorical feature.
struct CategoricalCondition {
    std::uint32_t feature;
    std::uint32_t condition;
    std::uint32_t first_word, n_words;  ///< in Prepared::category_words
    std::uint32_t partition;
    FeatureKind kind;
};

/// How a block's candidates fall into classes. Features that depend on the same kernel parameters share one.
struct Partition {
    std::vector<std::uint32_t> classes;     ///< those that the block has
    Aligned<std::uint64_t> members;         ///< (classes, words), if that is the smaller way to say it
    std::vector<std::uint16_t> local_class; ///< else: candidate -> index in classes
};

struct Block {
    std::uint32_t first;  ///< of the sorted distinct candidates
    std::uint32_t n_candidates;
    std::uint32_t n_static_masks;
    Aligned<std::uint64_t> static_masks;          ///< (n_static_masks, words): none, all, of kernel features
    std::vector<std::uint32_t> static_conditions; ///< (Prepared::kernel_conditions,): their masks
    std::vector<Partition> partitions;
};

/// What a walk over one block needs.
struct Walk {
    const struct Scorer::Prepared* prepared;
    const Block* block;
    const void* nodes;
    void* mask_of_condition;        ///< of the number type of the nodes; constants are filled in
    std::uint64_t* masks;           ///< (n_masks, words)
    std::uint64_t* condition_masks; ///< (n_conditions,): where a set is one word, each condition's mask itself
    const std::uint32_t* buckets;   ///< of all interaction groups
    const std::uint8_t* decided;    ///< of interaction categorical conditions: per class, whether it holds
    std::uint32_t* rank;            ///< scratch of max(thresholds) + 2
    std::uint64_t* sets;            ///< (slots, words)
    std::uint64_t* tags;            ///< (slots,)
    std::uint32_t* leaf_counts;     ///< (batch_trees,)
    double* tables;                 ///< (batch_trees, leaf_stride): values of the leaves that are reached
    std::uint64_t* leaf_sets;       ///< (batch_trees, leaf_stride, words): and who reaches them
    double* sums;                   ///< (forests, 64 * words): zero at first
};

/// Builds the masks of a block, walks all trees and adds their leaves to walk.sums. The code of one instruction
/// set, for one size of sets and nodes.
using WalkFunction = void (*)(const Walk&) noexcept;

struct Scorer::Prepared {
    Isa isa;
    WalkFunction walk;
    std::uint32_t n_candidates, n_distinct, n_features, n_forests;
    std::uint32_t words;         ///< of a set: 1, 2, 4 or 8
    std::uint32_t n_conditions;
    std::uint32_t n_masks;       ///< the most that a block can need
    std::uint32_t n_buckets, n_decided, most_thresholds;
    bool wide;
    std::vector<FeatureKind> kinds;
    std::vector<std::uint32_t> n_classes;
    std::vector<std::uint8_t> read_features;

    std::vector<Group> groups;
    std::vector<double> thresholds;
    std::vector<CategoricalCondition> categorical;
    std::vector<std::uint32_t> category_words;
    std::vector<std::uint32_t> kernel_conditions;  ///< those that Block::static_conditions is about

    Aligned<Node> nodes;
    Aligned<WideNode> wide_nodes;
    std::vector<PreparedTree> trees;
    Aligned<double> leaf_values;
    std::vector<Batch> batches;
    std::uint32_t batch_trees;  ///< the most trees of a batch
    std::uint32_t level_slots;  ///< the most inner nodes of a batch that are open at once, and 2
    std::uint32_t leaf_stride;  ///< the most leaves that a block can reach in a tree, and 2, in eights
    std::vector<Block> blocks;
    std::vector<std::uint32_t> place_of;  ///< candidate -> its sum of the first forest, in Scratch::Memory::sums
};

/// Slots past the end of a queue that a walk writes to before it knows that it need not.
constexpr std::uint32_t slack = 8;

/// Prepares forests and features that were checked.
std::unique_ptr<const Scorer::Prepared> prepare(const std::vector<std::shared_ptr<const Forest>>& forests,
                                                std::uint32_t n_candidates, std::span<const FeatureSource> features,
                                                Isa isa);

}  // namespace tile_oracle
