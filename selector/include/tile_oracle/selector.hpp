// Picks a kernel for a problem: a trained model and its candidates, loaded once, asked in microseconds.
//
//     const tile_oracle::Selector selector = tile_oracle::Selector::load("selector.bin");
//     tile_oracle::GroupedConvProblem problem{.N = 8, .C = 64, .K = 64, .Hi = 56, .Wi = 56, .Y = 3, .X = 3,
//                                             .pad_h = 1, .pad_w = 1};
//     std::uint32_t kernel = selector.pick(problem);
//     std::puts(selector.name(kernel).c_str());
//
// The answers are those of the Python class Predictor, bit for bit: all instruction sets, all machines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tile_oracle {

/// A grouped convolution. C and K count the channels of all groups; padding is on both sides. What the
/// model was trained for (direction, data type, rank) is not said again: Selector::kind names it. The
/// fields of depth stay as they are for a 2D convolution.
struct GroupedConvProblem {
    std::int64_t N = 1, C = 1, K = 1, G = 1;
    std::int64_t Hi = 1, Wi = 1, Y = 1, X = 1;
    std::int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
    std::int64_t Di = 1, Z = 1, stride_d = 1, pad_d = 0, dilation_d = 1;
};

/// A matrix product: C (M x N) = A (M x K) B (K x N). Data type and layout are the model's.
struct GemmProblem {
    std::int64_t M = 1, N = 1, K = 1;
    std::int64_t split_k = 1;
};

/// Attention: softmax(Q K^T / sqrt(head_dim)) V for each head. Data type, head_dim and causal are the model's.
struct AttentionProblem {
    std::int64_t batch = 1, heads = 1, kv_heads = 1, seq_q = 1, seq_kv = 1;
};

/// The values of a problem's fields.
struct ProblemValues {
    std::array<double, 19> at;
    std::size_t count;
    operator std::span<const double>() const noexcept { return {at.data(), count}; }
};

/// A candidate and its predicted speed.
struct Ranked {
    std::uint32_t kernel;
    double tflops;
};

class Selector {
public:
    /// Reads a file that `tile-oracle export` wrote. Throws std::runtime_error with one line that says what
    /// is wrong.
    static Selector load(const std::string& path);
    /// The same from memory; the bytes are not needed afterwards.
    static Selector read(std::span<const std::byte> bytes);

    /// Candidates, numbered from 0 in the order of the pool. Never none.
    std::uint32_t size() const noexcept;
    const std::string& name(std::uint32_t kernel) const;
    /// grouped_conv, gemm, attention, or another operation of tile-oracle.
    const std::string& operation() const noexcept;
    /// What problems it is for: "forward bf16 2D", "gemm bf16 rcr".
    const std::string& kind() const noexcept;
    /// The architecture whose kernels' times it predicts.
    const std::string& arch() const noexcept;
    /// A problem's fields, in the order in which the calls below take their values.
    std::span<const std::string> fields() const noexcept;
    /// Memory that is held, in bytes.
    std::size_t memory_bytes() const noexcept;

    // Any number of threads may call these at the same time. They throw std::invalid_argument for a
    // problem that cannot be. Equal predictions keep the order of the pool.

    /// The candidate with the least predicted time.
    template <class Problem>
    std::uint32_t pick(const Problem& problem) const {
        return pick(values_of(problem));
    }
    /// The `k` best, best first; all for k = 0.
    template <class Problem>
    std::vector<Ranked> rank(const Problem& problem, std::uint32_t k = 0) const {
        return rank(values_of(problem), k);
    }
    /// Every candidate's predicted ln(time in ms); `out` has room for size() values.
    template <class Problem>
    void log_times(const Problem& problem, std::span<double> out) const {
        log_times(values_of(problem), out);
    }

    // The same for the values of fields(), which are believed to be a problem: for every operation.
    std::uint32_t pick(std::span<const double> values) const;
    std::vector<Ranked> rank(std::span<const double> values, std::uint32_t k = 0) const;
    void log_times(std::span<const double> values, std::span<double> out) const;
    /// Every candidate's predicted TFLOPS.
    void tflops(std::span<const double> values, std::span<double> out) const;
    /// Those of the candidates of these numbers, as if there were no others; `out` has room for as many values.
    void tflops(std::span<const double> values, std::span<const std::uint32_t> among, std::span<double> out) const;

private:
    struct Loaded;
    explicit Selector(std::shared_ptr<const Loaded> loaded) noexcept;
    ProblemValues values_of(const GroupedConvProblem& problem) const;
    ProblemValues values_of(const GemmProblem& problem) const;
    ProblemValues values_of(const AttentionProblem& problem) const;
    static std::span<const double> values_of(std::span<const double> values) noexcept { return values; }
    std::shared_ptr<const Loaded> loaded_;
};

}  // namespace tile_oracle
