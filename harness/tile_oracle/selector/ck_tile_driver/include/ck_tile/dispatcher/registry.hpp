// The candidates in the order of the pool, so that ties can be told from chance.
#pragma once

#include <vector>

#include "ck_tile/dispatcher/kernel_instance.hpp"

namespace ck_tile::dispatcher {

class Registry {
public:
    std::vector<KernelInstancePtr> all;
    std::vector<KernelInstancePtr> get_all() const { return all; }
    std::vector<KernelInstancePtr> get_all_instances() const { return all; }
};

}  // namespace ck_tile::dispatcher
