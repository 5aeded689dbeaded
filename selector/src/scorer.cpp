#include "tile_oracle/scorer.hpp"

#include <algorithm>
#include <utility>

#include "lightgbm_values.hpp"
#include "prepared.hpp"
#include "walk_functions.hpp"

namespace tile_oracle {
namespace {

/// Nodes of all forests together: their numbers, with two flags beside them, are of 32 bits.
constexpr std::uint64_t most_nodes = (1u << 29) - 1;

/// Scratch only grows: one that serves several scorers in turn is not cleared at every turn.
template <class T>
void grow(T& values, std::size_t size) {
    if (values.size() < size) values.resize(size);
}

template <class T>
std::size_t bytes_of(const T& values) {
    return values.capacity() * sizeof(values[0]);
}

}  // namespace

// ---------------------------------------------------------------- memory of one thread

struct Scratch::Memory {
    Aligned<std::uint16_t> mask_of_condition;
    Aligned<std::uint32_t> wide_mask_of_condition;  ///< for wide nodes
    Aligned<std::uint64_t> condition_masks;         ///< for sets of one word
    Aligned<std::uint64_t> masks, sets, tags, leaf_sets;
    std::vector<std::uint32_t> buckets, rank, leaf_counts;
    std::vector<std::uint8_t> decided;
    Aligned<double> tables;
    Aligned<double> sums;  ///< (blocks, forests, 64 * words)
};

Scratch::Scratch() noexcept = default;
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

// ---------------------------------------------------------------- Scorer

Scorer::Scorer(std::unique_ptr<const Prepared> prepared) noexcept : prepared_(std::move(prepared)) {}
Scorer::~Scorer() = default;

std::unique_ptr<const Scorer> Scorer::make(std::vector<std::shared_ptr<const Forest>> forests,
                                           std::uint32_t n_candidates, std::span<const FeatureSource> features,
                                           Isa isa, std::string& error) {
    const auto fail = [&error](std::string what) {
        error = std::move(what);
        return nullptr;
    };
    if (forests.empty()) return fail("no forest to score with");
    if (n_candidates == 0) return fail("no candidate to score");
    for (const auto& forest : forests) {
        if (forest == nullptr) return fail("a forest is null");
        if (forest->n_features != features.size()) {
            return fail("a forest has " + std::to_string(forest->n_features) + " features, not " +
                        std::to_string(features.size()));
        }
    }
    for (std::size_t f = 0; f < features.size(); ++f) {
        const FeatureSource& feature = features[f];
        if (feature.kind == FeatureKind::constant) continue;
        const std::string name = "feature " + std::to_string(f);
        if (feature.kind != FeatureKind::kernel && feature.kind != FeatureKind::interaction) {
            return fail(name + " is of no known kind");
        }
        if (feature.n_classes == 0 || feature.class_of == nullptr) return fail(name + " has no classes");
        if (feature.kind == FeatureKind::kernel && feature.class_values == nullptr) {
            return fail(name + " has no values");
        }
        for (std::uint32_t i = 0; i < n_candidates; ++i) {
            if (feature.class_of[i] >= feature.n_classes) {
                return fail(name + " puts candidate " + std::to_string(i) + " into a class that it does not have");
            }
        }
    }
    std::uint64_t n_nodes = 0;
    for (const auto& forest : forests) n_nodes += forest->leaf_values.size();
    if (n_nodes > most_nodes) return fail("the forests have " + std::to_string(n_nodes) + " leaves: too many");
    Isa resolved{};
    if (!resolve_isa(isa, resolved, error)) return nullptr;
    return std::unique_ptr<const Scorer>(new Scorer(prepare(forests, n_candidates, features, resolved)));
}

bool Scorer::score(const double* constants, const double* const* class_values, double* out,
                   Scratch& scratch) const noexcept {
    const Prepared& p = *prepared_;
    const std::size_t sums_size = std::size_t{p.n_forests} * 64 * p.words;
    try {
        if (!scratch.memory_) scratch.memory_ = std::make_unique<Scratch::Memory>();
        Scratch::Memory& memory = *scratch.memory_;
        const std::size_t leaves = std::size_t{p.batch_trees} * p.leaf_stride;
        const std::size_t slots = std::size_t{2} * p.level_slots + leaves + slack;
        // A vector's gather of 16-bit numbers reads 2 bytes more.
        if (p.wide) {
            grow(memory.wide_mask_of_condition, p.n_conditions);
        } else {
            grow(memory.mask_of_condition, p.n_conditions + 1);
        }
        if (p.words == 1) grow(memory.condition_masks, p.n_conditions);
        grow(memory.masks, std::size_t{p.n_masks} * p.words);
        grow(memory.sets, slots * p.words);
        grow(memory.tags, slots);
        grow(memory.buckets, p.n_buckets);
        grow(memory.rank, p.most_thresholds + 2);
        grow(memory.leaf_counts, p.batch_trees);
        grow(memory.decided, p.n_decided);
        grow(memory.tables, leaves);
        grow(memory.leaf_sets, leaves * p.words);
        grow(memory.sums, sums_size * p.blocks.size());
    } catch (const std::bad_alloc&) {
        return false;
    }
    Scratch::Memory& memory = *scratch.memory_;

    // Constants decide their conditions, interactions the buckets of their classes.
    const auto fill = [&](std::uint32_t first, std::uint32_t count, std::uint32_t mask) {
        if (p.wide) {
            std::fill_n(memory.wide_mask_of_condition.data() + first, count, mask);
        } else {
            std::fill_n(memory.mask_of_condition.data() + first, count, static_cast<std::uint16_t>(mask));
        }
    };
    for (const Group& group : p.groups) {
        const double* thresholds = p.thresholds.data() + group.first_threshold;
        if (group.kind == FeatureKind::constant) {
            const std::uint32_t bucket = bucket_of(constants[group.feature], group, thresholds);
            fill(group.first_condition, bucket, mask_none);
            fill(group.first_condition + bucket, group.n_thresholds - bucket, mask_all);
        } else if (group.kind == FeatureKind::interaction) {
            const double* values = class_values[group.feature];
            std::uint32_t* buckets = memory.buckets.data() + group.first_bucket;
            const std::uint32_t n = p.n_classes[group.feature];
            for (std::uint32_t c = 0; c < n; ++c) buckets[c] = bucket_of(values[c], group, thresholds);
        }
    }
    std::uint8_t* decided = memory.decided.data();
    for (const CategoricalCondition& condition : p.categorical) {
        const std::uint32_t* words = p.category_words.data() + condition.first_word;
        if (condition.kind == FeatureKind::constant) {
            const bool holds = is_in_set(constants[condition.feature], words, condition.n_words);
            fill(condition.condition, 1, holds ? mask_all : mask_none);
        } else if (condition.kind == FeatureKind::interaction) {
            const double* values = class_values[condition.feature];
            const std::uint32_t n = p.n_classes[condition.feature];
            for (std::uint32_t c = 0; c < n; ++c) *decided++ = is_in_set(values[c], words, condition.n_words);
        }
    }

    Walk walk{};
    walk.prepared = &p;
    walk.nodes = p.wide ? static_cast<const void*>(p.wide_nodes.data()) : p.nodes.data();
    walk.buckets = memory.buckets.data();
    walk.decided = memory.decided.data();
    walk.rank = memory.rank.data();
    walk.sets = memory.sets.data();
    walk.tags = memory.tags.data();
    walk.leaf_counts = memory.leaf_counts.data();
    walk.leaf_sets = memory.leaf_sets.data();
    walk.tables = memory.tables.data();
    walk.condition_masks = memory.condition_masks.data();
    walk.mask_of_condition = p.wide ? static_cast<void*>(memory.wide_mask_of_condition.data())
                                    : memory.mask_of_condition.data();
    walk.masks = memory.masks.data();
    std::fill_n(memory.sums.data(), sums_size * p.blocks.size(), 0.0);
    for (std::size_t i = 0; i < p.blocks.size(); ++i) {
        walk.block = &p.blocks[i];
        walk.sums = memory.sums.data() + i * sums_size;
        p.walk(walk);
    }
    for (std::uint32_t f = 0; f < p.n_forests; ++f) {
        const double* sums = memory.sums.data() + std::size_t{f} * 64 * p.words;
        double* to = out + std::size_t{f} * p.n_candidates;
        for (std::uint32_t i = 0; i < p.n_candidates; ++i) to[i] = sums[p.place_of[i]];
    }
    return true;
}

bool Scorer::score(const double* constants, const double* const* class_values, double* out) const noexcept {
    static thread_local Scratch scratch;
    return score(constants, class_values, out, scratch);
}

std::uint32_t Scorer::n_forests() const noexcept { return prepared_->n_forests; }
std::uint32_t Scorer::n_features() const noexcept { return prepared_->n_features; }
std::uint32_t Scorer::n_candidates() const noexcept { return prepared_->n_candidates; }
std::uint32_t Scorer::n_distinct() const noexcept { return prepared_->n_distinct; }
Isa Scorer::isa() const noexcept { return prepared_->isa; }
bool Scorer::reads(std::uint32_t feature) const noexcept {
    return feature < prepared_->n_features && prepared_->read_features[feature] != 0;
}

std::size_t Scorer::memory_bytes() const noexcept {
    const Prepared& p = *prepared_;
    std::size_t bytes = sizeof *this + sizeof p + bytes_of(p.groups) + bytes_of(p.thresholds) +
                        bytes_of(p.categorical) + bytes_of(p.category_words) + bytes_of(p.kernel_conditions) +
                        bytes_of(p.nodes) + bytes_of(p.wide_nodes) + bytes_of(p.trees) + bytes_of(p.leaf_values) +
                        bytes_of(p.batches) + bytes_of(p.blocks) + bytes_of(p.place_of);
    for (const Block& block : p.blocks) {
        bytes += bytes_of(block.static_masks) + bytes_of(block.static_conditions) + bytes_of(block.partitions);
        for (const Partition& one : block.partitions) {
            bytes += bytes_of(one.classes) + bytes_of(one.members) + bytes_of(one.local_class);
        }
    }
    return bytes;
}

}  // namespace tile_oracle
