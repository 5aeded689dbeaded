// A kernel of attention that can be asked for its key alone.
#pragma once

#include <memory>

#include "ck_tile/dispatcher/fmha_kernel_key.hpp"

namespace ck_tile::dispatcher {

class FmhaKernelInstance {
public:
    explicit FmhaKernelInstance(const FmhaKernelKey& key) : key_(key) {}
    const FmhaKernelKey& get_key() const { return key_; }

private:
    FmhaKernelKey key_;
};
using FmhaKernelInstancePtr = std::shared_ptr<FmhaKernelInstance>;

}  // namespace ck_tile::dispatcher
