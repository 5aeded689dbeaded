#pragma once
#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename AsDataType_, typename BsDataType_, typename DsDataType_, typename AccDataType_, typename ODataType_,
          typename DsLayout_, typename ELayout_, typename CDElementwise_, index_t kM_, index_t kN_, index_t MWave_,
          index_t NWave_, index_t MPerXdl_, index_t NPerXdl_, index_t KPerXdl_, bool isCTransposed_,
          memory_operation_enum MemoryOperation_, index_t kNumWaveGroups_ = 1, bool FixedVectorSize_ = false,
          index_t VectorSizeC_ = 1>
struct CShuffleEpilogueProblem {
  using T = ODataType_;
  static constexpr index_t VectorSizeC = VectorSizeC_;
};

template <typename Problem_>
struct CShuffleEpilogue {
  using T = typename Problem_::T;
  static constexpr index_t GetVectorSizeC() { return Problem_::VectorSizeC; }
};

}  // namespace ck_tile
