// The three functions of LightGBM that the heuristics call, which note what they are given before LightGBM gets it.
#pragma once

#include <vector>

namespace lightgbm_calls {

/// One call of LGBM_BoosterPredictForMat. features: as LightGBM reads them; doubles: the same bytes as doubles.
struct Call {
    int status = -1, data_type = -1, columns = 0;
    std::vector<double> features, doubles;
};
inline Call last;

/// Opens lib_lightgbm.so; ends the program if it cannot.
void load(const char* library);

}  // namespace lightgbm_calls
