// A double of Composable Kernel's fmha_kernel_key.hpp: the members that its heuristic reads.
#pragma once

#include "ck_tile/dispatcher/fmha_problem.hpp"

#include <cstdint>
#include <sstream>
#include <string>

namespace ck_tile { namespace dispatcher {

struct FmhaKernelKey {
    struct Signature {
        std::string data_type;
        int mask_type = 0;
        std::uint16_t hdim_q = 0, hdim_v = 0;
    } signature;
    struct Algorithm {
        struct TileShape {
            std::uint16_t m0 = 0, n0 = 0, k0 = 0, n1 = 0, k1 = 0, k0max = 0;
        } tile_shape;
        std::string pipeline;
        bool pad_s = true, pad_sk = true, pad_d = true, pad_dv = true;
    } algorithm;

    std::string encode_identifier() const {
        std::ostringstream out;
        const auto& tile = algorithm.tile_shape;
        out << signature.data_type << signature.hdim_q << algorithm.pipeline << tile.m0 << "x" << tile.n0 << "x" << tile.k0
            << algorithm.pad_s;
        return out.str();
    }
};

}}
