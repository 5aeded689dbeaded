#include "tile_oracle/forest.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace tile_oracle {
namespace {

constexpr char magic[8] = {'T', 'O', 'F', 'O', 'R', 'E', 'S', 'T'};
constexpr std::uint32_t version = 1;
constexpr std::size_t header_bytes = sizeof magic + 8 * sizeof(std::uint32_t);
/// Node numbers are packed into 30 bits, with room for two flags.
constexpr std::uint64_t max_count = (1u << 29) - 1;

constexpr std::uint8_t categorical_bit = 1;
constexpr std::uint8_t default_left_bit = 2;
constexpr int missing_shift = 2;

std::uint32_t crc32(const unsigned char* bytes, std::size_t size) {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
        table[i] = value;
    }
    std::uint32_t sum = ~0u;
    for (std::size_t i = 0; i < size; ++i) sum = (sum >> 8) ^ table[(sum ^ bytes[i]) & 255];
    return ~sum;
}

/// Takes arrays off the front of a buffer whose size was checked before.
class Reader {
public:
    explicit Reader(const unsigned char* at) : at_(at) {}

    template <class T>
    std::vector<T> take(std::size_t count) {
        std::vector<T> values(count);
        if (count) std::memcpy(values.data(), at_, count * sizeof(T));
        at_ += count * sizeof(T);
        return values;
    }

private:
    const unsigned char* at_;
};

/// Whether every split and every leaf of the tree is reached from the root exactly once.
bool is_a_tree(const Split* splits, std::uint32_t n_leaves) {
    std::vector<bool> split_seen(n_leaves - 1, false), leaf_seen(n_leaves, false);
    std::vector<std::uint32_t> open{0};
    if (n_leaves > 1) split_seen[0] = true;
    std::uint32_t leaves = 0, inner = 1;
    for (std::size_t next = 0; n_leaves > 1 && next < open.size(); ++next) {
        for (const std::int32_t child : {splits[open[next]].left, splits[open[next]].right}) {
            if (child >= 0) {
                if (static_cast<std::uint32_t>(child) >= n_leaves - 1 || split_seen[child]) return false;
                split_seen[child] = true;
                open.push_back(static_cast<std::uint32_t>(child));
                ++inner;
            } else {
                const auto leaf = static_cast<std::uint32_t>(~child);
                if (leaf >= n_leaves || leaf_seen[leaf]) return false;
                leaf_seen[leaf] = true;
                ++leaves;
            }
        }
    }
    return n_leaves == 1 || (leaves == n_leaves && inner == n_leaves - 1);
}

}  // namespace

std::shared_ptr<const Forest> Forest::read(const void* bytes, std::size_t size, std::string& error) {
    static_assert(std::endian::native == std::endian::little, "forests are little-endian");
    const auto* data = static_cast<const unsigned char*>(bytes);
    const auto fail = [&error](std::string what) {
        error = "not a forest: " + std::move(what) + "; export the model again";
        return nullptr;
    };
    if (data == nullptr || size < header_bytes || std::memcmp(data, magic, sizeof magic) != 0) {
        return fail("it does not begin with TOFOREST");
    }
    std::array<std::uint32_t, 8> header{};
    std::memcpy(header.data(), data + sizeof magic, sizeof header);
    const auto [file_version, checksum, n_features, n_trees, n_splits, n_leaves, n_bitsets, n_words] = header;
    if (file_version != version) return fail("it has version " + std::to_string(file_version) + ", not 1");
    for (const std::uint32_t count : header) {
        if (count == checksum) continue;
        if (count > max_count) return fail("it claims " + std::to_string(count) + " parts");
    }
    const std::uint64_t expected =
        header_bytes + std::uint64_t{n_splits} * (8 + 4 + 4 + 4 + 1) + std::uint64_t{n_leaves} * 8 +
        std::uint64_t{n_trees} * 4 + std::uint64_t{n_bitsets} * 4 + std::uint64_t{n_words} * 4;
    if (size != expected) {
        return fail("it has " + std::to_string(size) + " bytes where its header says " + std::to_string(expected));
    }
    if (crc32(data + header_bytes, size - header_bytes) != checksum) return fail("its checksum is another");

    Reader reader(data + header_bytes);
    const auto thresholds = reader.take<double>(n_splits);
    auto leaf_values = reader.take<double>(n_leaves);
    const auto features = reader.take<std::uint32_t>(n_splits);
    const auto left = reader.take<std::int32_t>(n_splits);
    const auto right = reader.take<std::int32_t>(n_splits);
    const auto tree_leaves = reader.take<std::uint32_t>(n_trees);
    const auto bitset_words = reader.take<std::uint32_t>(n_bitsets);
    const auto words = reader.take<std::uint32_t>(n_words);
    const auto decisions = reader.take<std::uint8_t>(n_splits);

    auto forest = std::make_shared<Forest>();
    forest->n_features = n_features;
    forest->leaf_values = std::move(leaf_values);
    std::size_t word = 0;
    for (const std::uint32_t length : bitset_words) {
        if (length > n_words - word) return fail("its category sets do not add up");
        forest->bitsets.emplace_back(words.begin() + word, words.begin() + word + length);
        word += length;
    }
    if (word != n_words) return fail("its category sets do not add up");

    forest->splits.resize(n_splits);
    for (std::uint32_t i = 0; i < n_splits; ++i) {
        Split& split = forest->splits[i];
        split = {thresholds[i], features[i], left[i], right[i], -1, Missing::none, false};
        if (split.feature >= n_features) return fail("split " + std::to_string(i) + " names no feature");
        if (decisions[i] & categorical_bit) {
            if (!(thresholds[i] >= 0 && thresholds[i] < n_bitsets)) {
                return fail("split " + std::to_string(i) + " names no set of categories");
            }
            split.bitset = static_cast<std::int32_t>(thresholds[i]);
        } else {
            const int missing = (decisions[i] >> missing_shift) & 3;
            if (missing > 2 || std::isnan(split.threshold)) {
                return fail("split " + std::to_string(i) + " has no threshold or no kind of missing value");
            }
            split.missing = static_cast<Missing>(missing);
            split.missing_left = (decisions[i] & default_left_bit) != 0;
        }
    }
    std::uint64_t first_split = 0, first_leaf = 0;
    for (std::uint32_t i = 0; i < n_trees; ++i) {
        const std::uint32_t count = tree_leaves[i];
        if (count == 0 || first_leaf + count > n_leaves || first_split + count - 1 > n_splits ||
            !is_a_tree(forest->splits.data() + first_split, count)) {
            return fail("tree " + std::to_string(i) + " is not a tree");
        }
        forest->trees.push_back({static_cast<std::uint32_t>(first_split), static_cast<std::uint32_t>(first_leaf), count});
        first_split += count - 1;
        first_leaf += count;
    }
    if (first_split != n_splits || first_leaf != n_leaves) return fail("its trees do not add up");
    return forest;
}

}  // namespace tile_oracle
