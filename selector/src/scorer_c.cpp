#include "tile_oracle/scorer_c.h"

#include <stdexcept>
#include <utility>

#include "c_calls.hpp"
#include "tile_oracle/scorer.hpp"

struct to_forest {
    std::shared_ptr<const tile_oracle::Forest> forest;
};

struct to_scorer {
    std::unique_ptr<const tile_oracle::Scorer> scorer;
};

using namespace tile_oracle;

namespace {

constexpr Isa all_isas[] = {Isa::best, Isa::scalar, Isa::neon, Isa::avx2, Isa::avx512};

Isa isa_of(const char* name) {
    for (const Isa isa : all_isas) {
        if (name != nullptr && std::strcmp(name, isa_name(isa)) == 0) return isa;
    }
    throw std::invalid_argument("an instruction set must be best, scalar, neon, avx2 or avx512");
}

}  // namespace

extern "C" {

to_forest* to_forest_read(const void* bytes, size_t size, char* error, size_t error_size) {
    return c::made(
        [&] {
            std::string wrong;
            auto forest = Forest::read(bytes, size, wrong);
            if (forest == nullptr) throw std::invalid_argument(wrong);
            return new to_forest{std::move(forest)};
        },
        error, error_size);
}
void to_forest_free(to_forest* forest) { delete forest; }

to_scorer* to_scorer_make(const to_forest* const* forests, uint32_t n_forests, uint32_t n_candidates,
                          const to_feature* features, uint32_t n_features, const char* isa, char* error,
                          size_t error_size) {
    return c::made(
        [&] {
            std::vector<std::shared_ptr<const Forest>> all;
            for (uint32_t i = 0; i < n_forests; ++i) all.push_back(forests[i]->forest);
            std::vector<FeatureSource> sources;
            for (uint32_t i = 0; i < n_features; ++i) {
                const to_feature& feature = features[i];
                if (feature.kind > static_cast<uint32_t>(FeatureKind::interaction)) {
                    throw std::invalid_argument("feature " + std::to_string(i) + " is of no known kind");
                }
                sources.push_back({static_cast<FeatureKind>(feature.kind), feature.n_classes, feature.class_of,
                                   feature.class_values});
            }
            std::string wrong;
            auto scorer = Scorer::make(std::move(all), n_candidates, sources, isa_of(isa), wrong);
            if (scorer == nullptr) throw std::invalid_argument(wrong);
            return new to_scorer{std::move(scorer)};
        },
        error, error_size);
}
void to_scorer_free(to_scorer* scorer) { delete scorer; }

int to_scorer_score(const to_scorer* scorer, const double* constants, const double* const* class_values,
                    double* out) {
    return scorer->scorer->score(constants, class_values, out) ? 0 : TO_SELECTOR_OUT_OF_MEMORY;
}
uint32_t to_scorer_n_distinct(const to_scorer* scorer) { return scorer->scorer->n_distinct(); }
int to_scorer_reads(const to_scorer* scorer, uint32_t feature) { return scorer->scorer->reads(feature); }
size_t to_scorer_memory_bytes(const to_scorer* scorer) { return scorer->scorer->memory_bytes(); }
const char* to_scorer_isa(const to_scorer* scorer) { return isa_name(scorer->scorer->isa()); }
int to_isa_available(const char* isa) {
    try {
        return isa_available(isa_of(isa));
    } catch (const std::invalid_argument&) {
        return 0;
    }
}

}  // extern "C"
