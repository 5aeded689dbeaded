#include "tile_oracle/scorer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "prepared.hpp"
#include "walk_functions.hpp"

#if TILE_ORACLE_X86
#include <cpuid.h>
#endif

namespace tile_oracle {
namespace {

/// LightGBM's kZeroThreshold: 1e-35 as a float. It reads values this close to zero as zero.
constexpr double zero_threshold = static_cast<double>(1e-35f);

constexpr std::uint32_t most_words = 8;

/// Slots past the end of a queue that a walk writes to before it knows that it need not.
constexpr std::uint32_t slack = 8;

// ---------------------------------------------------------------- what LightGBM makes of a value

/// A value as LightGBM's predictor hands it to the trees: what is near zero is zero.
double as_given(double value) noexcept { return std::fabs(value) <= zero_threshold ? 0.0 : value; }

bool is_missing(double value, Missing missing) noexcept {
    if (missing == Missing::nan) return std::isnan(value);
    // Trees that know no NaN read it as zero.
    return missing == Missing::zero && (value == 0.0 || std::isnan(value));
}

/// How many thresholds of the group lie below the value: its bucket. Condition i holds for buckets 0 to i.
std::uint32_t bucket_of(double given, const Group& group, const double* thresholds) noexcept {
    double value = as_given(given);
    if (is_missing(value, group.missing)) return group.missing_left ? 0 : group.n_thresholds;
    if (std::isnan(value)) value = 0.0;
    // Always the same number of steps, no branch: values come in any order.
    std::size_t below = 0, length = group.n_thresholds;
    while (length > 1) {
        const std::size_t half = length / 2;
        below += half & -static_cast<std::size_t>(thresholds[below + half - 1] < value);
        length -= half;
    }
    return static_cast<std::uint32_t>(below + (thresholds[below] < value));
}

/// Whether a category is in a set. Negative ones, those that no int holds, and NaN are in none.
bool is_in_set(double given, const std::uint32_t* words, std::uint32_t n_words) noexcept {
    const double value = as_given(given);
    // Truncation towards zero, as LightGBM's cast to int: -0.9 is category 0.
    if (!(value > -1.0 && value < 2147483648.0)) return false;
    const auto category = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    return category / 32 < n_words && (words[category / 32] >> (category % 32) & 1) != 0;
}

// ---------------------------------------------------------------- instruction sets

#if TILE_ORACLE_X86
struct X86Features {
    bool avx2 = false, avx512 = false;

