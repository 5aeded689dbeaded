// kernels/gpu/instructions_gfx90a.hpp itself, on top of gfx950's emulated instructions.
#pragma once

#define TO_GFX950_INSTRUCTIONS "emulated_gfx950.hpp"
#include "instructions_gfx90a.hpp"
