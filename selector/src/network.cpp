#include "network.hpp"

#include <cstring>

namespace tile_oracle {
namespace {

constexpr float leak = 0.01f;  // LEAK of harness/tile_oracle/model/network.py
constexpr std::uint32_t largest_layer = 1u << 12, most_layers = 8;

#if defined(__GNUC__) && !defined(TILE_ORACLE_PLAIN_LANES)
typedef float Rows __attribute__((vector_size(4 * Network::block), aligned(4), may_alias));
#else
// The same for compilers without vector types.
struct Rows {
    float at[Network::block];
    Rows& operator+=(const Rows& other) {
        for (std::uint32_t i = 0; i < Network::block; ++i) at[i] += other.at[i];
        return *this;
    }
    Rows operator*(float factor) const {
        Rows found = *this;
        for (float& value : found.at) value *= factor;
        return found;
    }
};
#endif

using AddInputs = void (*)(const float*, std::uint32_t, const float*, std::uint32_t, float*);

namespace any_processor {
#define TILE_ORACLE_TARGET
#include "network_layer.inc"
#undef TILE_ORACLE_TARGET
}  // namespace any_processor

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TILE_ORACLE_PLAIN_LANES)
namespace with_avx2 {
#define TILE_ORACLE_TARGET __attribute__((target("avx2")))
#include "network_layer.inc"
#undef TILE_ORACLE_TARGET
}  // namespace with_avx2
namespace with_avx512 {
#define TILE_ORACLE_TARGET __attribute__((target("avx512f")))
#include "network_layer.inc"
#undef TILE_ORACLE_TARGET
}  // namespace with_avx512

AddInputs of_this_processor() {
    if (isa_available(Isa::avx512)) return with_avx512::add_inputs;
    return isa_available(Isa::avx2) ? with_avx2::add_inputs : any_processor::add_inputs;
}
#else
AddInputs of_this_processor() { return any_processor::add_inputs; }
#endif

std::vector<Column> columns(ByteReader& from, const Program& program, std::uint32_t n_rows) {
    std::vector<Column> found;
    for (std::uint32_t n = from.length(16); n > 0; --n) found.emplace_back(from, program, n_rows);
    return found;
}

std::vector<float> finite(std::vector<float> values, std::size_t count) {
    const bool good = std::all_of(values.begin(), values.end(), [](float v) { return v * 0.0f == 0.0f; });
    if (values.size() != count || !good) throw BadSelector("a network lacks weights");
    return values;
}

}  // namespace

Network::Network(ByteReader& from, const Program& program) {
    n_rows = from.u32();
    if (n_rows == 0 || n_rows > (1u << 24)) throw BadSelector("a network has no rows");
    n_blocks = (n_rows + block - 1) / block;
    of_problem = columns(from, program, n_rows);
    joint = columns(from, program, n_rows);
    for (const Column& one : of_problem)
        if (one.count != 1) throw BadSelector("a column of the problem depends on the kernels");
    const std::uint32_t n_layers = from.u32();
    if (n_layers < 2 || n_layers > most_layers) throw BadSelector("a network has no layers");
    std::uint32_t inputs = 0;
    most_units = 0;
    for (std::uint32_t i = 0; i < n_layers; ++i) {
        const std::uint32_t units = from.u32();
        if (units == 0 || units > largest_layer) throw BadSelector("a layer has no units");
        Layer one{units, {}, {}};
        if (i == 0) {
            problem_weights = finite(from.f32s(), of_problem.size() * units);
            joint_weights = finite(from.f32s(), joint.size() * units);
            kernel_sums = finite(from.f32s(), std::size_t(n_blocks) * block * units);
        } else {
            one.weights = finite(from.f32s(), std::size_t(inputs) * units);
            one.bias = finite(from.f32s(), units);
        }
        inputs = units;
        most_units = std::max(most_units, units);
        layers.push_back(std::move(one));
    }
    if (inputs != 1) throw BadSelector("a network does not have one output");
    classes.resize(joint.size() * n_blocks * block);
    for (std::size_t j = 0; j < joint.size(); ++j) {
        for (std::uint32_t row = 0; row < n_rows && !joint[j].class_of.empty(); ++row)
            classes[(row / block * joint.size() + j) * block + row % block] = joint[j].class_of[row];
        joint[j].class_of = {};
    }
}

void Network::scores(const Program& program, const double* memory, std::vector<float>& work, double* out) const {
    static const AddInputs add_inputs = of_this_processor();
    const std::uint32_t first = layers[0].units, n_joint = static_cast<std::uint32_t>(joint.size());
    std::size_t n_values = 0;
    for (const Column& one : joint) n_values += one.count;
    const std::size_t needed = first + n_values + std::size_t(block) * (n_joint + 2 * most_units);
    if (work.size() < needed) work.resize(needed);
    float* inputs = work.data();  // of a block, (n_joint, block)
    float* sums = inputs + std::size_t(block) * n_joint;
    float* next = sums + std::size_t(block) * most_units;
    float* problem_sums = next + std::size_t(block) * most_units;
    float* values = problem_sums + first;

    std::fill_n(problem_sums, first, 0.0f);
    for (std::size_t p = 0; p < of_problem.size(); ++p) {
        const float x = static_cast<float>(*program.value(of_problem[p].operand, memory));
        for (std::uint32_t unit = 0; unit < first; ++unit) problem_sums[unit] += x * problem_weights[p * first + unit];
    }
    float* value = values;
    for (const Column& one : joint) {
        const double* from = program.value(one.operand, memory);
        for (std::uint32_t i = 0; i < one.count; ++i) *value++ = static_cast<float>(from[i]);
    }
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
        const std::uint32_t* class_of = classes.data() + std::size_t(b) * n_joint * block;
        const float* of_column = values;
        for (std::uint32_t j = 0; j < n_joint; ++j, class_of += block) {
            for (std::uint32_t row = 0; row < block; ++row) inputs[j * block + row] = of_column[class_of[row]];
            of_column += joint[j].count;
        }
        const float* of_kernels = kernel_sums.data() + std::size_t(b) * first * block;
        for (std::uint32_t i = 0; i < first; ++i)
            for (std::uint32_t row = 0; row < block; ++row)
                sums[i * block + row] = problem_sums[i] + of_kernels[i * block + row];
        add_inputs(inputs, n_joint, joint_weights.data(), first, sums);
        float *from = sums, *to = next;
        for (std::size_t i = 1; i < layers.size(); ++i) {
            const std::uint32_t n_inputs = layers[i - 1].units, n_units = layers[i].units;
            for (std::uint32_t k = 0; k < n_inputs * block; ++k) from[k] = std::max(from[k], leak * from[k]);
            for (std::uint32_t k = 0; k < n_units; ++k) std::fill_n(to + k * block, block, layers[i].bias[k]);
            add_inputs(from, n_inputs, layers[i].weights.data(), n_units, to);
            std::swap(from, to);
        }
        for (std::uint32_t row = 0; row < block && b * block + row < n_rows; ++row) out[b * block + row] += from[row];
    }
}

std::size_t Network::bytes() const noexcept {
    std::size_t floats = kernel_sums.capacity() + problem_weights.capacity() + joint_weights.capacity() + classes.capacity();
    for (const Layer& one : layers) floats += one.weights.capacity() + one.bias.capacity();
    return sizeof *this + 4 * floats + (of_problem.capacity() + joint.capacity()) * sizeof(Column);
}

}  // namespace tile_oracle