    X86Features() noexcept {
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        constexpr unsigned xsave_on = 1u << 27, popcnt = 1u << 23;
        if ((c & xsave_on) == 0 || (c & popcnt) == 0) return;
        unsigned enabled = 0, high = 0;
        __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        constexpr unsigned bmi1 = 1u << 3, avx2_bit = 1u << 5, bmi2 = 1u << 8;
        constexpr unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
        constexpr unsigned ymm = 0x6, zmm = 0xE6;
        const auto has = [b](unsigned bits) { return (b & bits) == bits; };
        avx2 = (enabled & ymm) == ymm && has(bmi1 | avx2_bit | bmi2);
        avx512 = avx2 && (enabled & zmm) == zmm && has(f | dq | bw | vl);
    }
};

/// What the processor has and the operating system saves. Asked of cpuid itself: compilers' own support for
/// that question needs a run-time library that not all of them link.
const X86Features& x86_features() noexcept {
    static const X86Features features;
    return features;
}
#endif

constexpr std::pair<Isa, const char*> isa_names[] = {{Isa::best, "best"},
                                                     {Isa::scalar, "scalar"},
                                                     {Isa::neon, "neon"},
                                                     {Isa::avx2, "avx2"},
                                                     {Isa::avx512, "avx512"}};

WalkFunction walk_of(Isa isa, std::uint32_t words, bool wide) noexcept {
    switch (isa) {
#if TILE_ORACLE_X86
        case Isa::avx2: return avx2_walk(words, wide);
        case Isa::avx512: return avx512_walk(words, wide);
#endif
#if TILE_ORACLE_NEON
        case Isa::neon: return neon_walk(words, wide);
#endif
        default: return scalar_walk(words, wide);
    }
}

bool resolve_isa(Isa asked, Isa& isa, std::string& error) {
    isa = asked;
    const char* said = asked == Isa::best ? std::getenv("TILE_ORACLE_ISA") : nullptr;
    if (said != nullptr && *said != '\0') {
        const auto* found = std::find_if(std::begin(isa_names), std::end(isa_names),
                                         [said](const auto& name) { return std::strcmp(name.second, said) == 0; });
        if (found == std::end(isa_names)) {
            error = std::string("TILE_ORACLE_ISA is ") + said + ": it must be best, scalar, neon, avx2 or avx512";
            return false;
        }
        isa = found->first;
    }
    if (!isa_available(isa)) {
        error = std::string("this processor, or this library, has no ") + isa_name(isa) + ": use best";
        return false;
    }
    if (isa == Isa::best) {
        for (const Isa one : {Isa::avx512, Isa::avx2, Isa::neon, Isa::scalar}) {
            if (isa_available(one)) {
                isa = one;
                break;
            }
        }
    }
    return true;
}

// ---------------------------------------------------------------- making a scorer

using Prepared = Scorer::Prepared;

/// Candidates as dense class numbers; refined until all that can be told apart is.
class Classes {
public:
    explicit Classes(std::uint32_t n) : class_of_(n, 0) {}

    /// Splits every class by a number per candidate. Classes sort by the old class, then by that number.
    void refine(const std::vector<std::uint32_t>& by) {
        std::vector<std::uint64_t> keys(class_of_.size());
        for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = std::uint64_t{class_of_[i]} << 32 | by[i];
        std::vector<std::uint64_t> sorted = keys;
        std::sort(sorted.begin(), sorted.end());
        sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            class_of_[i] = static_cast<std::uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), keys[i]) - sorted.begin());
        }
        count_ = static_cast<std::uint32_t>(sorted.size());
    }

    const std::vector<std::uint32_t>& class_of() const { return class_of_; }
    std::uint32_t count() const { return count_; }

private:
    std::vector<std::uint32_t> class_of_;
    std::uint32_t count_ = 1;
};

/// Makes a Prepared out of forests and features that were checked.
class Preparation {
public:
    Preparation(const std::vector<std::shared_ptr<const Forest>>& forests, std::uint32_t n_candidates,
                std::span<const FeatureSource> features, Isa isa)
        : forests_(forests), features_(features), prepared_(std::make_unique<Prepared>()) {
        static std::atomic<std::uint64_t> made{0};
        prepared_->id = ++made;
        prepared_->isa = isa;
        prepared_->n_candidates = n_candidates;
        prepared_->n_features = static_cast<std::uint32_t>(features.size());
        prepared_->n_forests = static_cast<std::uint32_t>(forests.size());
        for (const FeatureSource& feature : features) {
            prepared_->kinds.push_back(feature.kind);
            prepared_->n_classes.push_back(feature.kind == FeatureKind::constant ? 1 : feature.n_classes);
        }
    }

    std::unique_ptr<const Prepared> make() {
        number_conditions();
        merge_candidates();
        make_blocks();
        make_trees();
        return std::move(prepared_);
    }

private:
    using GroupKey = std::tuple<std::uint32_t, Missing, bool>;
    using SetKey = std::pair<std::uint32_t, std::vector<std::uint32_t>>;

    static GroupKey group_key(const Split& split) {
        return {split.feature, split.missing, split.missing != Missing::none && split.missing_left};
    }

