#pragma once
#include "ck_tile/core.hpp"
