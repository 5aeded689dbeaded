// The exported functions, over what the generated part above the #include of this file has declared in
// ck_tile::to_adapter: kernel_name, op, direction, Partitioner, Only (an Instance), Args, host_args; and, where the
// length of the loop is a template argument, Instance<HotLoop, Tail> and TO_CK_TAIL_HANDLER.
//
// CK Tile's own launch helpers change more often than its kernels, so the kernels are entered from here.
#pragma once

#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
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

#ifdef TO_CK_TAIL_HANDLER
// Depth of the GEMM of one group, by which CK Tile's host code chooses among a kernel's instances.
inline index_t depth(const to_ck_problem &p) {
  if (op == TO_CK_GEMM) return p.gemm_k;
  return direction == 'f' ? p.C / p.G * p.Z * p.Y * p.X : p.N * p.Do * p.Ho * p.Wo;
}
#endif

// Calls run(Found<Instance<...>>) with the instance that this problem needs.
template <class Run>
int32_t with_kernel([[maybe_unused]] const to_ck_problem &p, Run run) {
#ifdef TO_CK_TAIL_HANDLER
  using Tails = TO_CK_TAIL_HANDLER<typename Only::Problem>;
  const index_t loops = Partitioner::GetLoopNum(depth(p));
  int32_t status = -1;
  Tails::TailHandler(
      [&](auto hot, auto tail) {
        status = run(Found<Instance<decltype(hot)::value, decltype(tail)::value>>{});
      },
      Tails::BlockHasHotloop(loops), Tails::GetBlockLoopTailNum(loops));
  return status;
#else
  return run(Found<Only>{});
#endif
}

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

// bwd_data: with some strides there are pixels that no filter tap reaches, and no workgroup writes them.
inline bool leaves_gaps(const to_ck_problem &p) {
  auto gap = [](int stride, int dilation, int taps) {
    int a = stride, b = dilation;
    while (b) {
      const int rest = a % b;
      a = b;
      b = rest;
    }
    return stride / a > taps || a > 1;
  };
  return direction == 'd' && (gap(p.stride_d, p.dilation_d, p.Z) || gap(p.stride_h, p.dilation_h, p.Y) ||
                              gap(p.stride_w, p.dilation_w, p.X));
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
      const KernelArgs<Kernel> kargs = Kernel::MakeKernelArgs(host_args(*problem));
      if (!Kernel::IsSupportedArgument(kargs))
        return refuse(why, why_bytes, "CK Tile's IsSupportedArgument says no: " + said.text());
      const dim3 grid = grid_of<Type>(*problem, kargs);
      if (!grid.x || !grid.y || !grid.z) return refuse(why, why_bytes, "CK Tile makes a grid without workgroups of it");
      *plan = {0, {int32_t(grid.x), int32_t(grid.y), int32_t(grid.z)}, Type::threads,
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
      const KernelArgs<Kernel> kargs = Kernel::MakeKernelArgs(host_args(*problem));
      const dim3 grid = grid_of<Type>(*problem, kargs);
      const auto kernel = Type::entry();
      kernel<<<grid, dim3(Type::threads), 0, on>>>(kargs);
      return hipGetLastError();
    });
  } catch (const std::exception &error) {
    std::fprintf(stderr, "CK Tile: %s\n", error.what());
    return -1;
  }
}
