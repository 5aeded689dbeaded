// The walk over one block, as templates that each instruction set compiles for itself. Internal.
//
// Included by src/walk_*.cpp inside a namespace of their own, after they have defined
//   TILE_ORACLE_TARGET  the attribute that lets a function use the instruction set
//   struct Ops<W>       sets of W words: `Set load(p)`, `store(p, s)`, `both(a, b)`, `without(a, b)`,
//                       `either(a, b)`, `bool any(s)`; and `finish`, which adds a batch's leaves to the sums
// so nothing here may be inlined across instruction sets, and nothing may be a lambda (which takes no attribute).

template <int W, class Number>
TILE_ORACLE_TARGET void build_group(const Walk& walk, const Group& group, std::uint32_t& next_mask) noexcept {
    const Partition& partition = walk.block->partitions[group.partition];
    const std::uint32_t* bucket = walk.buckets + group.first_bucket;
    Number* of_condition = static_cast<Number*>(walk.mask_of_condition) + group.first_condition;
    const std::size_t n_classes = partition.classes.size(), n = group.n_thresholds;
    std::uint32_t* rank = walk.rank;
    if (n_classes == 1) {
        const std::uint32_t first = bucket[partition.classes[0]];
        for (std::size_t i = 0; i < n; ++i) of_condition[i] = static_cast<Number>(i < first ? mask_none : mask_all);
        return;
    }
    // First which buckets hold a class, then the number of the mask that each of them begins.
    std::memset(rank, 0, (n + 1) * sizeof *rank);
    for (const std::uint32_t c : partition.classes) rank[bucket[c]] = 1;
    std::uint32_t mask = next_mask;
    for (std::size_t i = 0; i < n; ++i) {
        mask += rank[i];
        rank[i] = mask - 1;
        of_condition[i] = static_cast<Number>(mask == next_mask ? mask_none : mask - 1);
    }
    rank[n] = mask;  // values above every threshold: in no mask of the group; this one is not used
    std::uint64_t* masks = walk.masks + std::size_t{next_mask} * W;
    std::memset(masks, 0, std::size_t{mask - next_mask + 1} * W * sizeof *masks);
    if (partition.local_class.empty()) {
        const std::uint64_t* members = partition.members.data();
        for (std::size_t c = 0; c < n_classes; ++c) {
            std::uint64_t* to = walk.masks + std::size_t{rank[bucket[partition.classes[c]]]} * W;
            Ops<W>::store(to, Ops<W>::either(Ops<W>::load(to), Ops<W>::load(members + c * W)));
        }
    } else {
        const std::uint32_t n_candidates = walk.block->n_candidates;
        for (std::uint32_t i = 0; i < n_candidates; ++i) {
            const std::uint32_t r = rank[bucket[partition.classes[partition.local_class[i]]]];
            walk.masks[std::size_t{r} * W + i / 64] |= std::uint64_t{1} << (i % 64);
        }
    }
    if (mask > next_mask) {
        auto sum = Ops<W>::load(masks);
        for (std::uint32_t m = 1; m < mask - next_mask; ++m) {
            sum = Ops<W>::either(sum, Ops<W>::load(masks + std::size_t{m} * W));
            Ops<W>::store(masks + std::size_t{m} * W, sum);
        }
    }
    next_mask = mask;
}

template <int W, class Number>
TILE_ORACLE_TARGET void build_masks(const Walk& walk) noexcept {
    const Scorer::Prepared& prepared = *walk.prepared;
    const Block& block = *walk.block;
    Number* of_condition = static_cast<Number*>(walk.mask_of_condition);
    std::memcpy(walk.masks, block.static_masks.data(), block.static_masks.size() * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < block.static_conditions.size(); ++i) {
        of_condition[prepared.kernel_conditions[i]] = static_cast<Number>(block.static_conditions[i]);
    }
    std::uint32_t next_mask = block.n_static_masks;
    for (const Group& group : prepared.groups) {
        if (group.kind == FeatureKind::interaction) build_group<W, Number>(walk, group, next_mask);
    }
    const std::uint8_t* decided = walk.decided;
    for (const CategoricalCondition& condition : prepared.categorical) {
        if (condition.kind != FeatureKind::interaction) continue;
        const Partition& partition = block.partitions[condition.partition];
        std::uint64_t* mask = walk.masks + std::size_t{next_mask} * W;
        std::memset(mask, 0, W * sizeof *mask);
        if (partition.local_class.empty()) {
            for (std::size_t c = 0; c < partition.classes.size(); ++c) {
                if (!decided[partition.classes[c]]) continue;
                for (int w = 0; w < W; ++w) mask[w] |= partition.members[c * W + w];
            }
        } else {
            for (std::uint32_t i = 0; i < block.n_candidates; ++i) {
                const std::uint64_t holds = decided[partition.classes[partition.local_class[i]]];
                mask[i / 64] |= holds << (i % 64);
            }
        }
        of_condition[condition.condition] = static_cast<Number>(next_mask++);
        decided += prepared.n_classes[condition.feature];
    }
}

