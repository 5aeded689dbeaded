// A double of Composable Kernel's kernel_key.hpp: the names that a heuristic needs, and nothing else of it.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace ck_tile { namespace dispatcher {

enum class DataType { FP16, BF16, FP32, FP8 };
enum class LayoutTag { RowMajor, ColMajor };
enum class Pipeline { Mem, CompV3, CompV4, CompV5, CompV6, PreShuffleV2 };
enum class Epilogue { Default, CShuffle };
enum class Scheduler { Intrawave, Interwave };

template <class Enum, std::size_t Size>
std::string word_of(Enum value, const char* const (&words)[Size]) {
    const auto place = static_cast<std::size_t>(value);
    return place < Size ? words[place] : "unknown";
}
inline std::string to_string(DataType one) { return word_of(one, {"fp16", "bf16", "fp32", "fp8"}); }
inline std::string to_string(LayoutTag one) { return word_of(one, {"r", "c"}); }
inline std::string to_string(Pipeline one) {
    return word_of(one, {"mem", "compv3", "compv4", "compv5", "compv6", "preshufflev2"});
}
inline std::string to_string(Epilogue one) { return word_of(one, {"default", "cshuffle"}); }
inline std::string to_string(Scheduler one) { return word_of(one, {"intrawave", "interwave"}); }

struct Sizes {
    std::uint16_t m, n, k;
};

struct KernelKey {
    struct Signature {
        DataType dtype_a, dtype_b;
        LayoutTag layout_a, layout_b, layout_c;
    } signature;
    struct Algorithm {
        Sizes tile_shape, wave_shape, warp_tile_shape;
        Pipeline pipeline;
        Scheduler scheduler;
        Epilogue epilogue;
        bool persistent, pad_m, pad_n, pad_k;
    } algorithm;

    std::string encode_identifier() const {
        std::ostringstream out;
        out << to_string(algorithm.pipeline) << to_string(algorithm.scheduler) << to_string(algorithm.epilogue)
            << algorithm.persistent << algorithm.pad_m << algorithm.pad_n << algorithm.pad_k;
        for (const auto& one : {algorithm.tile_shape, algorithm.wave_shape, algorithm.warp_tile_shape})
            out << '_' << one.m << 'x' << one.n << 'x' << one.k;
        return out.str();
    }
};

}}  // namespace ck_tile::dispatcher
