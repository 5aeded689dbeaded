/* Kernels for tests: a naive convolution that is right (forward, 2D, fp32), and ways to misbehave.
 *
 * TO_TILE_M chooses the behaviour (evil_target.py names them); the other fields only tell kernels apart.
 * TO_EVIL_FLAG, an environment variable, names the file by which a kernel remembers things, or a test
 * tells it something.
 */
#include "abi.h"

extern "C" {
long write(int fd, const void *data, unsigned long count);
int open(const char *path, int flags, ...);
int close(int fd);
int access(const char *path, int mode);
char *getenv(const char *name);
void exit(int code);
void abort(void);

enum {
    GOOD = 1,
    SEGFAULT = 2,
    LOOP = 3,
    WRONG = 4,
    NAN_VALUE = 5,
    UNWRITTEN = 6,
    EXIT_0 = 7,
    PRINTS = 8,
    PRINTS_FOR_EVER = 9,
    ABORT = 10,
    OVERRUN = 11,
    WRITES_INPUT = 12,
    UNDERRUN = 13,
    ERROR_CODE = 14,
    REFUSES = 15,
    NO_WORKSPACE_BYTES = 16,
    COMPILE_ERROR = 17,
    BREAKS_DEVICE = 18,
    CRASHES_WHEN_FLAGGED = 19,
    GARBLES_PIPE = 20,
    CLOSES_FILES = 21,
    TIME_ERROR = 22,
    HUGE_WORKSPACE = 24,
    WORKSPACE_UNDERRUN = 25,
    OTHER_ABI = 26,
    LOOPS_WHEN_TIMED = 27,
    NEEDS_UNKNOWN = 30,
    SLOW = 31,
    WAITS_FOR_FLAG = 32,
    NEGATIVE_ZERO = 33,
    JITTERS_UNTIL_FLAGGED = 34,
    SLOW_AND_WRONG = 35,
    SLOW_AND_WRONG_LATER = 36,
};

/* An fp32 kernel runs four times when it is checked, and then it is timed. */
static int launches = 0;
#define TIMED (launches > 4)

#if TO_TILE_M == 17
#error "this kernel does not compile"
#endif

static void die(void) { *(volatile int *)8 = 1; }

static bool flagged(void) {
    const char *path = getenv("TO_EVIL_FLAG");
    return path && access(path, 0) == 0;
}

static void raise_flag(void) {
    const char *path = getenv("TO_EVIL_FLAG");
    if (path) close(open(path, 0101, 0644)); /* O_WRONLY | O_CREAT */
}

static void print_garbage(long times) {
    static const char text[] = "\x00\xff\xfe{\"done\":1}\n%s%n <b>&amp; garbage \x1b[31m";
    for (long i = 0; times < 0 || i < times; ++i)
        write(1 + i % 2, text, sizeof text);
}

static volatile int sink;

static void convolve(const to_conv_args *a) {
    const float *x = (const float *)a->in0, *w = (const float *)a->in1;
    float *y = (float *)a->out;
    const int64_t c = a->C / a->G, k = a->K / a->G;
    for (int64_t n = 0; n < a->N; ++n)
        for (int64_t ho = 0; ho < a->Ho - (TO_TILE_M == UNWRITTEN); ++ho)
            for (int64_t wo = 0; wo < a->Wo; ++wo)
                for (int64_t g = 0; g < a->G; ++g)
                    for (int64_t q = 0; q < k; ++q) {
                        float sum = 0;
                        for (int64_t r = 0; r < a->Y; ++r)
                            for (int64_t s = 0; s < a->X; ++s) {
                                const int64_t hi = ho * a->stride_h + r * a->dilation_h - a->pad_h;
                                const int64_t wi = wo * a->stride_w + s * a->dilation_w - a->pad_w;
                                if (hi < 0 || wi < 0 || hi >= a->Hi || wi >= a->Wi) continue;
                                const float *xs = x + (((n * a->Hi + hi) * a->Wi + wi) * a->G + g) * c;
                                const float *ws = w + (((g * k + q) * a->Y + r) * a->X + s) * c;
                                for (int64_t e = 0; e < c; ++e) sum += xs[e] * ws[e];
                            }
                        y[(((n * a->Ho + ho) * a->Wo + wo) * a->G + g) * k + q] = sum;
                    }
}

/* Variants are different binaries. */
extern const int32_t to_variant;
const int32_t to_variant = TO_TILE_N;

int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION + (TO_TILE_M == OTHER_ABI); }

