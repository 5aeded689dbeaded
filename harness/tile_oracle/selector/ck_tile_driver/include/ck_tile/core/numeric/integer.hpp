// The integers that the dispatcher's types of attention are made of.
#pragma once

#include <cstdint>

namespace ck_tile {

using index_t = std::int32_t;
using long_index_t = std::int64_t;

}  // namespace ck_tile