/// Writes a child's set to both queues, or, where sets are large, to the one that it belongs to. That one is
/// selected by arithmetic: compilers make a branch of ?:, which is mispredicted half of the time.
template <int W, class Set>
TILE_ORACLE_TARGET TILE_ORACLE_ALWAYS_INLINE inline void put(std::uint64_t* sets, const Set& set, std::size_t to,
                                                      std::size_t to_leaf, std::size_t is_leaf) noexcept {
    if constexpr (W <= 2) {
        Ops<W>::store(sets + to * W, set);
        Ops<W>::store(sets + to_leaf * W, set);
    } else {
        Ops<W>::store(sets + (to ^ ((to ^ to_leaf) & (std::size_t{0} - is_leaf))) * W, set);
    }
}

/// Hands the sets of the inner nodes in slots `begin` to `end` to their children. Both children are always
/// written, and kept by moving on or not: no branch depends on the data.
template <int W, class Number>
TILE_ORACLE_TARGET void walk_level(const NodeOf<Number>* nodes, const Number* of_condition, const std::uint64_t* masks,
                                   std::uint64_t* sets, std::uint64_t* tags, std::size_t begin, std::size_t end,
                                   std::size_t& to_inner, std::size_t& to_leaf_slot, Ahead& ahead) noexcept {
    std::size_t to = to_inner, to_leaf = to_leaf_slot;
    for (std::size_t i = begin; i < end; ++i) {
        const std::uint64_t tag = tags[i];
        ahead.fetch();
        const NodeOf<Number> node = nodes[static_cast<std::uint32_t>(tag)];
        const auto set = Ops<W>::load(sets + i * W);
        const auto mask = Ops<W>::load(masks + std::size_t{of_condition[node.condition]} * W);
        const auto left = Ops<W>::both(set, mask);
        const auto right = Ops<W>::without(set, mask);
        const std::size_t any_left = Ops<W>::any(left), any_right = Ops<W>::any(right);
        const std::size_t left_leaf = node.link & 1, right_leaf = node.link >> 1 & 1, delta = node.link >> 2;
        const std::uint64_t inner = tag + delta, leaf = tag + 1 - delta;
        put<W>(sets, left, to, to_leaf, left_leaf);
        tags[to] = inner;
        tags[to_leaf] = leaf;
        to_leaf += any_left & left_leaf;
        to += any_left & (left_leaf ^ 1);
        put<W>(sets, right, to, to_leaf, right_leaf);
        tags[to] = inner + (left_leaf ^ 1);
        tags[to_leaf] = leaf + left_leaf;
        to_leaf += any_right & right_leaf;
        to += any_right & (right_leaf ^ 1);
    }
    to_inner = to;
    to_leaf_slot = to_leaf;
}

