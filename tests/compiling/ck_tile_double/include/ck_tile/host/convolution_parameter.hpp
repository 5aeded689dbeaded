#pragma once
#include <vector>

#include "ck_tile/core.hpp"

namespace ck_tile::conv {

struct ConvParam {
  ConvParam(index_t n_dim, index_t group_count, index_t n_batch, index_t n_out_channels, index_t n_in_channels,
            const std::vector<index_t> &filters_len, const std::vector<index_t> &input_len,
            const std::vector<index_t> &strides, const std::vector<index_t> &dilations,
            const std::vector<index_t> &left_pads, const std::vector<index_t> &right_pads)
      : G_(group_count), N_(n_batch), K_(n_out_channels), C_(n_in_channels), pixels_(1) {
    for (index_t i = 0; i < n_dim; ++i)
      pixels_ *= (input_len[i] + left_pads[i] + right_pads[i] - (filters_len[i] - 1) * dilations[i] - 1) / strides[i] + 1;
  }
  index_t G_, N_, K_, C_, pixels_;
};

}  // namespace ck_tile::conv
