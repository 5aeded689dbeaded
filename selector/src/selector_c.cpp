#include "tile_oracle/selector_c.h"

#include <algorithm>

#include "c_calls.hpp"
#include "tile_oracle/selector.hpp"

struct to_selector {
    tile_oracle::Selector selector;
};

namespace {

using tile_oracle::c::bytes_at, tile_oracle::c::done, tile_oracle::c::made;

std::span<const double> problem_at(const to_selector* selector, const double* values) {
    return {values, selector->selector.fields().size()};
}

}  // namespace

extern "C" {

to_selector* to_selector_read(const void* bytes, size_t size, char* error, size_t error_size) {
    return made([&] { return new to_selector{tile_oracle::Selector::read(bytes_at(bytes, size))}; }, error, error_size);
}
void to_selector_free(to_selector* selector) { delete selector; }

uint32_t to_selector_size(const to_selector* selector) { return selector->selector.size(); }
const char* to_selector_name(const to_selector* selector, uint32_t kernel) {
    return kernel < selector->selector.size() ? selector->selector.name(kernel).c_str() : nullptr;
}
uint32_t to_selector_n_fields(const to_selector* selector) {
    return static_cast<uint32_t>(selector->selector.fields().size());
}
const char* to_selector_field(const to_selector* selector, uint32_t field) {
    const auto fields = selector->selector.fields();
    return field < fields.size() ? fields[field].c_str() : nullptr;
}
size_t to_selector_memory_bytes(const to_selector* selector) { return selector->selector.memory_bytes(); }

int to_selector_pick(const to_selector* selector, const double* problem, uint32_t* kernel) {
    return done([&] { *kernel = selector->selector.pick(problem_at(selector, problem)); });
}
int to_selector_rank(const to_selector* selector, const double* problem, uint32_t k, uint32_t* kernels,
                     double* tflops) {
    return done([&] {
        const auto ranked = selector->selector.rank(problem_at(selector, problem), k);
        for (std::size_t i = 0; i < std::min<std::size_t>(k, ranked.size()); ++i) {
            kernels[i] = ranked[i].kernel;
            tflops[i] = ranked[i].tflops;
        }
    });
}
int to_selector_log_times(const to_selector* selector, const double* problem, double* out) {
    return done([&] { selector->selector.log_times(problem_at(selector, problem), {out, selector->selector.size()}); });
}
int to_selector_tflops(const to_selector* selector, const double* problem, double* out) {
    return done([&] { selector->selector.tflops(problem_at(selector, problem), {out, selector->selector.size()}); });
}
int to_selector_tflops_among(const to_selector* selector, const double* problem, const uint32_t* among, uint32_t n,
                             double* out) {
    return done([&] { selector->selector.tflops(problem_at(selector, problem), {among, n}, {out, n}); });
}

}  // extern "C"
