// Numbers and vectors of them, by their width: what every other file of the family is written with.
#pragma once

// clang has vectors of its own. nvcc has none: there (and where a test asks for them) they are classes, with the names,
// members and alignment that the family uses.
#if defined(__NVCC__)
#define TO_VECTOR_CLASSES 1
#define TO_VECTOR_MEMBER __attribute__((device))
#elif defined(TO_VECTOR_CLASSES)
#define TO_VECTOR_MEMBER
#endif

namespace to {

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#if defined(TO_VECTOR_CLASSES)
template <class T, int N> struct VectorClass;
template <class T> struct alignas(2 * sizeof(T)) VectorClass<T, 2> {
  T x, y;
  TO_VECTOR_MEMBER T operator[](int i) const { return i ? y : x; }
};
template <class T> struct alignas(4 * sizeof(T)) VectorClass<T, 4> {
  T x, y, z, w;
  TO_VECTOR_MEMBER T operator[](int i) const { return i < 2 ? (i ? y : x) : (i == 2 ? z : w); }
};
typedef VectorClass<float, 2> F2;
typedef VectorClass<float, 4> F4;
typedef VectorClass<u32, 2> U2;
typedef VectorClass<u32, 4> U4;
#undef TO_VECTOR_MEMBER
#else
typedef float F2 __attribute__((ext_vector_type(2)));
typedef float F4 __attribute__((ext_vector_type(4)));
typedef float F16 __attribute__((ext_vector_type(16)));
typedef u32 U2 __attribute__((ext_vector_type(2)));
typedef u32 U4 __attribute__((ext_vector_type(4)));
#endif

} // namespace to
