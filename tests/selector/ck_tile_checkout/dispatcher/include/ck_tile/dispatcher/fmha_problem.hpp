// A double of Composable Kernel's fmha_problem.hpp: the members that its heuristic reads.
#pragma once

#include "ck_tile/core/numeric/integer.hpp"
#include "ck_tile/ops/fmha/block/block_attention_kvcache_layout_enum.hpp"

#include <cstdint>
#include <string>

namespace ck_tile { namespace dispatcher {

struct FmhaProblem {
    std::string data_type;
    int mask_type = 0;
    std::int64_t seqlen_q = 0, seqlen_k = 0, batch = 0, hdim_q = 0, hdim_v = 0, nhead_q = 0, nhead_k = 0;
};

}}
