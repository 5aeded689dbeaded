// The walk with AVX-512 (F, BW, DQ, VL): sets of up to 512 candidates are one register.
#include "walk_functions.hpp"

#if TILE_ORACLE_X86

#include <immintrin.h>

#include <bit>
#include <cstring>

namespace tile_oracle {
namespace avx512 {

#define TILE_ORACLE_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt")))
#define TILE_ORACLE_ALWAYS_INLINE __attribute__((always_inline))
#define TILE_ORACLE_INLINE TILE_ORACLE_TARGET __attribute__((always_inline)) static inline

template <int W>
TILE_ORACLE_TARGET void add_leaves_by_bit(const std::uint64_t*, const double*, std::uint32_t, std::uint32_t,
                                          std::uint32_t, double*) noexcept;

#include "walk_x86_sets.inc"

template <>
struct Register<8> {
    using Set = __m512i;
    TILE_ORACLE_INLINE Set load(const std::uint64_t* from) noexcept { return _mm512_load_si512(from); }
    TILE_ORACLE_INLINE void store(std::uint64_t* to, Set set) noexcept { _mm512_store_si512(to, set); }
    TILE_ORACLE_INLINE Set both(Set a, Set b) noexcept { return _mm512_and_si512(a, b); }
    TILE_ORACLE_INLINE Set without(Set a, Set b) noexcept { return _mm512_andnot_si512(b, a); }
    TILE_ORACLE_INLINE Set either(Set a, Set b) noexcept { return _mm512_or_si512(a, b); }
    TILE_ORACLE_INLINE bool any(Set a) noexcept { return _mm512_test_epi64_mask(a, a) != 0; }
};

/// A table of up to 8, 16 or 32 doubles in registers, looked up by eight ordinals at once.
template <int Registers>
struct Table {
    __m512d part[Registers];
    TILE_ORACLE_INLINE Table load(const double* from) noexcept {
        Table table;
        for (int i = 0; i < Registers; ++i) table.part[i] = _mm512_loadu_pd(from + 8 * i);
        return table;
    }
    TILE_ORACLE_INLINE __m512d look_up(const Table& table, __m512i ordinal) noexcept {
        if constexpr (Registers == 1) {
            return _mm512_permutexvar_pd(ordinal, table.part[0]);
        } else if constexpr (Registers == 2) {
            return _mm512_permutex2var_pd(table.part[0], ordinal, table.part[1]);
        } else {
            const __m512d low = _mm512_permutex2var_pd(table.part[0], ordinal, table.part[1]);
            const __m512d high = _mm512_permutex2var_pd(table.part[2], ordinal, table.part[3]);
            return _mm512_mask_mov_pd(low, _mm512_test_epi64_mask(ordinal, _mm512_set1_epi64(16)), high);
        }
    }
};

template <int Registers, int Eights>
TILE_ORACLE_INLINE void add_table(const double* from, const std::uint8_t* ordinals, __m512d* sums) noexcept {
    const auto table = Table<Registers>::load(from);
    for (int i = 0; i < Eights; ++i) {
        const __m512i ordinal =
            _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(ordinals + 8 * i)));
        sums[i] = _mm512_add_pd(sums[i], Table<Registers>::look_up(table, ordinal));
    }
}

/// Adds a batch of trees to the sums of up to 8 * Eights candidates of one word; they stay in registers.
template <int W, int Eights>
TILE_ORACLE_TARGET void finish_word(const std::uint64_t* sets, const double* tables, std::size_t stride,
                                    const std::uint32_t* counts, std::uint32_t n_trees, std::uint32_t word,
                                    double* sums) noexcept {
    __m512d sum[Eights];
    for (int i = 0; i < Eights; ++i) sum[i] = _mm512_load_pd(sums + word * 64 + 8 * i);
    for (std::uint32_t tree = 0; tree < n_trees; ++tree) {
        const std::uint64_t* set = sets + tree * stride * W + word;
        const double* table = tables + tree * stride;
        const std::uint32_t n = counts[tree];
        if (n == 1) {
            const __m512d value = _mm512_set1_pd(table[0]);
            for (int i = 0; i < Eights; ++i) sum[i] = _mm512_add_pd(sum[i], value);
            continue;
        }
        if (n > 256) {
            for (int i = 0; i < Eights; ++i) _mm512_store_pd(sums + word * 64 + 8 * i, sum[i]);
            add_leaves_by_bit<W>(set - word, table, n, word, word + 1, sums);
            for (int i = 0; i < Eights; ++i) sum[i] = _mm512_load_pd(sums + word * 64 + 8 * i);
            continue;
        }
        __m512i ordinal = _mm512_setzero_si512(), leaf = _mm512_set1_epi8(1);
        for (std::uint32_t i = 1; i < n; ++i) {
            ordinal = _mm512_mask_mov_epi8(ordinal, set[std::size_t{i} * W], leaf);
            leaf = _mm512_add_epi8(leaf, _mm512_set1_epi8(1));
        }
        alignas(64) std::uint8_t ordinals[64];
        _mm512_store_si512(ordinals, ordinal);
        if (n <= 8) {
            add_table<1, Eights>(table, ordinals, sum);
        } else if (n <= 16) {
            add_table<2, Eights>(table, ordinals, sum);
        } else if (n <= 32) {
            add_table<4, Eights>(table, ordinals, sum);
        } else {
            for (int i = 0; i < Eights; ++i) {
                const __m512i index =
                    _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(ordinals + 8 * i)));
                sum[i] = _mm512_add_pd(sum[i], _mm512_i64gather_pd(index, table, 8));
            }
        }
    }
    for (int i = 0; i < Eights; ++i) _mm512_store_pd(sums + word * 64 + 8 * i, sum[i]);
}

