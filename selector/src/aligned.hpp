// Vectors that begin at a cache line, so that no load of a register spans two. Internal.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace tile_oracle {

constexpr std::size_t alignment = 64;

template <class T>
struct AlignedAllocator {
    using value_type = T;
    AlignedAllocator() = default;
    template <class U>
    AlignedAllocator(const AlignedAllocator<U>&) noexcept {}
    T* allocate(std::size_t n) {
        return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{alignment}));
    }
    void deallocate(T* p, std::size_t) noexcept { ::operator delete(p, std::align_val_t{alignment}); }
    friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

template <class T>
using Aligned = std::vector<T, AlignedAllocator<T>>;

}  // namespace tile_oracle
