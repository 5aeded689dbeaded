// The exported functions, over what the generated part above the #include of this file has declared in
// ck_tile::to_adapter: kernel_name, op, direction, Partitioner, Only (an Instance), Args, host_args; and, where the
// length of the loop is a template argument, Instance<HotLoop, Tail> and TO_CK_TAIL_HANDLER. Where the kernel wants it:
// TO_CK_TWO_STAGE and Convert, the kernel that rounds the sums; TO_CK_SPLIT_IMAGE; TO_CK_TAKES_MORE_STEPS, if an
// instance for a long loop is right for shorter ones, too.
//
// CK Tile's own launch helpers change more often than its kernels, so the kernels are entered from here.
#pragma once

#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace ck_tile::to_adapter {

template <class Kernel>
using KernelArgs = std::remove_cv_t<decltype(Kernel::MakeKernelArgs(std::declval<const Args &>()))>;

// Some versions' GEMM kernels do not say it; their pipelines do. As template arguments, since in some versions what
// says it is for the device alone, and the host may evaluate that only as a constant.
template <class Of>
constexpr int lds_bytes_of() {
  if constexpr (requires { Of::Kernel::GetSmemSize(); }) {
    return std::integral_constant<int, Of::Kernel::GetSmemSize()>::value;
  } else {
    constexpr int pipeline = std::integral_constant<int, Of::Pipeline::GetSmemSize()>::value;
    constexpr int epilogue = std::integral_constant<int, Of::Epilogue::GetSmemSize()>::value;
    return pipeline > epilogue ? pipeline : epilogue;
  }
}

template <class Kernel, int threads, class Kargs>
__global__ __launch_bounds__(threads, 1) void to_ck_entry(Kargs kargs) {
#if defined(__HIP_DEVICE_COMPILE__)
  Kernel{}(kargs);
#else
  static_cast<void>(kargs);
#endif
}

template <class Type>
struct Found {
  using Of = Type;
  using Kernel = typename Type::Kernel;
  static constexpr int threads = Type::Pipeline::BlockSize;
  static auto entry() { return to_ck_entry<Kernel, threads, KernelArgs<Kernel>>; }
};

