// Scores one problem x all candidate kernels with forests: the sums of LightGBM's raw predictions, bit for
// bit. What does not depend on the problem is prepared once, when a Scorer is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tile_oracle/forest.hpp"

namespace tile_oracle {

/// How a feature's value comes about for the candidates of one problem.
enum class FeatureKind : std::uint8_t {
    constant = 0,     ///< one value for all candidates, given with each problem
    kernel = 1,       ///< a value per candidate that no problem changes, given when the scorer is made
    interaction = 2,  ///< a value per class of candidates, given with each problem
};

/// One feature of the model, in the model's order. Pointers need to be valid only while a scorer is made.
struct FeatureSource {
    FeatureKind kind = FeatureKind::constant;
    std::uint32_t n_classes = 0;              ///< kernel, interaction: at least 1
    const std::uint32_t* class_of = nullptr;  ///< kernel, interaction: n_candidates numbers below n_classes
    const double* class_values = nullptr;     ///< kernel: n_classes values; else not read
};

/// Instruction sets. All of them give the same bits.
enum class Isa : std::uint8_t { best = 0, scalar = 1, neon = 2, avx2 = 3, avx512 = 4 };

/// Whether this library has code for it and this processor runs it. `best` is always there.
bool isa_available(Isa isa) noexcept;
/// "scalar", "neon", "avx2", "avx512", "best".
const char* isa_name(Isa isa) noexcept;

/// Memory that scoring writes to. One per thread; grows on first use, then no call allocates.
class Scratch {
public:
    Scratch() noexcept;
    ~Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;

private:
    friend class Scorer;
    struct Memory;
    std::unique_ptr<Memory> memory_;
};

class Scorer {
public:
    /// Prepares scoring of `n_candidates` candidates (at least 1) with forests that share `features`.
    /// Isa::best takes the environment variable TILE_ORACLE_ISA (a name of isa_name) if it is set.
    /// Null, and what is wrong in one line in `error`, if that cannot be.
    static std::unique_ptr<const Scorer> make(
        std::vector<std::shared_ptr<const Forest>> forests, std::uint32_t n_candidates,
        std::span<const FeatureSource> features, Isa isa, std::string& error);
    ~Scorer();

    /// Raw scores of one problem: out[forest * n_candidates() + candidate].
    /// constants: a value per feature; read where its kind is constant.
    /// class_values: a pointer per feature; where its kind is interaction, to n_classes values.
    /// Any number of threads may call this on one scorer, each with a scratch of its own.
    /// False only if memory ran out.
    bool score(const double* constants, const double* const* class_values, double* out,
               Scratch& scratch) const noexcept;
    /// The same with a scratch that the calling thread keeps.
    bool score(const double* constants, const double* const* class_values, double* out) const noexcept;

    std::uint32_t n_forests() const noexcept;
    std::uint32_t n_features() const noexcept;
    std::uint32_t n_candidates() const noexcept;
    /// Candidates that the forests can tell apart: the rest share their scores.
    std::uint32_t n_distinct() const noexcept;
    /// The instruction set that score uses.
    Isa isa() const noexcept;
    /// Whether some tree of some forest asks for this feature; the values of others are never read.
    bool reads(std::uint32_t feature) const noexcept;
    /// Memory held by this scorer and its forests, in bytes; scratch not counted.
    std::size_t memory_bytes() const noexcept;

    struct Prepared;

private:
    explicit Scorer(std::unique_ptr<const Prepared> prepared) noexcept;
    std::unique_ptr<const Prepared> prepared_;
};

}  // namespace tile_oracle
