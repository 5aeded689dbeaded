#pragma once
#include "ck_tile/ops/grouped_convolution/double.hpp"
