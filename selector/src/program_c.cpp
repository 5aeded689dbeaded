#include "tile_oracle/program_c.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "c_calls.hpp"
#include "tile_oracle/program.hpp"

struct to_program {
    tile_oracle::Program program;
};

using tile_oracle::c::bytes_at, tile_oracle::c::done, tile_oracle::c::made;

extern "C" {

to_program* to_program_read(const void* bytes, size_t size, char* error, size_t error_size) {
    return made(
        [&] {
            tile_oracle::ByteReader from(bytes_at(bytes, size));
            return new to_program{tile_oracle::Program(from)};
        },
        error, error_size);
}
void to_program_free(to_program* program) { delete program; }
int to_program_run(const to_program* program, const double* inputs, uint32_t n_inputs, const uint32_t* operands,
                   uint32_t n_operands, double* out) {
    return done([&] {
        if (n_inputs != program->program.n_inputs()) throw std::invalid_argument("inputs");
        std::vector<double> memory(program->program.memory_size());
        std::copy_n(inputs, n_inputs, memory.data());
        program->program.run(memory.data());
        for (uint32_t i = 0; i < n_operands; ++i) {
            program->program.check(operands[i], 1);
            out[i] = *program->program.value(operands[i], memory.data());
        }
    });
}

}  // extern "C"
