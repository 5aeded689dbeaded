// Behind a kernel's translation unit: the implicit GEMM that a launch would compute, carried out on the host in whole
// numbers by CK Tile's own descriptors, which the host part of the library plans and the device only reads.
#pragma once

#include <algorithm>
#include <vector>

namespace ck_tile::to_adapter {

// Where a descriptor puts an element; -1: in padding.
template <class Descriptor>
int64_t place(const Descriptor &descriptor, index_t row, index_t column) {
  const auto at = make_tensor_coordinate(descriptor, make_multi_index(row, column));
  return coordinate_has_valid_offset_assuming_top_index_is_valid(descriptor, at) ? int64_t(at.get_offset()) : -1;
}

template <class Descriptor>
std::vector<int64_t> places(const Descriptor &descriptor, bool turned, index_t rows, index_t columns) {
  std::vector<int64_t> found;
  for (index_t i = 0; i < rows; i++)
    for (index_t j = 0; j < columns; j++) found.push_back(turned ? place(descriptor, j, i) : place(descriptor, i, j));
  return found;
}

// One GEMM. a_turned, b_turned: whether the depth comes first in the descriptor.
template <class A, class B, class C>
void multiply(const A &a_of, bool a_turned, const int32_t *a, const B &b_of, bool b_turned, const int32_t *b,
              const C &c_of, int32_t *c, index_t m, index_t n, index_t k) {
  const auto at_a = places(a_of, a_turned, m, k), at_b = places(b_of, b_turned, n, k);
  for (index_t i = 0; i < m; i++)
    for (index_t j = 0; j < n; j++) {
      const int64_t to = place(c_of, i, j);
      if (to < 0) continue;
      int32_t sum = 0;
      for (index_t l = 0; l < k; l++) {
        const int64_t from_a = at_a[i * k + l], from_b = at_b[j * k + l];
        if (from_a >= 0 && from_b >= 0) sum += a[from_a] * b[from_b];
      }
      c[to] = sum;
    }
}

// What all workgroups of a launch compute. The data are int32_t.
template <class Kargs>
void carry_out(const Kargs &kargs, dim3 grid) {
  auto at = [](auto *pointer, int64_t offset) {
    using Number = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(pointer)>>, const int32_t, int32_t>;
    return static_cast<Number *>(pointer) + offset;
  };
  for (unsigned y = 0; y < grid.y; y++) {
    const int64_t a = kargs.group_stride_a * y, b = kargs.group_stride_b * y, c = kargs.group_stride_c * y;
    if constexpr (direction == 'f') {
      multiply(kargs.a_grid_desc_m_k, false, at(kargs.in_ptr, a), kargs.b_grid_desc_n_k, false, at(kargs.wei_ptr, b),
               kargs.c_grid_desc_m_n, at(kargs.out_ptr, c), kargs.GemmM, kargs.GemmN, kargs.GemmK);
    } else if constexpr (direction == 'w') {
      auto weights = [&](const auto &a_of, const auto &b_of, bool turned) {
        multiply(a_of, turned, at(kargs.out_ptr, a), b_of, turned, at(kargs.in_ptr, b), kargs.c_grid_desc_m_n,
                 at(kargs.wei_ptr, c), kargs.GemmM, kargs.GemmN, kargs.GemmK);
      };
      if constexpr (requires { kargs.a_grid_desc_k_m; })
        weights(kargs.a_grid_desc_k_m, kargs.b_grid_desc_k_n, true);
      else  // mid 2025
        weights(kargs.a_grid_desc_m_k, kargs.b_grid_desc_n_k, false);
    } else {
      for (index_t gemm = 0; gemm < kargs.gemm_count; gemm++) {
        const auto &a_of = kargs.a_grid_descs_m_k[gemm];
        const auto &c_of = kargs.c_grid_descs_m_n[gemm];
        multiply(a_of, false, at(kargs.out_ptr, a), kargs.b_grid_descs_n_k[gemm], true, at(kargs.wei_ptr, b), c_of,
                 at(kargs.in_ptr, c), c_of.get_length(number<0>{}), c_of.get_length(number<1>{}),
                 a_of.get_length(number<1>{}));
      }
    }
  }
}

}  // namespace ck_tile::to_adapter

// What of a problem CK Tile's host code says no to: 0 nothing, 1 it does not take it, 2 it throws.
TO_CK_EXPORT int32_t carry_out_implicit_gemm(const to_ck_problem *problem) {
  using namespace ck_tile::to_adapter;
  try {
    to_ck_plan_t plan;
    char why[1024];
    if (const auto status = to_ck_plan(problem, &plan, why, sizeof why)) return status;
    using Kernel = typename Only::Kernel;
    const auto kargs = kernel_args<Kernel>(*problem);
    // As the adapter does before it starts the kernel.
    if (leaves_gaps(*problem)) std::fill_n(static_cast<int32_t *>(problem->out), output_bytes(*problem) / sizeof(T), 0);
    carry_out(kargs, Kernel::GridSize(kargs));
    return 0;
  } catch (const std::exception &) {
    return 2;
  }
}