    void number_conditions() {
        Prepared& p = *prepared_;
        p.read_features.assign(features_.size(), 0);
        weight_.assign(features_.size(), 0);
        for (const auto& forest : forests_) {
            for (const Split& split : forest->splits) {
                p.read_features[split.feature] = 1;
                ++weight_[split.feature];
                if (split.bitset < 0) {
                    group_thresholds_[group_key(split)].push_back(split.threshold);
                } else {
                    set_numbers_.emplace(SetKey{split.feature, forest->bitsets[split.bitset]}, 0);
                }
            }
        }
        std::uint32_t condition = 0;
        for (auto& [key, values] : group_thresholds_) {
            std::sort(values.begin(), values.end());
            values.erase(std::unique(values.begin(), values.end()), values.end());
            const auto [feature, missing, missing_left] = key;
            Group group{};
            group.feature = feature;
            group.first_condition = condition;
            group.first_threshold = static_cast<std::uint32_t>(p.thresholds.size());
            group.n_thresholds = static_cast<std::uint32_t>(values.size());
            group.kind = features_[feature].kind;
            group.missing = missing;
            group.missing_left = missing_left;
            if (group.kind == FeatureKind::interaction) {
                group.first_bucket = p.n_buckets;
                p.n_buckets += p.n_classes[feature];
            }
            p.groups.push_back(group);
            p.thresholds.insert(p.thresholds.end(), values.begin(), values.end());
            p.most_thresholds = std::max(p.most_thresholds, group.n_thresholds);
            condition += group.n_thresholds;
        }
        for (auto& [key, number] : set_numbers_) {
            CategoricalCondition one{};
            one.feature = key.first;
            one.condition = number = condition++;
            one.first_word = static_cast<std::uint32_t>(p.category_words.size());
            one.n_words = static_cast<std::uint32_t>(key.second.size());
            one.kind = features_[key.first].kind;
            if (one.kind == FeatureKind::interaction) p.n_decided += p.n_classes[key.first];
            p.categorical.push_back(one);
            p.category_words.insert(p.category_words.end(), key.second.begin(), key.second.end());
        }
        p.n_conditions = condition;
    }

    /// What the conditions on a kernel feature make of each candidate: its class there, by bucket.
    std::vector<std::uint32_t> decided_by(const Group& group) const {
        const FeatureSource& source = features_[group.feature];
        std::vector<std::uint32_t> bucket(source.n_classes), of_candidate(prepared_->n_candidates);
        for (std::uint32_t c = 0; c < source.n_classes; ++c) {
            bucket[c] = bucket_of(source.class_values[c], group, prepared_->thresholds.data() + group.first_threshold);
        }
        for (std::size_t i = 0; i < of_candidate.size(); ++i) of_candidate[i] = bucket[source.class_of[i]];
        return of_candidate;
    }

    std::vector<std::uint32_t> decided_by(const CategoricalCondition& condition) const {
        const FeatureSource& source = features_[condition.feature];
        std::vector<std::uint32_t> of_candidate(prepared_->n_candidates);
        for (std::size_t i = 0; i < of_candidate.size(); ++i) {
            of_candidate[i] = is_in_set(source.class_values[source.class_of[i]],
                                        prepared_->category_words.data() + condition.first_word, condition.n_words);
        }
        return of_candidate;
    }

    /// Interaction features that see the same classes share a partition.
    std::uint32_t partition_of(std::uint32_t feature) {
        const FeatureSource& source = features_[feature];
        std::vector<std::uint32_t> classes(source.class_of, source.class_of + prepared_->n_candidates);
        const auto found = std::find(partitions_.begin(), partitions_.end(), classes);
        if (found != partitions_.end()) return static_cast<std::uint32_t>(found - partitions_.begin());
        partitions_.push_back(std::move(classes));
        return static_cast<std::uint32_t>(partitions_.size() - 1);
    }

