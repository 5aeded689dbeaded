// What does not depend on the problem: conditions numbered, candidates merged and sorted, trees packed.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "lightgbm_values.hpp"
#include "prepared.hpp"
#include "walk_functions.hpp"

namespace tile_oracle {
namespace {

constexpr std::uint32_t most_words = 8;

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
            const auto at = std::lower_bound(sorted.begin(), sorted.end(), keys[i]);
            class_of_[i] = static_cast<std::uint32_t>(at - sorted.begin());
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
        prepared_->isa = isa;
        prepared_->n_candidates = n_candidates;
        prepared_->n_features = static_cast<std::uint32_t>(features.size());
        prepared_->n_forests = static_cast<std::uint32_t>(forests.size());
        for (const FeatureSource& feature : features) {
            prepared_->kinds.push_back(feature.kind);
            prepared_->n_classes.push_back(feature.kind == FeatureKind::constant ? 1 : feature.n_classes);
        }
    }

    std::unique_ptr<const Prepared> made() {
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

    static std::size_t place_of(const GroupKey& key) {
        const auto [feature, missing, missing_left] = key;
        return (std::size_t{feature} * 3 + static_cast<std::size_t>(missing)) * 2 + missing_left;
    }

    void number_conditions() {
        Prepared& p = *prepared_;
        std::vector<std::vector<double>> thresholds(features_.size() * 6);
        group_of_.resize(thresholds.size());
        p.read_features.assign(features_.size(), 0);
        weight_.assign(features_.size(), 0);
        for (const auto& forest : forests_) {
            for (const Split& split : forest->splits) {
                p.read_features[split.feature] = 1;
                ++weight_[split.feature];
                if (split.bitset < 0) {
                    thresholds[place_of(group_key(split))].push_back(split.threshold);
                } else {
                    set_numbers_.emplace(SetKey{split.feature, forest->bitsets[split.bitset]}, 0);
                }
            }
        }
        std::uint32_t condition = 0;
        for (std::size_t place = 0; place < thresholds.size(); ++place) {
            std::vector<double>& values = thresholds[place];
            if (values.empty()) continue;
            std::sort(values.begin(), values.end());
            values.erase(std::unique(values.begin(), values.end()), values.end());
            const auto feature = static_cast<std::uint32_t>(place / 6);
            group_of_[place] = static_cast<std::uint32_t>(p.groups.size());
            Group group{};
            group.feature = feature;
            group.first_condition = condition;
            group.first_threshold = static_cast<std::uint32_t>(p.thresholds.size());
            group.n_thresholds = static_cast<std::uint32_t>(values.size());
            group.kind = features_[feature].kind;
            group.missing = static_cast<Missing>(place / 2 % 3);
            group.missing_left = place % 2 != 0;
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
        for (std::size_t i = 0; i < partitions_.size(); ++i) {
            distinctions.emplace_back(partition_weight[i], partitions_[i]);
        }
        std::stable_sort(distinctions.begin(), distinctions.end(),
                         [](const auto& a, const auto& b) { return a.first > b.first; });
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
            for (std::uint32_t i = 0; i < n; ++i) {
                masks[bucket[example_[first + i]]][i / 64] |= std::uint64_t{1} << (i % 64);
            }
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
            for (std::uint32_t i = 0; i < n; ++i) {
                mask[i / 64] |= std::uint64_t{holds[example_[first + i]]} << (i % 64);
            }
            block.static_conditions.push_back(add(mask));
        }
        block.n_static_masks = static_cast<std::uint32_t>(number_of.size());
        std::uint32_t n_masks = block.n_static_masks + 1;
        for (const auto& class_of : partitions_) block.partitions.push_back(make_partition(class_of, first, n));
        for (const Group& group : p.groups) {
            if (group.kind != FeatureKind::interaction) continue;
            const std::size_t n_classes = block.partitions[group.partition].classes.size();
            n_masks += std::min(group.n_thresholds, static_cast<std::uint32_t>(n_classes));
        }
        for (const CategoricalCondition& condition : p.categorical) {
            n_masks += condition.kind == FeatureKind::interaction;
        }
        p.n_masks = std::max(p.n_masks, n_masks);
        return block;
    }

    Partition make_partition(const std::vector<std::uint32_t>& class_of, std::uint32_t first, std::uint32_t n) const {
        const std::uint32_t words = prepared_->words;
        Partition partition;
        std::vector<std::uint32_t>& classes = partition.classes;
        for (std::uint32_t i = 0; i < n; ++i) classes.push_back(class_of[example_[first + i]]);
        std::sort(classes.begin(), classes.end());
        classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
        // A union of sets costs about as much as a few single bits.
        const bool by_class = classes.size() * 4 <= n;
        if (by_class) partition.members.assign(partition.classes.size() * words, 0);
        for (std::uint32_t i = 0; i < n; ++i) {
            const auto at = std::lower_bound(classes.begin(), classes.end(), class_of[example_[first + i]]);
            const auto local = static_cast<std::size_t>(at - classes.begin());
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
        const Group& group = prepared_->groups[group_of_[place_of(group_key(split))]];
        const double* first = prepared_->thresholds.data() + group.first_threshold;
        const double* at = std::lower_bound(first, first + group.n_thresholds, split.threshold);
        return group.first_condition + static_cast<std::uint32_t>(at - first);
    }

    const std::vector<std::shared_ptr<const Forest>>& forests_;
    std::span<const FeatureSource> features_;
    std::unique_ptr<Prepared> prepared_;
    std::vector<std::uint32_t> group_of_;  ///< by place_of
    std::map<SetKey, std::uint32_t> set_numbers_;
    std::vector<std::uint64_t> weight_;  ///< how many splits ask each feature
    std::vector<std::vector<std::uint32_t>> partitions_;
    std::vector<std::uint32_t> distinct_of_;  ///< candidate -> sorted distinct candidate
    std::vector<std::uint32_t> example_;  ///< distinct candidate -> one candidate
};

}  // namespace

std::unique_ptr<const Scorer::Prepared> prepare(const std::vector<std::shared_ptr<const Forest>>& forests,
                                                std::uint32_t n_candidates, std::span<const FeatureSource> features,
                                                Isa isa) {
    return Preparation(forests, n_candidates, features, isa).made();
}

}  // namespace tile_oracle
