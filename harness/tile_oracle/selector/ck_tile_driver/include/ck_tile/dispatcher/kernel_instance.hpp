// A kernel that can be asked for its key alone: all that a heuristic reads of it.
#pragma once

#include <memory>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher {

class KernelInstance {
public:
    explicit KernelInstance(const KernelKey& key) : key_(key) {}
    const KernelKey& get_key() const { return key_; }

private:
    KernelKey key_;
};
using KernelInstancePtr = std::shared_ptr<KernelInstance>;

}  // namespace ck_tile::dispatcher
