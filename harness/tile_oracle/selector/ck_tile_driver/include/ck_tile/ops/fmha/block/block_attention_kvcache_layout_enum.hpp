// Names that the dispatcher's types of attention mention; no forward kernel here has paged keys.
#pragma once

namespace ck_tile {

enum class BlockAttentionKVCacheMemoryLayoutEnum { VECTORIZED_LAYOUT = 0, LINEAR_LAYOUT = 1 };
enum class BlockAttentionKVCacheLookupTableEnum { VLLM_BLOCK_TABLE_2D = 0, SGLANG_PAGE_TABLE_1D = 1 };

}  // namespace ck_tile
