// Stands for the dispatcher, which launches kernels and needs a GPU: a heuristic is judged without it.
#pragma once

#include "ck_tile/dispatcher/problem.hpp"
#include "ck_tile/dispatcher/registry.hpp"
