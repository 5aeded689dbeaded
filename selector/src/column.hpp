// Values that a program makes: one, or one for each class of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tile_oracle/byte_reader.hpp"
#include "tile_oracle/program.hpp"
#include "tile_oracle/scorer.hpp"

namespace tile_oracle {

struct Column {
    FeatureKind kind;
    std::uint32_t operand, count;
    std::vector<std::uint32_t> class_of;  // empty for one value

    Column(ByteReader& from, const Program& program, std::uint32_t n_rows) {
        const std::uint32_t number = from.u32();
        operand = from.u32();
        count = from.u32();
        class_of = from.u32s();
        if (number > 2 || count == 0) throw BadSelector("a column's kind is unknown");
        kind = static_cast<FeatureKind>(number);
        program.check(operand, count);
        if (kind == FeatureKind::kernel && !(operand & Program::constant))
            throw BadSelector("a column of the kernels changes with the problem");
        const bool good = kind == FeatureKind::constant ? count == 1 && class_of.empty() : class_of.size() == n_rows;
        if (!good || std::any_of(class_of.begin(), class_of.end(), [&](auto c) { return c >= count; }))
            throw BadSelector("a column's classes cannot be right");
    }
    std::size_t bytes() const noexcept { return class_of.capacity() * sizeof(std::uint32_t); }
};

}  // namespace tile_oracle
