/* What a compiled CPU kernel exports, and the one structure that it takes.
 *
 * A kernel library needs nothing but libc's memory functions and clock_gettime, which the process that
 * loads it has. Extents are in elements. For 2D problems the depth members are 1 (pad: 0).
 */
#ifndef TILE_ORACLE_CPU_ABI_H
#define TILE_ORACLE_CPU_ABI_H

#include <stdint.h>

#define TILE_ORACLE_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

typedef struct to_conv_args {
    const void *in0;  /* forward: X   bwd_data: dY  bwd_weight: X  */
    const void *in1;  /* forward: W   bwd_data: W   bwd_weight: dY */
    void *out;        /* forward: Y   bwd_data: dX  bwd_weight: dW */
    void *workspace;  /* 64-byte aligned, to_workspace_bytes() long */
    int64_t N, C, K, G; /* C and K are totals over the groups */
    int64_t Di, Hi, Wi;
    int64_t Z, Y, X;
    int64_t Do, Ho, Wo;
    int64_t stride_d, stride_h, stride_w;
    int64_t pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w;
} to_conv_args;

#define TO_OK 0
#define TO_UNSUPPORTED 1

__attribute__((visibility("default"))) int32_t to_abi_version(void);
/* Bytes of scratch memory for this problem. */
__attribute__((visibility("default"))) int64_t to_workspace_bytes(const to_conv_args *args);
/* Runs once, single-threaded. TO_OK, or TO_UNSUPPORTED with nothing written. */
__attribute__((visibility("default"))) int32_t to_launch(const to_conv_args *args);
/* Runs `count` times and stores the nanoseconds of each run (CLOCK_MONOTONIC). */
__attribute__((visibility("default"))) int32_t to_time(const to_conv_args *args, int64_t count, uint64_t *nanoseconds);

#ifdef __cplusplus
}
#endif

#endif