    void merge_candidates() {
        Prepared& p = *prepared_;
        // What the trees ask most comes first, so that a block's candidates differ little in it.
        std::vector<std::pair<std::uint64_t, std::vector<std::uint32_t>>> distinctions;
        std::vector<std::uint64_t> partition_weight;
        for (Group& group : p.groups) {
            if (group.kind == FeatureKind::kernel) {
                distinctions.emplace_back(weight_[group.feature], decided_by(group));
            } else if (group.kind == FeatureKind::interaction) {
                group.partition = partition_of(group.feature);
                weigh(group.partition, group.feature, partition_weight);
            }
        }
        for (CategoricalCondition& condition : p.categorical) {
            if (condition.kind == FeatureKind::kernel) {
                distinctions.emplace_back(weight_[condition.feature], decided_by(condition));
            } else if (condition.kind == FeatureKind::interaction) {
                condition.partition = partition_of(condition.feature);
                weigh(condition.partition, condition.feature, partition_weight);
            }
        }
        for (std::size_t i = 0; i < partitions_.size(); ++i) distinctions.emplace_back(partition_weight[i], partitions_[i]);
        std::stable_sort(distinctions.begin(), distinctions.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        Classes classes(p.n_candidates);
        for (const auto& distinction : distinctions) classes.refine(distinction.second);
        distinct_of_ = classes.class_of();
        p.n_distinct = classes.count();
        example_.assign(p.n_distinct, 0);
        for (std::uint32_t i = 0; i < p.n_candidates; ++i) example_[distinct_of_[i]] = i;
    }

    void weigh(std::uint32_t partition, std::uint32_t feature, std::vector<std::uint64_t>& weights) const {
        weights.resize(partitions_.size(), 0);
        weights[partition] += weight_[feature];
    }

    void make_blocks() {
        Prepared& p = *prepared_;
        p.words = 1;
        while (p.words < most_words && p.words * 64 < p.n_distinct) p.words *= 2;
        const std::uint32_t most = p.words * 64, n_blocks = (p.n_distinct + most - 1) / most;
        for (const Group& group : p.groups) {
            for (std::uint32_t i = 0; group.kind == FeatureKind::kernel && i < group.n_thresholds; ++i) {
                p.kernel_conditions.push_back(group.first_condition + i);
            }
        }
        for (const CategoricalCondition& condition : p.categorical) {
            if (condition.kind == FeatureKind::kernel) p.kernel_conditions.push_back(condition.condition);
        }
        std::uint32_t first = 0;
        for (std::uint32_t i = 0; i < n_blocks; ++i) {
            const std::uint32_t end = static_cast<std::uint32_t>(std::uint64_t{p.n_distinct} * (i + 1) / n_blocks);
            p.blocks.push_back(make_block(first, end - first));
            first = end;
        }
        // Where a candidate's sum lies: sums are (blocks, forests, 64 * words).
        for (const std::uint32_t distinct : distinct_of_) {
            std::uint32_t block = 0;
            while (distinct - p.blocks[block].first >= p.blocks[block].n_candidates) ++block;
            p.place_of.push_back(block * p.n_forests * most + distinct - p.blocks[block].first);
        }
    }

    Block make_block(std::uint32_t first, std::uint32_t n) {
        Prepared& p = *prepared_;
        Block block{};
        block.first = first;
        block.n_candidates = n;
        // Masks of kernel features, each distinct one once.
        std::map<std::vector<std::uint64_t>, std::uint32_t> number_of;
        std::vector<std::uint64_t> none(p.words, 0), all(p.words, 0);
        for (std::uint32_t i = 0; i < n; ++i) all[i / 64] |= std::uint64_t{1} << (i % 64);
        const auto add = [&](const std::vector<std::uint64_t>& mask) {
            const auto [at, is_new] = number_of.emplace(mask, static_cast<std::uint32_t>(number_of.size()));
            if (is_new) block.static_masks.insert(block.static_masks.end(), mask.begin(), mask.end());
            return at->second;
        };
        add(none);
        add(all);
        for (const Group& group : p.groups) {
            if (group.kind != FeatureKind::kernel) continue;
            const std::vector<std::uint32_t> bucket = decided_by(group);
            std::vector<std::vector<std::uint64_t>> masks(group.n_thresholds + 1, none);
            for (std::uint32_t i = 0; i < n; ++i) masks[bucket[example_[first + i]]][i / 64] |= std::uint64_t{1} << (i % 64);
            std::vector<std::uint64_t> sum = none;
            for (std::uint32_t t = 0; t < group.n_thresholds; ++t) {
                for (std::uint32_t w = 0; w < p.words; ++w) sum[w] |= masks[t][w];
                block.static_conditions.push_back(add(sum));
            }
        }
        for (const CategoricalCondition& condition : p.categorical) {
            if (condition.kind != FeatureKind::kernel) continue;
            const std::vector<std::uint32_t> holds = decided_by(condition);
            std::vector<std::uint64_t> mask = none;
            for (std::uint32_t i = 0; i < n; ++i) mask[i / 64] |= std::uint64_t{holds[example_[first + i]]} << (i % 64);
            block.static_conditions.push_back(add(mask));
        }
        block.n_static_masks = static_cast<std::uint32_t>(number_of.size());
        std::uint32_t n_masks = block.n_static_masks + 1;
        for (const auto& class_of : partitions_) block.partitions.push_back(make_partition(class_of, first, n));
        for (const Group& group : p.groups) {
            if (group.kind != FeatureKind::interaction) continue;
            n_masks += std::min<std::uint32_t>(group.n_thresholds, static_cast<std::uint32_t>(block.partitions[group.partition].classes.size()));
        }
        for (const CategoricalCondition& condition : p.categorical) n_masks += condition.kind == FeatureKind::interaction;
        p.n_masks = std::max(p.n_masks, n_masks);
        return block;
    }

    Partition make_partition(const std::vector<std::uint32_t>& class_of, std::uint32_t first, std::uint32_t n) const {
        const std::uint32_t words = prepared_->words;
        Partition partition;
        for (std::uint32_t i = 0; i < n; ++i) partition.classes.push_back(class_of[example_[first + i]]);
        std::sort(partition.classes.begin(), partition.classes.end());
        partition.classes.erase(std::unique(partition.classes.begin(), partition.classes.end()), partition.classes.end());
        const bool by_class = partition.classes.size() * 4 <= n;
        if (by_class) partition.members.assign(partition.classes.size() * words, 0);
        for (std::uint32_t i = 0; i < n; ++i) {
            const auto at = std::lower_bound(partition.classes.begin(), partition.classes.end(), class_of[example_[first + i]]);
            const auto local = static_cast<std::size_t>(at - partition.classes.begin());
            if (by_class) {
                partition.members[local * words + i / 64] |= std::uint64_t{1} << (i % 64);
            } else {
                partition.local_class.push_back(static_cast<std::uint16_t>(local));
            }
        }
        return partition;
    }

    void make_trees() {
        Prepared& p = *prepared_;
        std::uint32_t most_leaves = 1, most_delta = 0;
        for (std::uint32_t f = 0; f < forests_.size(); ++f) {
            for (const Tree& tree : forests_[f]->trees) {
                add_tree(*forests_[f], tree, most_delta);
                most_leaves = std::max(most_leaves, tree.n_leaves);
            }
        }
        constexpr std::uint32_t narrow = 1u << 16;
        p.wide = p.n_conditions > narrow || p.n_masks > narrow || most_delta >= narrow / 4;
        if (!p.wide) {
            for (const WideNode& node : p.wide_nodes) {
                p.nodes.push_back({static_cast<std::uint16_t>(node.condition), static_cast<std::uint16_t>(node.link)});
            }
            p.wide_nodes = {};
        }
        p.walk = walk_of(p.isa, p.words, p.wide);

        const std::uint32_t most = std::min(most_leaves, p.words * 64);
        p.leaf_stride = (most + 2 + 31) / 32 * 32;
        // Enough for the levels of few trees to fill the pipeline, few enough for the queues to stay in L1 and L2.
        p.batch_trees = p.words == 1 ? 128 : p.words <= 4 ? 64 : 32;
        p.level_slots = (p.batch_trees * most + slack + 7) / 8 * 8;
        std::uint32_t begin = 0;
        for (std::uint32_t f = 0; f < forests_.size(); ++f) {
            const std::uint32_t end = begin + static_cast<std::uint32_t>(forests_[f]->trees.size());
            while (begin < end) {
                const std::uint32_t next = std::min(begin + p.batch_trees, end);
                p.batches.push_back({begin, next, f});
                begin = next;
            }
        }
    }

    /// Renumbers a tree breadth first.
    void add_tree(const Forest& forest, const Tree& tree, std::uint32_t& most_delta) {
        Prepared& p = *prepared_;
        const double* values = forest.leaf_values.data() + tree.first_leaf;
        p.trees.push_back({static_cast<std::uint32_t>(p.wide_nodes.size()), tree.n_leaves});
        if (tree.n_leaves == 1) {
            p.leaf_values.push_back(values[0]);
            p.wide_nodes.push_back({});
            return;
        }
        const Split* splits = forest.splits.data() + tree.first_split;
        std::vector<std::uint32_t> order{0};
        for (std::uint32_t i = 0; i < order.size(); ++i) {
            const Split& split = splits[order[i]];
            const std::uint32_t delta = static_cast<std::uint32_t>(order.size()) - i;
            std::uint32_t link = delta << 2;
            if (split.left < 0) {
                link |= 1;
                p.leaf_values.push_back(values[~split.left]);
            } else {
                order.push_back(static_cast<std::uint32_t>(split.left));
            }
            if (split.right < 0) {
                link |= 2;
                p.leaf_values.push_back(values[~split.right]);
            } else {
                order.push_back(static_cast<std::uint32_t>(split.right));
            }
            most_delta = std::max(most_delta, delta);
            p.wide_nodes.push_back({condition_of(forest, split), link});
        }
        p.wide_nodes.push_back({});
    }

    std::uint32_t condition_of(const Forest& forest, const Split& split) {
        if (split.bitset >= 0) return set_numbers_.at({split.feature, forest.bitsets[split.bitset]});
        if (group_of_.empty()) {
            std::uint32_t i = 0;
            for (const auto& entry : group_thresholds_) group_of_.emplace(entry.first, i++);
        }
        const Group& group = prepared_->groups[group_of_.at(group_key(split))];
        const double* first = prepared_->thresholds.data() + group.first_threshold;
        return group.first_condition + static_cast<std::uint32_t>(std::lower_bound(first, first + group.n_thresholds, split.threshold) - first);
    }

    const std::vector<std::shared_ptr<const Forest>>& forests_;
    std::span<const FeatureSource> features_;
    std::unique_ptr<Prepared> prepared_;
    std::map<GroupKey, std::vector<double>> group_thresholds_;
    std::map<GroupKey, std::uint32_t> group_of_;
    std::map<SetKey, std::uint32_t> set_numbers_;
    std::vector<std::uint64_t> weight_;  ///< how many splits ask each feature
    std::vector<std::vector<std::uint32_t>> partitions_;
    std::vector<std::uint32_t> distinct_of_;  ///< candidate -> sorted distinct candidate
    std::vector<std::uint32_t> example_;  ///< distinct candidate -> one candidate
};

template <class T>
std::size_t bytes_of(const T& values) {
    return values.capacity() * sizeof(values[0]);
}

}  // namespace

