// Unlike the public versions: loops' tails are found on the device, only A's element-wise function is a parameter, and
// one parameter has a default that names an earlier one.
#pragma once
#include "ck_tile/core.hpp"

namespace ck_tile {

enum struct GemmPipelineScheduler { Default, Intrawave, Interwave };

template <typename BlockTile_, typename BlockWarps_, typename WarpTile_, bool PermuteA_ = false>
struct TileGemmShape;

template <index_t M, index_t N, index_t K, index_t WM, index_t WN, index_t WK, typename WarpTile_, bool PermuteA_>
struct TileGemmShape<sequence<M, N, K>, sequence<WM, WN, WK>, WarpTile_, PermuteA_> {
  static constexpr index_t kM = M, kN = N, kK = K, NumWarps = WM * WN * WK;
};

template <typename BlockTile_, typename BlockWarps_, typename WarpTile_, bool PermuteA_>
struct TileGemmShape {
  static_assert(sizeof(BlockTile_) == 0, "three sequences");
};

template <typename BlockGemmShape_, index_t GroupNum = 8, index_t M01 = 4>
struct GemmSpatiallyLocalTilePartitioner {
  static constexpr index_t MPerBlock = BlockGemmShape_::kM, NPerBlock = BlockGemmShape_::kN;
  static constexpr index_t GridSize(index_t m, index_t n) {
    return (m + MPerBlock - 1) / MPerBlock * ((n + NPerBlock - 1) / NPerBlock);
  }
};

template <bool kPadM_, bool kPadN_, bool kPadK_, bool DoubleSmemBuffer_, typename AsLayout_, typename BsLayout_,
          typename CLayout_, bool TransposeC_ = false, bool UsePersistentKernel_ = false>
struct TileGemmUniversalTraits {
  using ALayout = AsLayout_;
  using BLayout = BsLayout_;
  using CLayout = CLayout_;
  static constexpr bool TransposeC = TransposeC_;
  static constexpr bool UsePersistentKernel = UsePersistentKernel_;
};

template <typename AsDataType_, typename BsDataType_, typename CDataType_, typename BlockGemmShape_, typename Traits_,
          GemmPipelineScheduler Scheduler_ = GemmPipelineScheduler::Intrawave,
          typename AElementWise_ = element_wise::PassThrough, typename ComputeDataType_ = AsDataType_,
          bool FixedVectorSize_ = false, index_t VectorSizeA_ = 1, index_t VectorSizeB_ = 1>
struct UniversalGemmPipelineProblem {
  using Traits = Traits_;
  using Shape = BlockGemmShape_;
  static constexpr index_t kBlockSize = BlockGemmShape_::NumWarps * 64;
  static constexpr bool TransposeC = Traits_::TransposeC;
  static constexpr index_t VectorSizeA = VectorSizeA_, VectorSizeB = VectorSizeB_;
};

template <typename Problem>
struct GemmPipelineAgBgCrCompV3 {
  template <GemmPipelineScheduler Scheduler>
  struct PipelineImpl;
  template <index_t Unused>
  struct Only {};
  // struct PipelineImpl<GemmPipelineScheduler::Interwave>: a comment, not a schedule
  template <typename BlockGemm>
  static void read(BlockGemm &gemm) { gemm.LocalPrefetch(); }
  static constexpr index_t BlockSize = Problem::kBlockSize;
  static constexpr bool UsePersistentKernel = Problem::Traits::UsePersistentKernel;
  using ALayout = typename Problem::Traits::ALayout;
  using BLayout = typename Problem::Traits::BLayout;
  using CLayout = typename Problem::Traits::CLayout;
  static constexpr index_t VectorSizeA = Problem::VectorSizeA;
  static constexpr index_t LdsBytes = (Problem::Shape::kM + Problem::Shape::kN) * Problem::Shape::kK * 2;
};

template <typename Problem>
struct GemmPipelineAgBgCrCompV4 : GemmPipelineAgBgCrCompV3<Problem> {
  template <typename BlockGemm>
  static void read(BlockGemm &gemm) { gemm.LocalPrefetch(); }
  static constexpr bool UsePersistentKernel = Problem::Traits::UsePersistentKernel;
  static void run(void *p_smem_0, void *p_smem_1);
};

struct GemmHostArgs {
  CK_TILE_HOST GemmHostArgs(const void *a_ptr_, const void *b_ptr_, void *e_ptr_, index_t k_batch_, index_t M_,
                            index_t N_, index_t K_, index_t stride_A_, index_t stride_B_, index_t stride_E_)
      : a(a_ptr_), b(b_ptr_), e(e_ptr_), M(M_), N(N_), K(K_), stride_A(stride_A_), stride_B(stride_B_),
        stride_E(stride_E_) {}
  const void *a, *b;
  void *e;
  index_t M, N, K, stride_A, stride_B, stride_E;
};

template <typename TilePartitioner_, typename GemmPipeline_, typename EpiloguePipeline_>
struct GemmKernel {
  static constexpr index_t kBlockSize = GemmPipeline_::BlockSize;
  static auto MakeKernelArgs(const GemmHostArgs &args) { return args; }
  static bool IsSupportedArgument(const GemmHostArgs &args) { return args.K % 8 == 0; }
  static dim3 GridSize(index_t m, index_t n, index_t k_batch) {
    return dim3(TilePartitioner_::GridSize(m, n), 1, k_batch);
  }
  static constexpr index_t GetSmemSize() { return GemmPipeline_::LdsBytes; }
  CK_TILE_DEVICE void operator()(GemmHostArgs args) const {
    __shared__ char smem[GetSmemSize()];
    smem[0] = char(args.K);
    *static_cast<char *>(args.e) = smem[args.M];
  }
};

}  // namespace ck_tile