inline int gcd(int a, int b) {
  while (b) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

#ifdef TO_CK_TAIL_HANDLER
// Depth of the GEMM of one group, by which CK Tile's host code chooses among a kernel's instances.
inline index_t depth(const to_ck_problem &p) {
  if (op == TO_CK_GEMM) return p.gemm_k;
  if (direction == 'w') return p.N * p.Do * p.Ho * p.Wo;
  return (direction == 'f' ? p.C : p.K) / p.G * p.Z * p.Y * p.X;
}

// bwd_data is a GEMM for each of the places that a stride leaves between two taps; this is run with each one's depth.
template <class Run>
void each_depth(const to_ck_problem &p, Run run) {
  if (direction != 'd') return run(depth(p));
  auto phases = [](int stride, int dilation) { return stride / gcd(stride, dilation); };
  const int z = phases(p.stride_d, p.dilation_d), y = phases(p.stride_h, p.dilation_h);
  const int x = phases(p.stride_w, p.dilation_w);
  for (int i = 0; i < z && i < p.Z; i++)
    for (int j = 0; j < y && j < p.Y; j++)
      for (int k = 0; k < x && k < p.X; k++)
        run(p.K / p.G * ((p.Z - i + z - 1) / z) * ((p.Y - j + y - 1) / y) * ((p.X - k + x - 1) / x));
}
#endif

// Calls run(Found<Instance<...>>) with the instance that this problem needs.
template <class Run>
int32_t with_kernel([[maybe_unused]] const to_ck_problem &p, Run run) {
#ifdef TO_CK_TAIL_HANDLER
  using Tails = TO_CK_TAIL_HANDLER<typename Only::Problem>;
  const index_t loops = Partitioner::GetLoopNum(depth(p));
  auto hot = Tails::BlockHasHotloop(loops);
  auto tail = Tails::GetBlockLoopTailNum(loops);
#ifndef TO_CK_TAKES_MORE_STEPS
  bool first = true, same = true;
  each_depth(p, [&](index_t each) {
    const index_t steps = Partitioner::GetLoopNum(each);
    const auto own_hot = Tails::BlockHasHotloop(steps);
    const auto own_tail = Tails::GetBlockLoopTailNum(steps);
    if (first) hot = own_hot, tail = own_tail;
    same = same && hot == own_hot && tail == own_tail;
    first = false;
  });
  if (!same)
    throw std::runtime_error("with this stride bwd_data is several GEMMs whose loops end in different ways, and the "
                             "pipeline has the end compiled in");
#endif
  int32_t status = -1;
  Tails::TailHandler(
      [&](auto hot_loop, auto tail_number) {
        status = run(Found<Instance<decltype(hot_loop)::value, decltype(tail_number)::value>>{});
      },
      hot, tail);
  return status;
#else
  return run(Found<Only>{});
#endif
}

template <class Kernel>
KernelArgs<Kernel> kernel_args(const to_ck_problem &p) {
  KernelArgs<Kernel> kargs = Kernel::MakeKernelArgs(host_args(p));
#ifdef TO_CK_SPLIT_IMAGE
  // CK Tile's host code cuts images of more than 2 GiB, which are not passed to it; any other is one piece.
  kargs.num_spatial_pieces = 1;
  auto &image = kargs.split_image;
  image.total_d = p.Do, image.total_h = p.Ho, image.total_w = p.Wo;
  image.total_spatial = p.Do * p.Ho * p.Wo;
  image.num_d_pieces = image.num_h_pieces = image.num_w_pieces = 1;
  image.pieces[0] = {0, index_t(Kernel::GridSize(kargs).x), 0, 0, 0, p.Do, p.Ho, p.Wo};
#endif
  return kargs;
}

inline int64_t workspace_bytes([[maybe_unused]] const to_ck_problem &p) {
#ifdef TO_CK_TWO_STAGE
  return int64_t(sizeof(float)) * p.K * (p.C / p.G) * p.Z * p.Y * p.X;
#else
  return 0;
#endif
}

#ifdef TO_CK_TWO_STAGE
template <class Dims, class From>
__global__ __launch_bounds__(Convert::kBlockSize, 1) void to_ck_convert(Dims lengths, Dims strides, From from, T *to) {
#if defined(__HIP_DEVICE_COMPILE__)
  Convert{}(lengths, strides, strides, from, to);
#else
  static_cast<void>(lengths), static_cast<void>(strides), static_cast<void>(from), static_cast<void>(to);
#endif
}

// The second stage: rounds the sums in the workspace to the output.
inline hipError_t convert(const to_ck_problem &p, hipStream_t on) {
  const index_t rows = p.K, columns = p.C / p.G * p.Z * p.Y * p.X;
  constexpr index_t each = Convert::Problem::BlockShape::kBlockM;
  const dim3 grid((rows * columns + each - 1) / each);
  const auto from = ck_tile::make_tuple(static_cast<float *>(p.workspace));
  to_ck_convert<<<grid, dim3(Convert::kBlockSize), 0, on>>>(ck_tile::make_tuple(rows, columns),
                                                            ck_tile::make_tuple(columns, index_t(1)), from,
                                                            static_cast<T *>(p.out));
  return hipGetLastError();
}
#endif

inline int compute_units() {
  int device = 0, units = 0;
  if (hipGetDevice(&device) != hipSuccess ||
      hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device) != hipSuccess)
    return 0;
  return units;
}

template <class Of>
dim3 grid_of([[maybe_unused]] const to_ck_problem &p, [[maybe_unused]] const KernelArgs<typename Of::Kernel> &kargs) {
  using Kernel = typename Of::Kernel;
  if constexpr (op != TO_CK_GEMM) {
    return Kernel::GridSize(kargs);
  } else if constexpr (persistent) {
    // As many workgroups as the device holds at once; they take further tiles by themselves.
    int each = 0;
    auto error = hipOccupancyMaxActiveBlocksPerMultiprocessor(&each, reinterpret_cast<const void *>(Of::entry()),
                                                              Of::threads, 0);
    return error == hipSuccess ? dim3(compute_units() * each, 1, 1) : dim3(0, 1, 1);
  } else {
    return Kernel::GridSize(p.gemm_m, p.gemm_n, 1);
  }
}

// bwd_data: with some strides there are pixels that no filter tap reaches, and no workgroup writes them: all of those
// between two taps, or, with a dilation, some before the first place of a later tap.
inline bool leaves_gaps(const to_ck_problem &p) {
  auto gap = [](int stride, int dilation, int taps, int pad) {
    const int common = gcd(stride, dilation), phases = stride / common;
    return phases > taps || common > 1 || (phases - 1) * dilation - stride >= pad;
  };
  return direction == 'd' && (gap(p.stride_d, p.dilation_d, p.Z, p.pad_d) ||
                              gap(p.stride_h, p.dilation_h, p.Y, p.pad_h) ||
                              gap(p.stride_w, p.dilation_w, p.X, p.pad_w));
}