/// Eight nodes at once, where a set is one word: children are packed by compressing them.
TILE_ORACLE_INLINE void pack(__mmask8 which, __m512i set, __m512i tag, std::uint64_t* sets, std::uint64_t* tags,
                             std::size_t& to) noexcept {
    _mm512_storeu_si512(sets + to, _mm512_maskz_compress_epi64(which, set));
    _mm512_storeu_si512(tags + to, _mm512_maskz_compress_epi64(which, tag));
    to += static_cast<std::size_t>(_mm_popcnt_u32(which));
}

template <class Number>
TILE_ORACLE_TARGET void walk_level_of_words(const NodeOf<Number>* nodes, const std::uint64_t* condition_masks,
                                            std::uint64_t* sets, std::uint64_t* tags,
                                            std::size_t begin, std::size_t end, std::size_t& to_inner,
                                            std::size_t& to_leaf_slot, Ahead& ahead) noexcept {
    constexpr bool narrow = sizeof(Number) == 2;
    const __m512i one = _mm512_set1_epi64(1);
    std::size_t to = to_inner, to_leaf = to_leaf_slot;
    for (std::size_t i = begin; i < end; i += 8) {
        for (int line = 0; line < 6; ++line) ahead.fetch();
        // Lanes past the end: the empty set at node 0, which has no children in it.
        const __mmask8 lanes = end - i >= 8 ? 0xFF : static_cast<__mmask8>((1u << (end - i)) - 1);
        const __m512i tag = _mm512_maskz_loadu_epi64(lanes, tags + i), set = _mm512_maskz_loadu_epi64(lanes, sets + i);
        const __m256i number = _mm512_cvtepi64_epi32(tag);
        __m256i condition, link;
        if constexpr (narrow) {
            const __m256i node = _mm256_i32gather_epi32(reinterpret_cast<const int*>(nodes), number, 4);
            condition = _mm256_and_si256(node, _mm256_set1_epi32(0xFFFF));
            link = _mm256_srli_epi32(node, 16);
        } else {
            const __m512i node = _mm512_i32gather_epi64(number, nodes, 8);
            condition = _mm512_cvtepi64_epi32(node);
            link = _mm512_cvtepi64_epi32(_mm512_srli_epi64(node, 32));
        }
        const __m512i mask = _mm512_i32gather_epi64(condition, condition_masks, 8);
        const __m512i left = _mm512_and_si512(set, mask), right = _mm512_andnot_si512(mask, set);
        const __mmask8 any_left = _mm512_test_epi64_mask(left, left), any_right = _mm512_test_epi64_mask(right, right);
        const __mmask8 left_leaf = _mm256_test_epi32_mask(link, _mm256_set1_epi32(1));
        const __mmask8 right_leaf = _mm256_test_epi32_mask(link, _mm256_set1_epi32(2));
        const __m512i delta = _mm512_cvtepu32_epi64(_mm256_srli_epi32(link, 2));
        const __m512i inner = _mm512_add_epi64(tag, delta);
        const __m512i leaf = _mm512_sub_epi64(_mm512_add_epi64(tag, one), delta);
        const __m512i right_inner = _mm512_mask_add_epi64(inner, static_cast<__mmask8>(~left_leaf), inner, one);
        pack(any_left & static_cast<__mmask8>(~left_leaf), left, inner, sets, tags, to);
        pack(any_right & static_cast<__mmask8>(~right_leaf), right, right_inner, sets, tags, to);
        pack(any_left & left_leaf, left, leaf, sets, tags, to_leaf);
        pack(any_right & right_leaf, right, _mm512_mask_add_epi64(leaf, left_leaf, leaf, one), sets, tags,
                     to_leaf);
    }
    to_inner = to;
    to_leaf_slot = to_leaf;
}

template <int W>
struct Ops : Register<W> {
    static constexpr bool walks_levels = W == 1;
    template <class Number>
    TILE_ORACLE_TARGET static void walk_level(const NodeOf<Number>* nodes, const std::uint64_t* condition_masks,
                                              std::uint64_t* sets, std::uint64_t* tags,
                                              std::size_t begin, std::size_t end, std::size_t& to,
                                              std::size_t& to_leaf, Ahead& ahead) noexcept {
        walk_level_of_words<Number>(nodes, condition_masks, sets, tags, begin, end, to, to_leaf, ahead);
    }
    TILE_ORACLE_TARGET static void finish(const std::uint64_t* sets, const double* tables, std::size_t stride,
                                          const std::uint32_t* counts, std::uint32_t n_trees,
                                          std::uint32_t n_candidates, double* sums) noexcept {
        std::uint32_t word = 0;
        for (; (word + 1) * 64 <= n_candidates; ++word) {
            finish_word<W, 8>(sets, tables, stride, counts, n_trees, word, sums);
        }
        const std::uint32_t rest = n_candidates - word * 64;
        if (rest > 32) {
            finish_word<W, 8>(sets, tables, stride, counts, n_trees, word, sums);
        } else if (rest > 16) {
            finish_word<W, 4>(sets, tables, stride, counts, n_trees, word, sums);
        } else if (rest > 0) {
            finish_word<W, 2>(sets, tables, stride, counts, n_trees, word, sums);
        }
    }
};

#include "walk.hpp"

}  // namespace avx512

WalkFunction avx512_walk(std::uint32_t words, bool wide) noexcept { return avx512::walk_function_of(words, wide); }

}  // namespace tile_oracle

#endif
