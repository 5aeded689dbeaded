// Numbers and vectors of them, by their width: what every other file of the family is written with.
#pragma once

namespace to {

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float F2 __attribute__((ext_vector_type(2)));
typedef float F4 __attribute__((ext_vector_type(4)));
typedef float F16 __attribute__((ext_vector_type(16)));
typedef u32 U2 __attribute__((ext_vector_type(2)));
typedef u32 U4 __attribute__((ext_vector_type(4)));

} // namespace to
