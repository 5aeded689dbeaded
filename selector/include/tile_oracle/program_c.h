/* Feature programs by themselves (tile_oracle/program.hpp), for tests. */
#ifndef TILE_ORACLE_PROGRAM_C_H
#define TILE_ORACLE_PROGRAM_C_H

#include "tile_oracle/selector_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct to_program to_program;

/* Reads what harness/tile_oracle/selector/program.py writes. NULL, and one line in `error`, if it is no program. */
TILE_ORACLE_API to_program* to_program_read(const void* bytes, size_t size, char* error, size_t error_size);
TILE_ORACLE_API void to_program_free(to_program* program);
/* Runs it on `inputs` and puts the value at each operand into `out`. 0, or TO_SELECTOR_NOT_A_PROBLEM where
   an operand or the number of inputs is wrong. */
TILE_ORACLE_API int to_program_run(const to_program* program, const double* inputs, uint32_t n_inputs,
                                   const uint32_t* operands, uint32_t n_operands, double* out);

#ifdef __cplusplus
}
#endif
#endif