bool isa_available(Isa isa) noexcept {
    switch (isa) {
        case Isa::best:
        case Isa::scalar: return true;
#if TILE_ORACLE_X86
        case Isa::avx2: return x86_features().avx2;
        case Isa::avx512: return x86_features().avx512;
#endif
#if TILE_ORACLE_NEON
        case Isa::neon: return true;
#endif
        default: return false;
    }
}

const char* isa_name(Isa isa) noexcept {
    for (const auto& [value, name] : isa_names) {
        if (value == isa) return name;
    }
    return "unknown";
}

// ---------------------------------------------------------------- memory of one thread

struct Scratch::Memory {
    std::uint64_t owner = 0;  ///< the scorer that everything below has the sizes of
    Aligned<std::uint32_t> mask_of_condition;  ///< narrow nodes: used as 16-bit numbers
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
            return fail("a forest has " + std::to_string(forest->n_features) + " features, not " + std::to_string(features.size()));
        }
    }
    for (std::size_t f = 0; f < features.size(); ++f) {
        const FeatureSource& feature = features[f];
        if (feature.kind == FeatureKind::constant) continue;
        const std::string name = "feature " + std::to_string(f);
        if (feature.kind != FeatureKind::kernel && feature.kind != FeatureKind::interaction) return fail(name + " is of no known kind");
        if (feature.n_classes == 0 || feature.class_of == nullptr) return fail(name + " has no classes");
        if (feature.kind == FeatureKind::kernel && feature.class_values == nullptr) return fail(name + " has no values");
        for (std::uint32_t i = 0; i < n_candidates; ++i) {
            if (feature.class_of[i] >= feature.n_classes) {
                return fail(name + " puts candidate " + std::to_string(i) + " into a class that it does not have");
            }
        }
    }
    Isa resolved{};
    if (!resolve_isa(isa, resolved, error)) return nullptr;
    return std::unique_ptr<const Scorer>(new Scorer(Preparation(forests, n_candidates, features, resolved).make()));
}

