/* C interface of tile_oracle/selector.hpp. A selector may be used by any number of threads at once. */
#ifndef TILE_ORACLE_SELECTOR_C_H
#define TILE_ORACLE_SELECTOR_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TILE_ORACLE_API __declspec(dllexport)
#else
#define TILE_ORACLE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct to_selector to_selector;

/* Reads the bytes of a selector's file. NULL, and one line in `error` (cut to error_size), if they are none. */
TILE_ORACLE_API to_selector* to_selector_read(const void* bytes, size_t size, char* error, size_t error_size);
TILE_ORACLE_API void to_selector_free(to_selector* selector);

TILE_ORACLE_API uint32_t to_selector_size(const to_selector* selector);
TILE_ORACLE_API const char* to_selector_name(const to_selector* selector, uint32_t kernel);
TILE_ORACLE_API uint32_t to_selector_n_fields(const to_selector* selector);
TILE_ORACLE_API const char* to_selector_field(const to_selector* selector, uint32_t field);
TILE_ORACLE_API size_t to_selector_memory_bytes(const to_selector* selector);

/* A problem is the values of its fields, to_selector_n_fields of them. The result is 0 or one of these. */
enum { TO_SELECTOR_NOT_A_PROBLEM = 1, TO_SELECTOR_OUT_OF_MEMORY = 2 };

/* The candidate with the least predicted time. */
TILE_ORACLE_API int to_selector_pick(const to_selector* selector, const double* problem, uint32_t* kernel);
/* The k best candidates, best first, and their predicted TFLOPS; k at most to_selector_size. */
TILE_ORACLE_API int to_selector_rank(const to_selector* selector, const double* problem, uint32_t k,
                                     uint32_t* kernels, double* tflops);
/* Every candidate's predicted ln(time in ms), or TFLOPS. */
TILE_ORACLE_API int to_selector_log_times(const to_selector* selector, const double* problem, double* out);
TILE_ORACLE_API int to_selector_tflops(const to_selector* selector, const double* problem, double* out);
/* TFLOPS of the `n` candidates of these numbers, as if there were no others. */
TILE_ORACLE_API int to_selector_tflops_among(const to_selector* selector, const double* problem,
                                             const uint32_t* among, uint32_t n, double* out);

#ifdef __cplusplus
}
#endif
#endif