#if TO_TILE_M != 16
int64_t to_workspace_bytes(const to_conv_args *) {
    return TO_TILE_M == HUGE_WORKSPACE ? INT64_MAX / 2 : TO_TILE_M == WORKSPACE_UNDERRUN ? 64 : 0;
}
#endif

#if TO_TILE_M == 30
int32_t nobody_has_this(void);
#endif

int32_t to_launch(const to_conv_args *a) {
    const int64_t values = a->N * a->Ho * a->Wo * a->K;
    float *y = (float *)a->out;
    const bool slow = TO_TILE_M == SLOW || TO_TILE_M == SLOW_AND_WRONG || TO_TILE_M == SLOW_AND_WRONG_LATER;
    const bool sturdy = TO_TILE_M == CRASHES_WHEN_FLAGGED || TO_TILE_M == WAITS_FOR_FLAG || slow ||
                        TO_TILE_M == JITTERS_UNTIL_FLAGGED;
    if (!sturdy && flagged()) die();
    ++launches;
    if (TO_TILE_M == TIME_ERROR && TIMED) return 5;
    if (TO_TILE_M == CRASHES_WHEN_FLAGGED && TIMED && flagged()) die();
    while (TO_TILE_M == LOOPS_WHEN_TIMED && TIMED) sink = 1;
    switch (TO_TILE_M) {
    case SEGFAULT: die(); break;
    case LOOP: for (;;) sink = 1;
    case EXIT_0: exit(0); break;
    case ABORT: abort(); break;
    case PRINTS: print_garbage(20000); break;
    case PRINTS_FOR_EVER: print_garbage(-1); break;
    case ERROR_CODE: return 7;
    case REFUSES: return TO_UNSUPPORTED;
    case BREAKS_DEVICE: raise_flag(); die(); break;
    case GARBLES_PIPE:
        for (int fd = 3; fd < 4096; ++fd) write(fd, "no message at all\n", 18);
        break;
    case CLOSES_FILES:
        for (int fd = 3; fd < 4096; ++fd) close(fd);
        break;
    case WORKSPACE_UNDERRUN: ((char *)a->workspace)[-1] = 1; break;
    case WRITES_INPUT: *(volatile float *)a->in0 = 1; break;
#if TO_TILE_M == 30
    case NEEDS_UNKNOWN: sink = nobody_has_this(); break;
#endif
    }
    while (TO_TILE_M == WAITS_FOR_FLAG && !flagged()) sink = 1;
    const bool steady = TO_TILE_M != JITTERS_UNTIL_FLAGGED || flagged();
    // Every other call jitters by so much that other work on the machine cannot fill the gap.
    const int repeats = slow ? 8 : !steady && launches % 2 ? 40 : 1;
    for (int repeat = 0; repeat < repeats; ++repeat) convolve(a);
    switch (TO_TILE_M) {
    case SLOW_AND_WRONG_LATER: if (launches == 1) break; /* its first run is right */
    case SLOW_AND_WRONG:
    case WRONG: y[values - 1] = 1 + 2 * y[values - 1]; break; /* at any exponent */
    case NAN_VALUE: y[values / 2] = __builtin_nanf(""); break;
    case OVERRUN: ((volatile float *)y)[values] = 1; break;
    case UNDERRUN: ((volatile float *)y)[-1] = 1; break;
    case NEGATIVE_ZERO:
        for (int64_t i = 0; i < values; ++i) if (y[i] == 0) y[i] = -0.0f;
        break;
    }
    return TO_OK;
}
}