bool Scorer::score(const double* constants, const double* const* class_values, double* out,
                   Scratch& scratch) const noexcept {
    const Prepared& p = *prepared_;
    const std::size_t sums_size = std::size_t{p.n_forests} * 64 * p.words;
    try {
        if (!scratch.memory_) scratch.memory_ = std::make_unique<Scratch::Memory>();
        Scratch::Memory& memory = *scratch.memory_;
        if (memory.owner != p.id) {
            memory.owner = 0;
            const std::size_t leaves = std::size_t{p.batch_trees} * p.leaf_stride;
            const std::size_t slots = std::size_t{2} * p.level_slots + leaves + slack;
            // A vector's gather of 16-bit numbers reads 2 bytes more.
            memory.mask_of_condition.resize(p.wide ? p.n_conditions : p.n_conditions / 2 + 1);
            memory.masks.resize(std::size_t{p.n_masks} * p.words);
            memory.sets.resize(slots * p.words);
            memory.tags.resize(slots);
            memory.buckets.resize(p.n_buckets);
            memory.rank.resize(p.most_thresholds + 2);
            memory.leaf_counts.resize(p.batch_trees);
            memory.decided.resize(p.n_decided);
            memory.tables.resize(leaves);
            memory.leaf_sets.resize(leaves * p.words);
            memory.sums.resize(sums_size * p.blocks.size());
            memory.owner = p.id;
        }
    } catch (const std::bad_alloc&) {
        return false;
    }
    Scratch::Memory& memory = *scratch.memory_;

    // Constants decide their conditions, interactions the buckets of their classes.
    const auto fill = [&](std::uint32_t first, std::uint32_t count, std::uint32_t mask) {
        if (p.wide) {
            std::fill_n(memory.mask_of_condition.data() + first, count, mask);
        } else {
            std::fill_n(reinterpret_cast<std::uint16_t*>(memory.mask_of_condition.data()) + first, count, static_cast<std::uint16_t>(mask));
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
            fill(condition.condition, 1, is_in_set(constants[condition.feature], words, condition.n_words) ? mask_all : mask_none);
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
    walk.mask_of_condition = memory.mask_of_condition.data();
    walk.masks = memory.masks.data();
    std::fill(memory.sums.begin(), memory.sums.end(), 0.0);
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
