// What both architectures' emulated instructions declare in the same way: where things lie, and what is exported.
#pragma once

#define TO_DEVICE __attribute__((always_inline)) inline
#define TO_SHARED
#define TO_GLOBAL
// Loops stay loops: an emulator is not in a hurry, and what compiles them is.
#define TO_UNROLL _Pragma("clang loop unroll(disable)")
#define TO_ROLLED _Pragma("clang loop unroll(disable)")

#define TO_LDS_VARIABLE static __attribute__((section("emulated_lds"), used))
#define TO_VISIBLE __attribute__((visibility("default")))
#define TO_CONSTANT __attribute__((section("emulated_constants")))
#define TO_VISIBLE_CONSTANT TO_CONSTANT
#define TO_KERNEL(threads) TO_VISIBLE void
#define TO_KERNEL_OF_WAVES(threads, waves) TO_VISIBLE void

// Of sections that a module does not have, the linker's symbols are null.
extern "C" {
extern __attribute__((weak, visibility("hidden"))) unsigned char __start_emulated_lds[], __stop_emulated_lds[];
extern __attribute__((weak, visibility("hidden"))) const unsigned char __start_emulated_constants[],
    __stop_emulated_constants[];
}

// Calls a kernel with the values that an array of addresses points to, as a GPU's driver does.
template <class> struct emu_caller;
template <class... A> struct emu_caller<void(A...)> {
  template <unsigned long... I> struct Indices {};
  template <class, unsigned long... I> using IndicesOf = Indices<I...>;
  template <unsigned long... I>
  __attribute__((no_sanitize("thread"))) static void call(void (*kernel)(A...), void *const *values, Indices<I...>) {
    kernel(*(const A *)values[I]...);
  }
  using All = __make_integer_seq<IndicesOf, unsigned long, sizeof...(A)>;
  // Bytes of each argument, for who must keep their values; returns how many there are.
  __attribute__((no_sanitize("thread"))) static int sizes(int *bytes) {
    const int each[] = {(int)sizeof(A)...};
    for (unsigned long i = 0; i < sizeof...(A); ++i) bytes[i] = each[i];
    return (int)sizeof...(A);
  }
};
#define TO_LAUNCHER(kernel)                                                          \
  extern "C" TO_VISIBLE void launch_##kernel(const void *values) {                   \
    using Caller = emu_caller<decltype(kernel)>;                                     \
    Caller::call(kernel, (void *const *)values, Caller::All{});                      \
  }                                                                                  \
  extern "C" TO_VISIBLE int arguments_of_##kernel(int *bytes) {                      \
    return emu_caller<decltype(kernel)>::sizes(bytes);                               \
  }

#define TO_EMULATED_MODULE(lanes, static_lds_bytes)                                              \
  extern "C" TO_VISIBLE __attribute__((used)) const emu_module to_emulated_module = {            \
      lanes, static_lds_bytes, __start_emulated_lds, __stop_emulated_lds,                        \
      __start_emulated_constants, __stop_emulated_constants};
