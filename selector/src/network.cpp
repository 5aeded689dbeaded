#include "network.hpp"

#include <cstring>

#include "tile_oracle/lanes.hpp"

namespace tile_oracle {
namespace {

constexpr float leak = 0.01f;  // LEAK of harness/tile_oracle/model/network.py
constexpr std::uint32_t largest_layer = 1u << 12, most_layers = 8;

#if defined(__GNUC__) && !defined(TILE_ORACLE_PLAIN_LANES)
typedef float Floats __attribute__((vector_size(4 * Network::block), may_alias));
#define TILE_ORACLE_LARGER(a, b) ((a) > (b) ? (a) : (b))
#else
// The same for compilers without vector types.
struct Floats {
    float at[Network::block];
    Floats& operator+=(const Floats& other) {
        for (std::uint32_t i = 0; i < Network::block; ++i) at[i] += other.at[i];
        return *this;
    }
    Floats operator+(const Floats& other) const { return Floats(*this) += other; }
    Floats operator*(const Floats& other) const {
        Floats found = *this;
        for (std::uint32_t i = 0; i < Network::block; ++i) found.at[i] *= other.at[i];
        return found;
    }
    Floats operator*(float factor) const {
        Floats found = *this;
        for (float& value : found.at) value *= factor;
        return found;
    }
    float& operator[](std::uint32_t i) { return at[i]; }
};
Floats TILE_ORACLE_LARGER(Floats a, const Floats& b) {
    for (std::uint32_t i = 0; i < Network::block; ++i) a.at[i] = std::max(a.at[i], b.at[i]);
    return a;
}
#endif

struct Sums {
    void (*add_inputs)(const float*, std::uint32_t, const float*, std::uint32_t, float*);
    void (*first_sums)(const float*, std::uint32_t, const Floats*, std::uint32_t, const Floats*, Floats*);
    float (*output)(const Floats*, const Floats*, const Floats*, std::uint32_t);
};

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

Sums of_this_processor() {
    if (isa_available(Isa::avx512)) return with_avx512::sums;
    return isa_available(Isa::avx2) ? with_avx2::sums : any_processor::sums;
}
#else
Sums of_this_processor() { return any_processor::sums; }
#endif

std::vector<Column> columns(ByteReader& from, const Program& program, std::uint32_t n_rows) {
    std::vector<Column> found;
    for (std::uint32_t n = from.length(16); n > 0; --n) found.emplace_back(from, program, n_rows);
    return found;
}

const Floats* vectors(const float* at) { return reinterpret_cast<const Floats*>(at); }
Floats* vectors(float* at) { return reinterpret_cast<Floats*>(at); }

/// Values of units, with zeros behind those of each row up to whole vectors.
Aligned<float> in_vectors(const Aligned<float>& values, std::uint32_t units) {
    const std::size_t width = (units + Network::block - 1) / Network::block * Network::block;
    Aligned<float> found(values.size() / units * width);
    for (std::size_t i = 0; i < values.size(); ++i) found[i / units * width + i % units] = values[i];
    return found;
}

Aligned<float> finite(const std::vector<float>& values, std::size_t count) {
    const bool good = std::all_of(values.begin(), values.end(), [](float v) { return v * 0.0f == 0.0f; });
    if (values.size() != count || !good) throw BadSelector("a network lacks weights");
    return {values.begin(), values.end()};
}

}  // namespace

Network::Network(ByteReader& from, const Program& program) {
    n_rows = from.u32();
    if (n_rows == 0 || n_rows > (1u << 24)) throw BadSelector("a network has no rows");
    class_of = from.u32s();
    n_classes = class_of.empty() ? 0 : 1 + *std::max_element(class_of.begin(), class_of.end());
    if (class_of.size() != n_rows || n_classes > n_rows) throw BadSelector("a network's classes cannot be right");
    of_problem = columns(from, program, n_rows);
    joint = columns(from, program, n_classes);
    for (const Column& one : of_problem)
        if (one.count != 1) throw BadSelector("a column of the problem depends on the kernels");
    for (const Column& one : joint)
        if (one.class_of.empty()) throw BadSelector("a column of kernels has no classes");
    const std::uint32_t n_layers = from.u32();
    if (n_layers < 2 || n_layers > most_layers) throw BadSelector("a network has no layers");
    std::uint32_t inputs = 0;
    most_units = 0;
    for (std::uint32_t i = 0; i < n_layers; ++i) {
        const std::uint32_t units = from.u32();
        if (units == 0 || units > largest_layer) throw BadSelector("a layer has no units");
        Layer one{units, {}, {}};
        if (i == 0) {
            n_vectors = (units + block - 1) / block;
            problem_weights = in_vectors(finite(from.f32s(), of_problem.size() * units), units);
            joint_weights = in_vectors(finite(from.f32s(), joint.size() * units), units);
            kernel_sums = in_vectors(finite(from.f32s(), std::size_t(n_rows) * units), units);
        } else {
            one.weights = finite(from.f32s(), std::size_t(inputs) * units);
            one.bias = finite(from.f32s(), units);
        }
        inputs = units;
        most_units = std::max(most_units, units);
        layers.push_back(std::move(one));
    }
    if (inputs != 1) throw BadSelector("a network does not have one output");
    if (n_layers == 2) layers[1].weights.resize(std::size_t(n_vectors) * block);
}

void Network::scores(const Program& program, const double* memory, std::span<const std::uint32_t> rows,
                     Aligned<float>& work, double* out) const {
    static thread_local std::vector<std::uint8_t> summed;  // of each class
    static const Sums of = of_this_processor();
    const std::uint32_t first = n_vectors * block, n_joint = static_cast<std::uint32_t>(joint.size());
    const std::size_t of_blocks = std::size_t(block) * most_units;
    const std::size_t needed = std::size_t(first) * (n_classes + 1) + 2 * of_blocks + std::size_t(n_joint) * n_classes;
    if (work.size() < needed) work.resize(needed);
    float* problem_sums = work.data();
    float* class_sums = problem_sums + first;  // (classes, first)
    float* sums = class_sums + std::size_t(first) * n_classes;  // of a block of rows, (units, block)
    float* next = sums + of_blocks;
    float* inputs = next + of_blocks;  // (classes, joint)

    std::fill_n(problem_sums, first, 0.0f);
    for (std::size_t p = 0; p < of_problem.size(); ++p) {
        const float x = static_cast<float>(*program.value(of_problem[p].operand, memory));
        const float* weights = problem_weights.data() + p * first;
        for (std::uint32_t unit = 0; unit < first; ++unit) problem_sums[unit] += x * weights[unit];
    }
    for (std::uint32_t j = 0; j < n_joint; ++j) {
        const double* values = program.value(joint[j].operand, memory);
        const std::uint32_t* class_of_class = joint[j].class_of.data();
        for (std::uint32_t c = 0; c < n_classes; ++c)
            inputs[std::size_t(c) * n_joint + j] = static_cast<float>(values[class_of_class[c]]);
    }
    summed.assign(n_classes, 0);
    const auto of_class = [&](std::uint32_t row) {
        const std::size_t c = class_of[row];
        if (!summed[c])
            of.first_sums(inputs + c * n_joint, n_joint, vectors(joint_weights.data()), n_vectors, vectors(problem_sums),
                          vectors(class_sums + c * first));
        summed[c] = 1;
        return class_sums + c * first;
    };
    const auto of_kernel = [&](std::uint32_t row) { return kernel_sums.data() + std::size_t(row) * first; };
    if (layers.size() == 2) {
        for (const std::uint32_t row : rows)
            out[row] += layers[1].bias[0] + of.output(vectors(of_kernel(row)), vectors(of_class(row)),
                                                      vectors(layers[1].weights.data()), n_vectors);
        return;
    }
    for (std::size_t begin = 0; begin < rows.size(); begin += block) {
        const auto some = rows.subspan(begin, std::min<std::size_t>(block, rows.size() - begin));
        const std::uint32_t n_units = layers[0].units;
        if (some.size() < block) std::fill_n(sums, std::size_t(block) * n_units, 0.0f);
        for (std::uint32_t place = 0; place < some.size(); ++place) {
            const float *one = of_kernel(some[place]), *other = of_class(some[place]);
            for (std::uint32_t i = 0; i < n_units; ++i) sums[i * block + place] = one[i] + other[i];
        }
        float *from = sums, *to = next;
        for (std::size_t i = 1; i < layers.size(); ++i) {
            const std::uint32_t n_inputs = layers[i - 1].units, n_outputs = layers[i].units;
            for (std::uint32_t k = 0; k < n_inputs * block; ++k) from[k] = std::max(from[k], leak * from[k]);
            for (std::uint32_t k = 0; k < n_outputs; ++k) std::fill_n(to + k * block, block, layers[i].bias[k]);
            of.add_inputs(from, n_inputs, layers[i].weights.data(), n_outputs, to);
            std::swap(from, to);
        }
        for (std::uint32_t place = 0; place < some.size(); ++place) out[some[place]] += from[place];
    }
}

std::size_t Network::bytes() const noexcept {
    std::size_t floats = kernel_sums.capacity() + problem_weights.capacity() + joint_weights.capacity() + class_of.capacity();
    for (const Layer& one : layers) floats += one.weights.capacity() + one.bias.capacity();
    for (const Column& one : joint) floats += one.class_of.capacity();
    return sizeof *this + 4 * floats + (of_problem.capacity() + joint.capacity()) * sizeof(Column);
}

}  // namespace tile_oracle
