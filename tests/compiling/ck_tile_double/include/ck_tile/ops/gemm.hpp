#pragma once
#include "ck_tile/ops/gemm/double.hpp"
