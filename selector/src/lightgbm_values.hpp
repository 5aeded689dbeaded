// What LightGBM's trees make of a feature's value. Internal.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "prepared.hpp"

namespace tile_oracle {

/// LightGBM's kZeroThreshold: 1e-35 as a float. It reads values this close to zero as zero.
constexpr double zero_threshold = static_cast<double>(1e-35f);

/// A value as LightGBM's predictor hands it to the trees: what is near zero is zero.
inline double as_given(double value) noexcept { return std::fabs(value) <= zero_threshold ? 0.0 : value; }

inline bool is_missing(double value, Missing missing) noexcept {
    if (missing == Missing::nan) return std::isnan(value);
    // Trees that know no NaN read it as zero.
    return missing == Missing::zero && (value == 0.0 || std::isnan(value));
}

/// How many thresholds of the group lie below the value: its bucket. Condition i holds for buckets 0 to i.
inline std::uint32_t bucket_of(double given, const Group& group, const double* thresholds) noexcept {
    double value = as_given(given);
    if (is_missing(value, group.missing)) return group.missing_left ? 0 : group.n_thresholds;
    if (std::isnan(value)) value = 0.0;
    // Always the same number of steps, no branch: values come in any order.
    std::size_t below = 0, length = group.n_thresholds;
    while (length > 1) {
        const std::size_t half = length / 2;
        below += half & -static_cast<std::size_t>(thresholds[below + half - 1] < value);
        length -= half;
    }
    return static_cast<std::uint32_t>(below + (thresholds[below] < value));
}

/// Whether a category is in a set. Negative ones, those that no int holds, and NaN are in none.
inline bool is_in_set(double given, const std::uint32_t* words, std::uint32_t n_words) noexcept {
    const double value = as_given(given);
    // Truncation towards zero, as LightGBM's cast to int: -0.9 is category 0.
    if (!(value > -1.0 && value < 2147483648.0)) return false;
    const auto category = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    return category / 32 < n_words && (words[category / 32] >> (category % 32) & 1) != 0;
}

}  // namespace tile_oracle
