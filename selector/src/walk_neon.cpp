// The walk with NEON, which every 64-bit Arm processor has: sets are pairs of words.
#include "walk_functions.hpp"

#if TILE_ORACLE_NEON

#include <arm_neon.h>

#include <bit>
#include <cstring>

namespace tile_oracle {
namespace neon {

#define TILE_ORACLE_TARGET
#define TILE_ORACLE_ALWAYS_INLINE __attribute__((always_inline))

template <int W>
void add_leaves_by_bit(const std::uint64_t*, const double*, std::uint32_t, std::uint32_t, std::uint32_t,
                       double*) noexcept;

template <int W>
struct Pairs {
    static constexpr int n = W / 2;
    struct Set {
        uint64x2_t pair[n];
    };
    static Set load(const std::uint64_t* from) noexcept {
        Set set;
        for (int i = 0; i < n; ++i) set.pair[i] = vld1q_u64(from + 2 * i);
        return set;
    }
    static void store(std::uint64_t* to, const Set& set) noexcept {
        for (int i = 0; i < n; ++i) vst1q_u64(to + 2 * i, set.pair[i]);
    }
    static Set both(const Set& a, const Set& b) noexcept {
        Set result;
        for (int i = 0; i < n; ++i) result.pair[i] = vandq_u64(a.pair[i], b.pair[i]);
        return result;
    }
    static Set without(const Set& a, const Set& b) noexcept {
        Set result;
        for (int i = 0; i < n; ++i) result.pair[i] = vbicq_u64(a.pair[i], b.pair[i]);
        return result;
    }
    static Set either(const Set& a, const Set& b) noexcept {
        Set result;
        for (int i = 0; i < n; ++i) result.pair[i] = vorrq_u64(a.pair[i], b.pair[i]);
        return result;
    }
    static bool any(const Set& a) noexcept {
        uint64x2_t all = a.pair[0];
        for (int i = 1; i < n; ++i) all = vorrq_u64(all, a.pair[i]);
        // A word that is not zero has a half that is not.
        return vmaxvq_u32(vreinterpretq_u32_u64(all)) != 0;
    }
};
template <>
struct Pairs<1> {
    using Set = std::uint64_t;
    static Set load(const std::uint64_t* from) noexcept { return *from; }
    static void store(std::uint64_t* to, Set set) noexcept { *to = set; }
    static Set both(Set a, Set b) noexcept { return a & b; }
    static Set without(Set a, Set b) noexcept { return a & ~b; }
    static Set either(Set a, Set b) noexcept { return a | b; }
    static bool any(Set a) noexcept { return a != 0; }
};

template <int W>
struct Ops : Pairs<W> {
    static constexpr bool walks_levels = false;
    static void finish(const std::uint64_t* sets, const double* tables, std::size_t stride,
                       const std::uint32_t* counts, std::uint32_t n_trees, std::uint32_t n_candidates,
                       double* sums) noexcept {
        for (std::uint32_t tree = 0; tree < n_trees; ++tree) {
            const double* table = tables + tree * stride;
            if (counts[tree] == 1) {
                const float64x2_t value = vdupq_n_f64(table[0]);
                // The sums are a whole number of words long.
                for (std::uint32_t i = 0; i < n_candidates; i += 2) {
                    vst1q_f64(sums + i, vaddq_f64(vld1q_f64(sums + i), value));
                }
            } else {
                add_leaves_by_bit<W>(sets + tree * stride * W, table, counts[tree], 0, W, sums);
            }
        }
    }
};

#include "walk.hpp"

}  // namespace neon

WalkFunction neon_walk(std::uint32_t words, bool wide) noexcept { return neon::walk_function_of(words, wide); }

}  // namespace tile_oracle

#endif