inline size_t output_bytes(const to_ck_problem &p) {
  return sizeof(T) * size_t(p.N) * p.Di * p.Hi * p.Wi * p.C;
}

// CK Tile says on std::cerr why it does not take an argument, some of it only while its logging is on.
class Overheard {
 public:
  Overheard() : cerr_(std::cerr.rdbuf(said_.rdbuf())), cout_(std::cout.rdbuf(chat_.rdbuf())) {
#ifdef CK_TILE_ENV
    was_on_ = EnvIsEnabled(CK_TILE_ENV(CK_TILE_LOGGING));
    UpdateEnvVar(CK_TILE_ENV(CK_TILE_LOGGING), true);
#endif
  }
  ~Overheard() {
#ifdef CK_TILE_ENV
    UpdateEnvVar(CK_TILE_ENV(CK_TILE_LOGGING), was_on_);
#endif
    std::cerr.rdbuf(cerr_);
    std::cout.rdbuf(cout_);
  }
  Overheard(const Overheard &) = delete;
  Overheard &operator=(const Overheard &) = delete;
  std::string text() const { return said_.str(); }

 private:
  std::ostringstream said_, chat_;
  std::streambuf *cerr_, *cout_;
  [[maybe_unused]] bool was_on_ = false;
};

inline int32_t refuse(char *why, size_t why_bytes, const std::string &text) {
  if (why_bytes) std::snprintf(why, why_bytes, "%s", text.c_str());
  return TO_CK_UNSUPPORTED;
}

}  // namespace ck_tile::to_adapter

TO_CK_EXPORT int32_t to_ck_abi_version() { return TO_CK_ABI_VERSION; }

TO_CK_EXPORT const char *to_ck_kernel() { return ck_tile::to_adapter::kernel_name; }

TO_CK_EXPORT int32_t to_ck_plan(const to_ck_problem *problem, to_ck_plan_t *plan, char *why, size_t why_bytes) {
  using namespace ck_tile::to_adapter;
  try {
    if (problem->op != op) return refuse(why, why_bytes, "the kernel is for another operation");
    const int32_t status = with_kernel(*problem, [&](auto found) -> int32_t {
      using Type = decltype(found);
      using Kernel = typename Type::Kernel;
      Overheard said;
      const KernelArgs<Kernel> kargs = kernel_args<Kernel>(*problem);
      if (!Kernel::IsSupportedArgument(kargs))
        return refuse(why, why_bytes, "CK Tile's IsSupportedArgument says no: " + said.text());
      const dim3 grid = grid_of<Type>(*problem, kargs);
      if (!grid.x || !grid.y || !grid.z) return refuse(why, why_bytes, "CK Tile makes a grid without workgroups of it");
      *plan = {workspace_bytes(*problem), {int32_t(grid.x), int32_t(grid.y), int32_t(grid.z)}, Type::threads,
               lds_bytes_of<typename Type::Of>(), leaves_gaps(*problem)};
      return TO_CK_OK;
    });
    return status < 0 ? refuse(why, why_bytes, "CK Tile has no instance for a loop of this length") : status;
  } catch (const std::exception &error) {
    return refuse(why, why_bytes, error.what());
  }
}

TO_CK_EXPORT int32_t to_ck_launch(const to_ck_problem *problem, void *stream) {
  using namespace ck_tile::to_adapter;
  try {
    const auto on = static_cast<hipStream_t>(stream);
    if (leaves_gaps(*problem)) {
      const auto error = hipMemsetAsync(problem->out, 0, output_bytes(*problem), on);
      if (error != hipSuccess) return error;
    }
    return with_kernel(*problem, [&](auto found) -> int32_t {
      using Type = decltype(found);
      using Kernel = typename Type::Kernel;
      const KernelArgs<Kernel> kargs = kernel_args<Kernel>(*problem);
      const dim3 grid = grid_of<Type>(*problem, kargs);
      const auto kernel = Type::entry();
      kernel<<<grid, dim3(Type::threads), 0, on>>>(kargs);
#ifdef TO_CK_TWO_STAGE
      if (const auto error = hipGetLastError(); error != hipSuccess) return error;
      return convert(*problem, on);
#else
      return hipGetLastError();
#endif
    });
  } catch (const std::exception &error) {
    std::fprintf(stderr, "CK Tile: %s\n", error.what());
    return -1;
  }
}
