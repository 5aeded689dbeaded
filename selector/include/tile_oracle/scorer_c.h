/* C interface of tile_oracle/forest.hpp and scorer.hpp. A scorer may be used by any number of threads at once. */
#ifndef TILE_ORACLE_SCORER_C_H
#define TILE_ORACLE_SCORER_C_H

#include "tile_oracle/selector_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct to_forest to_forest;
typedef struct to_scorer to_scorer;

/* tile_oracle::FeatureSource. kind: 0 constant, 1 kernel, 2 interaction. */
typedef struct to_feature {
    uint32_t kind;
    uint32_t n_classes;
    const uint32_t* class_of;
    const double* class_values;
} to_feature;

/* Reads a forest's bytes. NULL, and one line in `error` (cut to error_size), if they are none. */
TILE_ORACLE_API to_forest* to_forest_read(const void* bytes, size_t size, char* error, size_t error_size);
TILE_ORACLE_API void to_forest_free(to_forest* forest);

/* isa: best, scalar, neon, avx2 or avx512. The forests may be freed afterwards. NULL, and one line in `error`, if
   no such scorer can be. */
TILE_ORACLE_API to_scorer* to_scorer_make(const to_forest* const* forests, uint32_t n_forests, uint32_t n_candidates,
                                          const to_feature* features, uint32_t n_features, const char* isa,
                                          char* error, size_t error_size);
TILE_ORACLE_API void to_scorer_free(to_scorer* scorer);

/* out[forest * n_candidates + candidate]. 0, or TO_SELECTOR_OUT_OF_MEMORY. */
TILE_ORACLE_API int to_scorer_score(const to_scorer* scorer, const double* constants,
                                    const double* const* class_values, double* out);
/* Candidates that the forests can tell apart. */
TILE_ORACLE_API uint32_t to_scorer_n_distinct(const to_scorer* scorer);
/* 1 where some tree asks for this feature, else 0. */
TILE_ORACLE_API int to_scorer_reads(const to_scorer* scorer, uint32_t feature);
TILE_ORACLE_API size_t to_scorer_memory_bytes(const to_scorer* scorer);
TILE_ORACLE_API const char* to_scorer_isa(const to_scorer* scorer);
/* Whether the library has code for it and this processor runs it. */
TILE_ORACLE_API int to_isa_available(const char* isa);

#ifdef __cplusplus
}
#endif
#endif
