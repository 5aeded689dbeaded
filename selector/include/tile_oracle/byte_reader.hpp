// Reads what harness/tile_oracle/selector/program.py writes. Nothing is believed: every length is checked, and the
// first thing that is wrong throws.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tile_oracle {

static_assert(std::endian::native == std::endian::little, "selector files are little-endian");

/// A selector's file that is not one.
class BadSelector : public std::runtime_error {
public:
    explicit BadSelector(const std::string& what) : std::runtime_error("not a whole selector: " + what) {}
};

class ByteReader {
public:
    explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::uint32_t u32() { return number<std::uint32_t>(); }
    double f64() { return number<double>(); }
    std::vector<std::uint32_t> u32s() { return array<std::uint32_t>(); }
    std::vector<float> f32s() { return array<float>(); }
    std::vector<double> f64s() { return array<double>(); }

    std::span<const std::byte> data() {
        const std::uint32_t size = u32();
        const std::span<const std::byte> found = take(size);
        take((4 - size % 4) % 4);
        return found;
    }
    std::string text() {
        const auto found = data();
        return {reinterpret_cast<const char*>(found.data()), found.size()};
    }
    std::vector<std::string> texts() {
        const std::uint32_t size = length(4);
        std::vector<std::string> found;
        found.reserve(size);
        for (std::uint32_t i = 0; i < size; ++i) found.push_back(text());
        return found;
    }
    /// A number of things that take at least `least_bytes` each: never more than the bytes that are left.
    std::uint32_t length(std::size_t least_bytes) {
        const std::uint32_t size = u32();
        if (size > bytes_.size() / least_bytes) throw BadSelector("it ends too early");
        return size;
    }
    void expect_end() const {
        if (!bytes_.empty()) throw BadSelector("bytes are left over");
    }

private:
    std::span<const std::byte> take(std::size_t size) {
        if (size > bytes_.size()) throw BadSelector("it ends too early");
        const auto found = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return found;
    }
    template <class T>
    T number() {
        T value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    template <class T>
    std::vector<T> array() {
        const std::uint32_t size = length(sizeof(T));
        std::vector<T> values(size);
        if (size != 0) std::memcpy(values.data(), take(size * sizeof(T)).data(), size * sizeof(T));
        return values;
    }

    std::span<const std::byte> bytes_;
};

}  // namespace tile_oracle
