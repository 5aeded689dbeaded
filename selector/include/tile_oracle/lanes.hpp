// Four doubles at a time, and the operations on them that feature formulas are made of. Every operation
// rounds as IEEE 754 says and gives numpy's bits; none of them may be contracted or reordered
// (-ffp-contract=off; never -ffast-math).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__FAST_MATH__)
#error "tile_oracle gives exact results: compile it without -ffast-math"
#endif

#if defined(__GNUC__)
#define TILE_ORACLE_INLINE inline __attribute__((always_inline))
#else
#define TILE_ORACLE_INLINE inline
#endif

namespace tile_oracle::lanes {

inline constexpr std::uint32_t count = 4;

#if defined(__GNUC__) && !defined(TILE_ORACLE_PLAIN_LANES)

typedef double Doubles __attribute__((vector_size(32)));
typedef std::int64_t Bits __attribute__((vector_size(32)));  // also the result of comparing: all ones is true

TILE_ORACLE_INLINE Bits bits_of(Doubles x) { return (Bits)x; }
TILE_ORACLE_INLINE Doubles of_bits(Bits x) { return (Doubles)x; }
TILE_ORACLE_INLINE Doubles splat(double x) { return Doubles{x, x, x, x}; }
TILE_ORACLE_INLINE Bits splat_bits(std::int64_t x) { return Bits{x, x, x, x}; }

#else

// The same for compilers without vector types.
template <class T>
struct Four {
    T at[4];
    T& operator[](unsigned i) { return at[i]; }
    const T& operator[](unsigned i) const { return at[i]; }
};
using Doubles = Four<double>;
using Bits = Four<std::int64_t>;

#define TILE_ORACLE_EACH(Type, Result, name, expression)                    \
    inline Result name(Type a, Type b) {                                    \
        Result r;                                                           \
        for (unsigned i = 0; i < 4; ++i) r[i] = (expression);               \
        return r;                                                           \
    }
TILE_ORACLE_EACH(Doubles, Doubles, operator+, a[i] + b[i])
TILE_ORACLE_EACH(Doubles, Doubles, operator-, a[i] - b[i])
TILE_ORACLE_EACH(Doubles, Doubles, operator*, a[i] * b[i])
TILE_ORACLE_EACH(Doubles, Doubles, operator/, a[i] / b[i])
TILE_ORACLE_EACH(Doubles, Bits, operator<, a[i] < b[i] ? -1 : 0)
TILE_ORACLE_EACH(Doubles, Bits, operator<=, a[i] <= b[i] ? -1 : 0)
TILE_ORACLE_EACH(Doubles, Bits, operator>, a[i] > b[i] ? -1 : 0)
TILE_ORACLE_EACH(Doubles, Bits, operator>=, a[i] >= b[i] ? -1 : 0)
TILE_ORACLE_EACH(Doubles, Bits, operator==, a[i] == b[i] ? -1 : 0)
TILE_ORACLE_EACH(Doubles, Bits, operator!=, a[i] != b[i] ? -1 : 0)
TILE_ORACLE_EACH(Bits, Bits, operator&, a[i] & b[i])
TILE_ORACLE_EACH(Bits, Bits, operator|, a[i] | b[i])
#undef TILE_ORACLE_EACH
inline Bits operator~(Bits a) { return Bits{{~a[0], ~a[1], ~a[2], ~a[3]}}; }
inline Bits operator>>(Bits a, int n) { return Bits{{a[0] >> n, a[1] >> n, a[2] >> n, a[3] >> n}}; }
inline Bits operator<<(Bits a, int n) {
    Bits r;
    for (unsigned i = 0; i < 4; ++i) r[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(a[i]) << n);
    return r;
}
inline Bits bits_of(Doubles x) {
    Bits r;
    std::memcpy(&r, &x, sizeof r);
    return r;
}
inline Doubles of_bits(Bits x) {
    Doubles r;
    std::memcpy(&r, &x, sizeof r);
    return r;
}
inline Doubles splat(double x) { return Doubles{{x, x, x, x}}; }
inline Bits splat_bits(std::int64_t x) { return Bits{{x, x, x, x}}; }

#endif

TILE_ORACLE_INLINE Doubles load(const double* from) {
    Doubles x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
TILE_ORACLE_INLINE void store(double* to, Doubles x) { std::memcpy(to, &x, sizeof x); }

/// a where the condition is true, else b.
TILE_ORACLE_INLINE Doubles select(Bits condition, Doubles a, Doubles b) {
    return of_bits((condition & bits_of(a)) | (~condition & bits_of(b)));
}
/// 1.0 where true, else 0.0.
TILE_ORACLE_INLINE Doubles truth(Bits condition) { return of_bits(condition & bits_of(splat(1.0))); }

TILE_ORACLE_INLINE Doubles negative(Doubles x) {
    return of_bits((bits_of(x) | splat_bits(INT64_MIN)) & ~(bits_of(x) & splat_bits(INT64_MIN)));
}
TILE_ORACLE_INLINE Doubles absolute(Doubles x) { return of_bits(bits_of(x) & splat_bits(INT64_MAX)); }
TILE_ORACLE_INLINE Bits sign_of(Doubles x) { return bits_of(x) & splat_bits(INT64_MIN); }

/// To the nearest whole number, halves to the even one; the sign stays. Adding 2^52 leaves no room for a fraction.
TILE_ORACLE_INLINE Doubles rint(Doubles x) {
    const Doubles size = absolute(x), big = splat(4503599627370496.0);
    const Doubles rounded = of_bits(bits_of((size + big) - big) | sign_of(x));
    return select(size < big, rounded, x);
}
TILE_ORACLE_INLINE Doubles floor(Doubles x) {
    const Doubles near = rint(x);
    return select(near > x, near - splat(1.0), near);
}
TILE_ORACLE_INLINE Doubles ceil(Doubles x) {
    const Doubles near = rint(x);
    return select(near < x, of_bits(bits_of(near + splat(1.0)) | sign_of(x)), near);
}
TILE_ORACLE_INLINE Doubles trunc(Doubles x) { return of_bits(bits_of(floor(absolute(x))) | sign_of(x)); }

TILE_ORACLE_INLINE Doubles minimum(Doubles a, Doubles b) { return select((a < b) | (a != a), a, b); }
TILE_ORACLE_INLINE Doubles maximum(Doubles a, Doubles b) { return select((a > b) | (a != a), a, b); }

TILE_ORACLE_INLINE bool all(Bits condition) {
    return (condition[0] & condition[1] & condition[2] & condition[3]) != 0;
}

/// Remainder of whole numbers 0 <= a < 2^52, 0 < b <= 2^52: the quotient is off by one at most, and no
/// product is rounded.
TILE_ORACLE_INLINE Doubles whole_remainder(Doubles a, Doubles b) {
    Doubles rest = a - floor(a / b) * b;
    rest = select(rest < splat(0.0), rest + b, rest);
    return select(rest >= b, rest - b, rest);
}
TILE_ORACLE_INLINE bool whole(Doubles a, Doubles b) {
    const Doubles big = splat(4503599627370496.0), zero = splat(0.0);
    return all((a >= zero) & (a < big) & (b > zero) & (b < big) & (rint(a) == a) & (rint(b) == b));
}

/// numpy's remainder: of the sign of b.
inline double remainder_of(double a, double b) {
    double rest = std::fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return std::copysign(0.0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}
/// numpy's floor_divide, which is made from the remainder.
inline double floor_quotient(double a, double b) {
    if (b == 0) return a / b;
    const double rest = std::fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1.0;
    if (quotient == 0) return std::copysign(0.0, a / b);
    const double below = std::floor(quotient);
    return quotient - below > 0.5 ? below + 1.0 : below;
}

TILE_ORACLE_INLINE Doubles remainder(Doubles a, Doubles b) {
    if (whole(a, b)) return whole_remainder(a, b);
    Doubles r = a;
    for (unsigned i = 0; i < count; ++i) r[i] = remainder_of(a[i], b[i]);
    return r;
}
TILE_ORACLE_INLINE Doubles floor_divide(Doubles a, Doubles b) {
    if (whole(a, b)) return (a - whole_remainder(a, b)) / b;
    Doubles r = a;
    for (unsigned i = 0; i < count; ++i) r[i] = floor_quotient(a[i], b[i]);
    return r;
}
TILE_ORACLE_INLINE Doubles sqrt(Doubles x) {
    for (unsigned i = 0; i < count; ++i) x[i] = std::sqrt(x[i]);
    return x;
}
/// The 64-bit integer, fractions cut off; of NaN and of what no such integer holds the least one. C++ leaves the
/// plain conversion of those undefined.
inline std::int64_t as_int64(double x) {
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<std::int64_t>(x) : INT64_MIN;
}
/// Bitwise and of whole numbers, as 64-bit integers.
TILE_ORACLE_INLINE Doubles common_bits(Doubles a, Doubles b) {
    for (unsigned i = 0; i < count; ++i) a[i] = static_cast<double>(as_int64(a[i]) & as_int64(b[i]));
    return a;
}

}  // namespace tile_oracle::lanes
