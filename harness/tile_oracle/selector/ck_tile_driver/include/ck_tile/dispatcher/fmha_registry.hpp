// The candidates in the order of the pool, so that ties can be told from chance.
#pragma once

#include <vector>

#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"

namespace ck_tile::dispatcher {

class FmhaRegistry {
public:
    std::vector<FmhaKernelInstancePtr> all;
    std::vector<FmhaKernelInstancePtr> get_all() const { return all; }
};

}  // namespace ck_tile::dispatcher
