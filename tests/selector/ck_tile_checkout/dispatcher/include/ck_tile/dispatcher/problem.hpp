// A double of Composable Kernel's problem.hpp.
#pragma once

#include <cstdint>

namespace ck_tile { namespace dispatcher {

struct Problem {
    std::int64_t M = 0, N = 0, K = 0;
    std::int32_t k_batch = 1;
};

}}  // namespace ck_tile::dispatcher
