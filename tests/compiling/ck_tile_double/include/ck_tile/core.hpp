#pragma once
#include <hip/hip_runtime.h>

#include <type_traits>

#define CK_TILE_HOST __host__
#define CK_TILE_DEVICE __device__

namespace ck_tile {

using index_t = int;
using bf16_t = unsigned short;
using half_t = _Float16;

template <index_t... Is>
struct sequence {};

template <class... Ts>
struct tuple {
  static constexpr index_t size() { return sizeof...(Ts); }
};

namespace element_wise {
struct PassThrough {};
}  // namespace element_wise

enum struct memory_operation_enum { set, atomic_add };

namespace tensor_layout {
namespace gemm {
struct RowMajor {};
struct ColumnMajor {};
}  // namespace gemm
namespace convolution {
struct NHWGC {};
struct GKYXC {};
struct NHWGK {};
struct NDHWGC {};
struct GKZYXC {};
struct NDHWGK {};
}  // namespace convolution
}  // namespace tensor_layout

}  // namespace ck_tile
