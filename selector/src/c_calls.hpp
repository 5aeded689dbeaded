// How C functions call C++: exceptions become a null and a line of text, or a status.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <span>

#include "tile_oracle/selector_c.h"

namespace tile_oracle::c {

template <class Make>
auto made(Make&& make, char* error, std::size_t error_size) -> decltype(make()) {
    try {
        return make();
    } catch (const std::exception& problem) {
        if (error != nullptr && error_size > 0) {
            std::strncpy(error, problem.what(), error_size - 1);
            error[error_size - 1] = '\0';
        }
        return nullptr;
    }
}

template <class Do>
int done(Do&& work) {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return TO_SELECTOR_OUT_OF_MEMORY;
    } catch (const std::exception&) {
        return TO_SELECTOR_NOT_A_PROBLEM;
    }
}

inline std::span<const std::byte> bytes_at(const void* bytes, std::size_t size) {
    return {static_cast<const std::byte*>(bytes), size};
}

}  // namespace tile_oracle::c
