// The walk in plain C++: the only one on processors without a known vector unit, and what the others must equal.
#include <bit>
#include <cstring>

#include "walk_functions.hpp"

namespace tile_oracle {
namespace scalar {

#define TILE_ORACLE_TARGET
#define TILE_ORACLE_ALWAYS_INLINE

template <int W>
TILE_ORACLE_TARGET void add_leaves_by_bit(const std::uint64_t*, const double*, std::uint32_t, std::uint32_t,
                                          std::uint32_t, double*) noexcept;

template <int W>
struct Ops {
    static constexpr bool walks_levels = false;
    struct Set {
        std::uint64_t word[W];
    };
    static Set load(const std::uint64_t* from) noexcept {
        Set set;
        std::memcpy(set.word, from, sizeof set.word);
        return set;
    }
    static void store(std::uint64_t* to, const Set& set) noexcept { std::memcpy(to, set.word, sizeof set.word); }
    static Set both(const Set& a, const Set& b) noexcept {
        Set result;
        for (int w = 0; w < W; ++w) result.word[w] = a.word[w] & b.word[w];
        return result;
    }
    static Set without(const Set& a, const Set& b) noexcept {
        Set result;
        for (int w = 0; w < W; ++w) result.word[w] = a.word[w] & ~b.word[w];
        return result;
    }
    static Set either(const Set& a, const Set& b) noexcept {
        Set result;
        for (int w = 0; w < W; ++w) result.word[w] = a.word[w] | b.word[w];
        return result;
    }
    static bool any(const Set& a) noexcept {
        std::uint64_t all = 0;
        for (int w = 0; w < W; ++w) all |= a.word[w];
        return all != 0;
    }
    static void finish(const std::uint64_t* sets, const double* tables, std::size_t stride,
                       const std::uint32_t* counts, std::uint32_t n_trees, std::uint32_t n_candidates,
                       double* sums) noexcept {
        for (std::uint32_t tree = 0; tree < n_trees; ++tree) {
            const double* table = tables + tree * stride;
            if (counts[tree] == 1) {
                for (std::uint32_t i = 0; i < n_candidates; ++i) sums[i] += table[0];
            } else {
                add_leaves_by_bit<W>(sets + tree * stride * W, table, counts[tree], 0, W, sums);
            }
        }
    }
};

#include "walk.hpp"

}  // namespace scalar

WalkFunction scalar_walk(std::uint32_t words, bool wide) noexcept { return scalar::walk_function_of(words, wide); }

}  // namespace tile_oracle
