#include "tile_oracle/program.hpp"

#include <algorithm>
#include <array>

#include "tile_oracle/exact_math.hpp"
#include "tile_oracle/scorer.hpp"

namespace tile_oracle {
namespace {

using namespace lanes;

using Run = void (*)(const double*, const double*, const double*, double*, std::uint32_t);

#define TILE_ORACLE_OPERATION(Name, expression)                                                      \
    struct Name {                                                                                    \
        TILE_ORACLE_INLINE static Doubles apply([[maybe_unused]] const Doubles& a,                    \
                                                [[maybe_unused]] const Doubles& b,                   \
                                                [[maybe_unused]] const Doubles& c) {                 \
            return expression;                                                                       \
        }                                                                                            \
    };
TILE_ORACLE_OPERATION(Add, a + b)
TILE_ORACLE_OPERATION(Subtract, a - b)
TILE_ORACLE_OPERATION(Multiply, a* b)
TILE_ORACLE_OPERATION(Divide, a / b)
TILE_ORACLE_OPERATION(FloorDivide, lanes::floor_divide(a, b))
TILE_ORACLE_OPERATION(Remainder, lanes::remainder(a, b))
TILE_ORACLE_OPERATION(Minimum, lanes::minimum(a, b))
TILE_ORACLE_OPERATION(Maximum, lanes::maximum(a, b))
TILE_ORACLE_OPERATION(Less, truth(a < b))
TILE_ORACLE_OPERATION(LessEqual, truth(a <= b))
TILE_ORACLE_OPERATION(Equal, truth(a == b))
TILE_ORACLE_OPERATION(NotEqual, truth(a != b))
TILE_ORACLE_OPERATION(And, truth((a != splat(0.0)) & (b != splat(0.0))))
TILE_ORACLE_OPERATION(Or, truth((a != splat(0.0)) | (b != splat(0.0))))
TILE_ORACLE_OPERATION(Not, truth(a == splat(0.0)))
TILE_ORACLE_OPERATION(Negative, lanes::negative(a))
TILE_ORACLE_OPERATION(Absolute, lanes::absolute(a))
TILE_ORACLE_OPERATION(Ceil, lanes::ceil(a))
TILE_ORACLE_OPERATION(Floor, lanes::floor(a))
TILE_ORACLE_OPERATION(Trunc, lanes::trunc(a))
TILE_ORACLE_OPERATION(Rint, lanes::rint(a))
TILE_ORACLE_OPERATION(Sqrt, lanes::sqrt(a))
TILE_ORACLE_OPERATION(Log2, exact::log2(a))
TILE_ORACLE_OPERATION(Log, exact::log(a))
TILE_ORACLE_OPERATION(Exp, exact::exp(a))
TILE_ORACLE_OPERATION(Expm1, exact::expm1(a))
TILE_ORACLE_OPERATION(CommonBits, lanes::common_bits(a, b))
TILE_ORACLE_OPERATION(Where, select(a != splat(0.0), b, c))
#undef TILE_ORACLE_OPERATION

constexpr std::uint32_t n_operations = 28;
constexpr std::uint32_t spread = n_operations;

using Loops = std::array<std::array<Run, 8>, n_operations>;

namespace any_processor {
#define TILE_ORACLE_TARGET
#include "program_operations.inc"
#undef TILE_ORACLE_TARGET
}  // namespace any_processor

// Clang refuses calls with vectors of 32 bytes from a function with AVX to one without, although all of these are
// inlined. There the whole file must be compiled for AVX, or these loops use SSE2.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(TILE_ORACLE_PLAIN_LANES) && \
    (!defined(__clang__) || defined(__AVX__))
namespace with_avx2 {
#define TILE_ORACLE_TARGET __attribute__((target("avx2")))
#include "program_operations.inc"
#undef TILE_ORACLE_TARGET
}  // namespace with_avx2

const Loops& loops_of_this_processor() {
    return isa_available(Isa::avx2) ? with_avx2::loops : any_processor::loops;
}
#else
const Loops& loops_of_this_processor() { return any_processor::loops; }
#endif

std::uint32_t padded(std::uint32_t count) {
    return count == 1 ? 1 : (count + lanes::count - 1) / lanes::count * lanes::count;
}

}  // namespace

Program::Program(ByteReader& from) : n_inputs_(from.u32()), size_(from.u32()) {
    constants_ = from.f64s();
    indices_ = from.u32s();
    if (n_inputs_ > size_ || size_ >= (1u << 24)) throw BadSelector("a program's memory cannot be right");
    const std::uint32_t n = from.length(7 * 4);
    instructions_.reserve(n);
    const auto& loops = loops_of_this_processor();
    std::uint32_t written = n_inputs_;
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t operation = from.u32(), count = from.u32(), to = from.u32(), single = from.u32();
        Instruction one{nullptr, count, to, {from.u32(), from.u32(), from.u32()}, operation == spread};
        // Every place is written once, after all that it is made from.
        if (operation > spread || count == 0 || count >= (1u << 24) || single > 7 || to != written ||
            padded(count) > size_ - written)
            throw BadSelector("an instruction cannot be right");
        written += padded(count);
        const auto readable = [&](std::uint32_t operand, std::uint32_t values) {
            const std::size_t end = std::size_t(operand & ~constant) + values;
            return end <= (operand & constant ? constants_.size() : to);
        };
        bool good = true;
        if (one.spread) {
            good = std::size_t(one.operands[1]) + padded(count) <= indices_.size();
            for (std::uint32_t k = 0; good && k < padded(count); ++k) {
                const std::uint32_t index = indices_[one.operands[1] + k];
                good = index < (1u << 24) && readable(one.operands[0], index + 1);
            }
        } else {
            one.run = loops[operation][count == 1 ? 7 : single];
            for (unsigned k = 0; k < 3; ++k)
                good = good && readable(one.operands[k], count == 1 || (single >> k & 1) ? 1 : padded(count));
        }
        if (!good) throw BadSelector("an instruction reads what is not there");
        instructions_.push_back(one);
    }
}

std::size_t Program::bytes() const noexcept {
    return sizeof *this + constants_.capacity() * sizeof(double) + indices_.capacity() * sizeof(std::uint32_t) +
           instructions_.capacity() * sizeof(Instruction);
}

void Program::check(std::uint32_t operand, std::uint32_t count) const {
    const std::size_t end = std::size_t(operand & ~constant) + count;
    if (end > (operand & constant ? constants_.size() : size_)) throw BadSelector("a value is not there");
}

void Program::run(double* memory) const noexcept {
    for (const Instruction& one : instructions_) {
        double* to = memory + one.to;
        const double* a = value(one.operands[0], memory);
        if (one.spread) {
            const std::uint32_t* index = indices_.data() + one.operands[1];
            for (std::uint32_t i = 0; i < padded(one.count); ++i) to[i] = a[index[i]];
        } else {
            one.run(a, value(one.operands[1], memory), value(one.operands[2], memory), to, one.count);
        }
    }
}

}  // namespace tile_oracle
