#pragma once
#include "ck_tile/ops/epilogue/double.hpp"
