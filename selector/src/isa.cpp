// Which instruction sets there are, and which one a scorer uses.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "walk_functions.hpp"

#if TILE_ORACLE_X86
#include <cpuid.h>
#endif

namespace tile_oracle {
namespace {

#if TILE_ORACLE_X86
struct X86Features {
    bool avx2 = false, avx512 = false;

    X86Features() noexcept {
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        constexpr unsigned xsave_on = 1u << 27, popcnt = 1u << 23;
        if ((c & xsave_on) == 0 || (c & popcnt) == 0) return;
        unsigned enabled = 0, high = 0;
        __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        constexpr unsigned bmi1 = 1u << 3, avx2_bit = 1u << 5, bmi2 = 1u << 8;
        constexpr unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
        constexpr unsigned ymm = 0x6, zmm = 0xE6;
        const auto has = [b](unsigned bits) { return (b & bits) == bits; };
        avx2 = (enabled & ymm) == ymm && has(bmi1 | avx2_bit | bmi2);
        avx512 = avx2 && (enabled & zmm) == zmm && has(f | dq | bw | vl);
    }
};

/// What the processor has and the operating system saves. Asked of cpuid itself: compilers' own support for
/// that question needs a run-time library that not all of them link.
const X86Features& x86_features() noexcept {
    static const X86Features features;
    return features;
}
#endif

constexpr std::pair<Isa, const char*> isa_names[] = {{Isa::best, "best"},
                                                     {Isa::scalar, "scalar"},
                                                     {Isa::neon, "neon"},
                                                     {Isa::avx2, "avx2"},
                                                     {Isa::avx512, "avx512"}};

}  // namespace

bool isa_available(Isa isa) noexcept {
    switch (isa) {
        case Isa::best:
        case Isa::scalar: return true;
#if TILE_ORACLE_X86
        case Isa::avx2: return x86_features().avx2;
        case Isa::avx512: return x86_features().avx512;
#endif
#if TILE_ORACLE_NEON
        case Isa::neon: return true;
#endif
        default: return false;
    }
}

const char* isa_name(Isa isa) noexcept {
    for (const auto& [value, name] : isa_names) {
        if (value == isa) return name;
    }
    return "unknown";
}

WalkFunction walk_of(Isa isa, std::uint32_t words, bool wide) noexcept {
    switch (isa) {
#if TILE_ORACLE_X86
        case Isa::avx2: return avx2_walk(words, wide);
        case Isa::avx512: return avx512_walk(words, wide);
#endif
#if TILE_ORACLE_NEON
        case Isa::neon: return neon_walk(words, wide);
#endif
        default: return scalar_walk(words, wide);
    }
}

bool resolve_isa(Isa asked, Isa& isa, std::string& error) {
    isa = asked;
    const char* said = asked == Isa::best ? std::getenv("TILE_ORACLE_ISA") : nullptr;
    if (said != nullptr && *said != '\0') {
        const auto* found = std::find_if(std::begin(isa_names), std::end(isa_names),
                                         [said](const auto& name) { return std::strcmp(name.second, said) == 0; });
        if (found == std::end(isa_names)) {
            error = std::string("TILE_ORACLE_ISA is ") + said + ": it must be best, scalar, neon, avx2 or avx512";
            return false;
        }
        isa = found->first;
    }
    if (!isa_available(isa)) {
        error = std::string("this processor, or this library, has no ") + isa_name(isa) + ": use best";
        return false;
    }
    if (isa == Isa::best) {
        for (const Isa one : {Isa::avx512, Isa::avx2, Isa::neon, Isa::scalar}) {
            if (isa_available(one)) {
                isa = one;
                break;
            }
        }
    }
    return true;
}

}  // namespace tile_oracle
