// The walks that this library has, one for each instruction set that the target machine may have. Internal.
#pragma once

#include <cstddef>
#include <string>

#include "prepared.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TILE_ORACLE_X86 1
#else
#define TILE_ORACLE_X86 0
#endif
#if defined(__aarch64__) && defined(__ARM_NEON)
#define TILE_ORACLE_NEON 1
#else
#define TILE_ORACLE_NEON 0
#endif

namespace tile_oracle {

inline void fetch([[maybe_unused]] const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#endif
}

/// Fetches the nodes of the next batch while one is walked, a cache line a node: large forests lie in L3.
struct Ahead {
    const char* at = nullptr;
    const char* end = nullptr;

    void fetch() noexcept {
        const char* line = at;
        at = at + 64 < end ? at + 64 : end;
        tile_oracle::fetch(line);
    }
    void aim(const Walk& walk, const Batch& batch, std::size_t node_bytes) noexcept {
        const auto& trees = walk.prepared->trees;
        const std::size_t last = walk.prepared->leaf_values.size() - 1;
        const auto number = [&](std::size_t tree) { return tree < trees.size() ? trees[tree].first_node : last; };
        const auto* nodes = static_cast<const char*>(walk.nodes);
        at = nodes + number(batch.end) * node_bytes;
        end = nodes + number(std::size_t{batch.end} + (batch.end - batch.begin)) * node_bytes;
    }
};

/// The walk for sets of 1, 2, 4 or 8 words and nodes of 16 or 32 bits a field.
WalkFunction scalar_walk(std::uint32_t words, bool wide) noexcept;
#if TILE_ORACLE_X86
WalkFunction avx2_walk(std::uint32_t words, bool wide) noexcept;
WalkFunction avx512_walk(std::uint32_t words, bool wide) noexcept;
#endif
#if TILE_ORACLE_NEON
WalkFunction neon_walk(std::uint32_t words, bool wide) noexcept;
#endif

/// The walk of an instruction set that is available.
WalkFunction walk_of(Isa isa, std::uint32_t words, bool wide) noexcept;
/// What `asked` means on this processor. False, and why in `error`, if it has no such thing.
bool resolve_isa(Isa asked, Isa& isa, std::string& error);

}  // namespace tile_oracle
