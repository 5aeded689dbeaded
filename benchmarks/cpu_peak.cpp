// The fp32 multiply-add peak of one core: sums that never leave their registers.
#define TO_FP32 0
#define TO_BF16 1
#define TO_DTYPE TO_FP32
#include "vector.hpp"

struct Clock {
  long seconds, nanoseconds;
};
extern "C" int clock_gettime(int, Clock *);

using namespace to;

// As many independent sums as latency times throughput asks for and the register file holds.
constexpr int SUMS = REGISTERS == 32 ? 24 : 12;

// Runs `rounds` rounds of SUMS vector multiply-adds. Stores the nanoseconds (CLOCK_MONOTONIC); returns
// the floating-point operations, two a lane and multiply-add. `seed` and `sink`: for the compiler alone.
extern "C" __attribute__((visibility("default"))) int64_t fma_rounds(int64_t rounds, float seed, float *sink,
                                                                     uint64_t *nanoseconds) {
  V sum[SUMS];
  V a = splat(seed), b = splat(1.0f - seed);
  TO_UNROLL
  for (int i = 0; i < SUMS; ++i) sum[i] = splat((float)i);
  Clock start, stop;
  clock_gettime(1, &start);
  TO_NO_UNROLL
  for (int64_t r = 0; r < rounds; ++r) {
    TO_UNROLL
    for (int i = 0; i < SUMS; ++i) sum[i] = sum[i] * a + b;
  }
  V total = V{};
  TO_UNROLL
  for (int i = 0; i < SUMS; ++i) total += sum[i];
  *sink = sum_lanes(total);
  clock_gettime(1, &stop);
  *nanoseconds = (uint64_t)((stop.seconds - start.seconds) * 1000000000l + stop.nanoseconds - start.nanoseconds);
  return rounds * SUMS * VW * 2;
}
