// The walk with AVX2: sets of up to 256 candidates are one register, larger ones two.
#include "walk_functions.hpp"

#if TILE_ORACLE_X86

#include <immintrin.h>

#include <bit>
#include <cstring>

namespace tile_oracle {
namespace avx2 {

#define TILE_ORACLE_TARGET __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define TILE_ORACLE_ALWAYS_INLINE __attribute__((always_inline))
#define TILE_ORACLE_INLINE TILE_ORACLE_TARGET __attribute__((always_inline)) static inline

template <int W>
TILE_ORACLE_TARGET void add_leaves_by_bit(const std::uint64_t*, const double*, std::uint32_t, std::uint32_t,
                                          std::uint32_t, double*) noexcept;

#include "walk_x86_sets.inc"

template <>
struct Register<8> {
    struct Set {
        __m256i low, high;
    };
    using Half = Register<4>;
    TILE_ORACLE_INLINE Set load(const std::uint64_t* from) noexcept { return {Half::load(from), Half::load(from + 4)}; }
    TILE_ORACLE_INLINE void store(std::uint64_t* to, const Set& set) noexcept {
        Half::store(to, set.low);
        Half::store(to + 4, set.high);
    }
    TILE_ORACLE_INLINE Set both(const Set& a, const Set& b) noexcept {
        return {Half::both(a.low, b.low), Half::both(a.high, b.high)};
    }
    TILE_ORACLE_INLINE Set without(const Set& a, const Set& b) noexcept {
        return {Half::without(a.low, b.low), Half::without(a.high, b.high)};
    }
    TILE_ORACLE_INLINE Set either(const Set& a, const Set& b) noexcept {
        return {Half::either(a.low, b.low), Half::either(a.high, b.high)};
    }
    TILE_ORACLE_INLINE bool any(const Set& a) noexcept { return Half::any(Half::either(a.low, a.high)); }
};

/// Bit i of 32 as byte i, all ones or all zeros.
TILE_ORACLE_INLINE __m256i bytes_of(std::uint32_t bits) noexcept {
    const __m256i source = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3,
                                            3, 3, 3, 3, 3);
    const __m256i own_bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), source);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, own_bit), own_bit);
}

/// Adds one tree to the sums of the candidates of one word: a byte per candidate says which leaf, then the
/// values are looked up.
TILE_ORACLE_INLINE void add_word(const std::uint64_t* set, std::size_t words, const double* table, std::uint32_t n,
                                 std::uint32_t n_candidates, double* sums) noexcept {
    __m256i low = _mm256_setzero_si256(), high = low, leaf = _mm256_set1_epi8(1);
    for (std::uint32_t i = 1; i < n; ++i) {
        const std::uint64_t members = set[i * words];
        low = _mm256_or_si256(low, _mm256_and_si256(leaf, bytes_of(static_cast<std::uint32_t>(members))));
        high = _mm256_or_si256(high, _mm256_and_si256(leaf, bytes_of(static_cast<std::uint32_t>(members >> 32))));
        leaf = _mm256_add_epi8(leaf, _mm256_set1_epi8(1));
    }
    alignas(32) std::uint8_t ordinals[64];
    _mm256_store_si256(reinterpret_cast<__m256i*>(ordinals), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(ordinals + 32), high);
    // The sums are a whole number of words long; what lies past the last candidate gets the first leaf.
    for (std::uint32_t i = 0; i < n_candidates; i += 4) {
        const __m256d value = _mm256_setr_pd(table[ordinals[i]], table[ordinals[i + 1]], table[ordinals[i + 2]],
                                             table[ordinals[i + 3]]);
        _mm256_store_pd(sums + i, _mm256_add_pd(_mm256_load_pd(sums + i), value));
    }
}

template <int W>
struct Ops : Register<W> {
    static constexpr bool walks_levels = false;
    TILE_ORACLE_TARGET static void finish(const std::uint64_t* sets, const double* tables, std::size_t stride,
                                          const std::uint32_t* counts, std::uint32_t n_trees,
                                          std::uint32_t n_candidates, double* sums) noexcept {
        for (std::uint32_t word = 0; word * 64 < n_candidates; ++word) {
            const std::uint32_t n = n_candidates - word * 64 < 64 ? n_candidates - word * 64 : 64;
            double* of_word = sums + word * 64;
            for (std::uint32_t tree = 0; tree < n_trees; ++tree) {
                const std::uint64_t* set = sets + tree * stride * W;
                const double* table = tables + tree * stride;
                if (counts[tree] == 1) {
                    const __m256d value = _mm256_set1_pd(table[0]);
                    for (std::uint32_t i = 0; i < n; i += 4) {
                        _mm256_store_pd(of_word + i, _mm256_add_pd(_mm256_load_pd(of_word + i), value));
                    }
                } else if (counts[tree] <= 256) {
                    add_word(set + word, W, table, counts[tree], n, of_word);
                } else {
                    add_leaves_by_bit<W>(set, table, counts[tree], word, word + 1, sums);
                }
            }
        }
    }
};

#include "walk.hpp"

}  // namespace avx2

WalkFunction avx2_walk(std::uint32_t words, bool wide) noexcept { return avx2::walk_function_of(words, wide); }

}  // namespace tile_oracle

#endif
