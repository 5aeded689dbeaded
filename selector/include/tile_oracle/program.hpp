// A program of vector operations: what harness/tile_oracle/selector/program.py makes of feature formulas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tile_oracle/byte_reader.hpp"

namespace tile_oracle {

class Program {
public:
    /// Reads a program, and refuses one that would read or write outside of its memory.
    explicit Program(ByteReader& from);

    std::uint32_t n_inputs() const noexcept { return n_inputs_; }
    /// Doubles that `run` needs as its memory.
    std::uint32_t memory_size() const noexcept { return size_; }
    std::size_t bytes() const noexcept;

    /// Runs it. `memory` holds the n_inputs() inputs at its beginning. Threads may share a program, each
    /// with a memory of its own.
    void run(double* memory) const noexcept;

    /// Where a value lies after `run`.
    const double* value(std::uint32_t operand, const double* memory) const noexcept {
        return (operand & constant ? constants_.data() : memory) + (operand & ~constant);
    }
    /// Throws BadSelector unless `count` values lie at this operand.
    void check(std::uint32_t operand, std::uint32_t count) const;

    static constexpr std::uint32_t constant = 1u << 31;

private:
    using Run = void (*)(const double*, const double*, const double*, double*, std::uint32_t);
    struct Instruction {
        Run run;
        std::uint32_t count, to, operands[3];
        bool spread;
    };

    std::uint32_t n_inputs_, size_;
    std::vector<double> constants_;
    std::vector<std::uint32_t> indices_;
    std::vector<Instruction> instructions_;
};

}  // namespace tile_oracle
