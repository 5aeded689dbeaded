// log, log2, exp and expm1 that give the same bits on every machine: operation by operation those of
// harness/tile_oracle/features/exact_math.py.
#pragma once

#include <limits>

#include "tile_oracle/lanes.hpp"

namespace tile_oracle::exact {

using namespace lanes;

inline constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
inline constexpr double inv_ln2 = 0x1.71547652b82fep+0;
inline constexpr double inv_ln2_high = 0x1.7154760000000p+0, inv_ln2_low = 0x1.4ae0bf85ddf44p-26;
inline constexpr double highest = 709.0, lowest = -708.0;

/// x = 2^exponent (1 + f); ln(1 + f) = f - half_square + rest.
struct Reduced {
    Doubles exponent, f, half_square, rest;
};

TILE_ORACLE_INLINE Reduced reduced(Doubles x) {
    const Bits bits = bits_of(x);
    // The exponent's bits, put below 2^52, are a whole number that a subtraction turns into a double.
    const Doubles raised = of_bits(((bits >> 52) & splat_bits(0xFFF)) | splat_bits(0x4330000000000000));
    Doubles exponent = raised - splat(4503599627370496.0 + 1022.0);
    const Doubles mantissa =
        of_bits((bits & splat_bits(0x000FFFFFFFFFFFFF)) | splat_bits(0x3FE0000000000000));
    const Bits low = mantissa < splat(0x1.6a09e667f3bcdp-1);
    const Doubles f = select(low, mantissa + mantissa, mantissa) - splat(1.0);
    exponent = select(low, exponent - splat(1.0), exponent);
    const Doubles s = f / (splat(2.0) + f);
    const Doubles square = s * s;
    Doubles series = splat(2.0 / 21);
    for (int k = 9; k > 0; --k) series = series * square + splat(2.0 / (2 * k + 1));
    const Doubles half_square = (splat(0.5) * f) * f;
    return {exponent, f, half_square, s * (half_square + series * square)};
}

TILE_ORACLE_INLINE Doubles at_the_edges(Doubles x, Doubles found) {
    const Doubles infinity = splat(std::numeric_limits<double>::infinity()), zero = splat(0.0);
    const Bits inside = (x > zero) & (x < infinity);
    if (all(inside)) return found;
    const Doubles nan = splat(std::numeric_limits<double>::quiet_NaN());
    return select(inside, found, select(x == zero, zero - infinity, select(x == infinity, infinity, nan)));
}

TILE_ORACLE_INLINE Doubles log(Doubles x) {
    const Reduced r = reduced(x);
    return at_the_edges(
        x, r.exponent * splat(ln2_high) - ((r.half_square - (r.rest + r.exponent * splat(ln2_low))) - r.f));
}

TILE_ORACLE_INLINE Doubles log2(Doubles x) {
    const Reduced r = reduced(x);
    Doubles high = r.f - r.half_square;
    const Doubles scaled = high * splat(134217729.0);
    high = scaled - (scaled - high);
    const Doubles low = ((r.f - high) - r.half_square) + r.rest;
    const Doubles whole = high * splat(inv_ln2_high);
    const Doubles found = r.exponent + whole;
    Doubles small = (low + high) * splat(inv_ln2_low) + low * splat(inv_ln2_high);
    small = small + ((r.exponent - found) + whole);
    return at_the_edges(x, small + found);
}

/// e^x = scale (1 + less_one).
struct Power {
    Doubles scale, less_one;
};

TILE_ORACLE_INLINE Power power(Doubles x) {
    const Doubles inside = minimum(maximum(x, splat(lowest)), splat(highest));
    const Doubles times = rint(inside * splat(inv_ln2));
    const Doubles r = (inside - times * splat(ln2_high)) - times * splat(ln2_low);
    constexpr double factorials[] = {6227020800.0, 479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0,
                                     5040.0,       720.0,       120.0,      24.0,      6.0,      2.0};
    Doubles series = splat(1.0 / factorials[0]);
    for (int i = 1; i < 12; ++i) series = series * r + splat(1.0 / factorials[i]);
    const Bits exponent = bits_of(times + splat(4503599627370496.0 + 1023.0)) << 52;
    return {of_bits(exponent), r + (r * r) * series};
}

TILE_ORACLE_INLINE Doubles exp(Doubles x) {
    const Power p = power(x);
    const Doubles found = p.scale * (splat(1.0) + p.less_one);
    const Doubles infinity = splat(std::numeric_limits<double>::infinity());
    return select(x > splat(highest), infinity, select(x < splat(lowest), splat(0.0), found));
}

TILE_ORACLE_INLINE Doubles expm1(Doubles x) {
    const Power p = power(x);
    const Doubles found = p.scale * p.less_one + (p.scale - splat(1.0));
    const Doubles infinity = splat(std::numeric_limits<double>::infinity());
    return select(x > splat(highest), infinity, select(x < splat(lowest), splat(-1.0), found));
}

}  // namespace tile_oracle::exact
