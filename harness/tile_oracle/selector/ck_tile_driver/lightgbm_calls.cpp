#include "lightgbm_calls.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void* library = nullptr;

template <class Function>
Function* in_lightgbm(const char* name) {
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        std::fprintf(stderr, "lightgbm: %s\n", dlerror());
        std::exit(3);
    }
    return reinterpret_cast<Function*>(found);
}

template <class Number>
std::vector<double> numbers(const void* data, std::size_t bytes) {
    std::vector<double> found(bytes / sizeof(Number));
    for (std::size_t i = 0; i < found.size(); ++i) {
        Number value;
        std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(Number), sizeof value);
        found[i] = double(value);
    }
    return found;
}

/// 0, or LightGBM's status, whose message is written once.
int told(int status) {
    static bool said = false;
    if (status != 0 && !said) {
        said = true;
        std::fprintf(stderr, "lightgbm: %s\n", in_lightgbm<const char*()>("LGBM_GetLastError")());
    }
    return status;
}

}  // namespace

void lightgbm_calls::load(const char* path) {
    library = dlopen(path, RTLD_NOW);
    in_lightgbm<const char*()>("LGBM_GetLastError");
}

extern "C" {

int LGBM_BoosterCreateFromModelfile(const char* file, int* iterations, void** booster) {
    return told(in_lightgbm<decltype(LGBM_BoosterCreateFromModelfile)>(__func__)(file, iterations, booster));
}
int LGBM_BoosterFree(void* booster) { return told(in_lightgbm<decltype(LGBM_BoosterFree)>(__func__)(booster)); }
int LGBM_BoosterPredictForMat(void* booster, const void* data, int data_type, int rows, int columns, int row_major,
                              int kind, int start, int iterations, const char* parameter, int64_t* length,
                              double* result) {
    auto& call = lightgbm_calls::last;
    const std::size_t bytes = std::size_t(columns) * (data_type == 0 ? sizeof(float) : sizeof(double));
    call.data_type = data_type, call.columns = columns;
    call.doubles = numbers<double>(data, bytes);
    call.features = data_type == 0 ? numbers<float>(data, bytes) : call.doubles;
    call.status = told(in_lightgbm<decltype(LGBM_BoosterPredictForMat)>(__func__)(
        booster, data, data_type, rows, columns, row_major, kind, start, iterations, parameter, length, result));
    return call.status;
}

}  // extern "C"