/// Walks the trees of a batch level by level: two queues of inner nodes, turn by turn, and one of leaves. Then
/// gives every tree its leaves.
template <int W, class Number>
TILE_ORACLE_TARGET void walk_batch(const Walk& walk, const Batch& batch, const std::uint64_t* root,
                                   Ahead& ahead) noexcept {
    const Scorer::Prepared& prepared = *walk.prepared;
    const auto* nodes = static_cast<const NodeOf<Number>*>(walk.nodes);
    const auto* of_condition = static_cast<const Number*>(walk.mask_of_condition);
    const std::uint64_t* masks = walk.masks;
    std::uint64_t* sets = walk.sets;
    std::uint64_t* tags = walk.tags;
    const std::size_t first_leaf_slot = std::size_t{2} * prepared.level_slots;

    std::size_t level = 0, other = prepared.level_slots, to = level, to_leaf = first_leaf_slot;
    const auto all = Ops<W>::load(root);
    for (std::uint32_t t = batch.begin; t < batch.end; ++t) {
        const PreparedTree tree = prepared.trees[t];
        std::size_t& at = tree.n_leaves == 1 ? to_leaf : to;
        Ops<W>::store(sets + at * W, all);
        tags[at++] = tree.first_node | std::uint64_t{t - batch.begin} << 32;
    }
    const double* values = prepared.leaf_values.data();
    std::size_t fetched = to_leaf;
    while (to != level) {
        const std::size_t end = to;
        to = other;
        if constexpr (Ops<W>::walks_levels) {
            Ops<W>::template walk_level<Number>(nodes, walk.condition_masks, sets, tags, level, end, to, to_leaf, ahead);
        } else {
            walk_level<W, Number>(nodes, of_condition, masks, sets, tags, level, end, to, to_leaf, ahead);
        }
        for (; fetched < to_leaf; ++fetched) fetch(values + static_cast<std::uint32_t>(tags[fetched]));
        const std::size_t swapped = level;
        level = other;
        other = swapped;
    }

    std::uint32_t* counts = walk.leaf_counts;
    std::memset(counts, 0, (batch.end - batch.begin) * sizeof *counts);
    const std::size_t stride = prepared.leaf_stride;
    for (std::size_t i = first_leaf_slot; i < to_leaf; ++i) {
        const std::size_t tree = tags[i] >> 32, at = tree * stride + counts[tree]++;
        walk.tables[at] = values[static_cast<std::uint32_t>(tags[i])];
        Ops<W>::store(walk.leaf_sets + at * W, Ops<W>::load(sets + i * W));
    }
}

/// Adds the leaves of one tree bit by bit: any number of leaves, any instruction set.
template <int W>
TILE_ORACLE_TARGET inline void add_leaves_by_bit(const std::uint64_t* sets, const double* table, std::uint32_t n,
                                                 std::uint32_t first_word, std::uint32_t end_word,
                                                 double* sums) noexcept {
    for (std::uint32_t leaf = 0; leaf < n; ++leaf) {
        for (std::uint32_t w = first_word; w < end_word; ++w) {
            for (std::uint64_t rest = sets[std::size_t{leaf} * W + w]; rest; rest &= rest - 1) {
                sums[w * 64 + static_cast<unsigned>(std::countr_zero(rest))] += table[leaf];
            }
        }
    }
}

template <int W, class Number>
TILE_ORACLE_TARGET void walk_block(const Walk& walk) noexcept {
    const Scorer::Prepared& prepared = *walk.prepared;
    build_masks<W, Number>(walk);
    if constexpr (Ops<W>::walks_levels) {
        // One look-up a node less, for one a condition more: a walk meets most conditions many times.
        const auto* of_condition = static_cast<const Number*>(walk.mask_of_condition);
        for (std::uint32_t c = 0; c < prepared.n_conditions; ++c) walk.condition_masks[c] = walk.masks[of_condition[c]];
    }
    Ahead ahead{};
    for (const Batch& batch : prepared.batches) {
        ahead.aim(walk, batch, sizeof(NodeOf<Number>));
        walk_batch<W, Number>(walk, batch, walk.masks + std::size_t{mask_all} * W, ahead);
        Ops<W>::finish(walk.leaf_sets, walk.tables, prepared.leaf_stride, walk.leaf_counts, batch.end - batch.begin,
                       walk.block->n_candidates, walk.sums + std::size_t{batch.forest} * 64 * W);
    }
}

inline WalkFunction walk_function_of(std::uint32_t words, bool wide) noexcept {
    switch (words) {
        case 1: return wide ? walk_block<1, std::uint32_t> : walk_block<1, std::uint16_t>;
        case 2: return wide ? walk_block<2, std::uint32_t> : walk_block<2, std::uint16_t>;
        case 4: return wide ? walk_block<4, std::uint32_t> : walk_block<4, std::uint16_t>;
        default: return wide ? walk_block<8, std::uint32_t> : walk_block<8, std::uint16_t>;
    }
}
