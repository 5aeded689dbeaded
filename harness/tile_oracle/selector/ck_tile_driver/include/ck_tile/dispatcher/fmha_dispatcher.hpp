// Stands for the dispatcher of attention, which launches kernels and needs a GPU.
#pragma once

#include "ck_tile/dispatcher/fmha_problem.hpp"
#include "ck_tile/dispatcher/fmha_registry.hpp"
