/* What the libraries in this folder share: libc, which the process has, a record of calls, numbers of 16 bits, and the
 * emulated GPU's stream, on which their work runs as a function of the host. */
typedef unsigned long size_t;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

int dprintf(int, const char *, ...);
int open(const char *, int, ...);
char *getenv(const char *);
void *malloc(size_t);
void free(void *);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
void abort(void);
int atoi(const char *);
double tanh(double);
void *dlopen(const char *, int);
void *dlsym(void *, const char *);

#define API __attribute__((visibility("default")))
static void *zeroed(size_t bytes) { return memset(malloc(bytes), 0, bytes); }
enum { R_32F = 0, R_16F = 2, R_16BF = 14, R_8F_E4M3 = 28, R_8F_E5M2 = 29 }; /* cudaDataType_t */

static void note(const char *name, int a, int b) {
  static int record = -1;
  const char *path = getenv("RECORD_TO");
  if (!path) return;
  if (record < 0) record = open(path, 02 | 0100 | 02000, 0600);
  dprintf(record, "%s %d %d\n", name, a, b);
}

/* Runs a function on the stream of the emulated GPU, at once or in a graph; the function says what it takes. */
static void (*takes_ns)(double);
static int run_on(void *stream, void (*function)(void *), void *data) {
#ifdef OVER_HIP
  void *driver = dlopen("libamdhip64.so", 2);
  int (*launch)(void *, void (*)(void *), void *) = dlsym(driver, "hipLaunchHostFunc");
#else
  void *driver = dlopen("libcuda.so.1", 2);
  int (*launch)(void *, void (*)(void *), void *) = dlsym(driver, "cuLaunchHostFunc");
#endif
  takes_ns = dlsym(driver, "emulated_host_takes_ns");
  return launch(stream, function, data);
}

/* ---- numbers ---- */

static float as_float(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
static u32 as_bits(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
static float half_to_float(u16 h) {
  u32 sign = (u32)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent) return as_float(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = (float)fraction / 16777216.0f;
  return sign ? -tiny : tiny;
}
static u16 float_to_half(float f) { /* the nearest of all, ties to even, by looking for it */
  u16 sign = f < 0 ? 0x8000 : 0;
  float positive = f < 0 ? -f : f;
  u16 low = 0, high = 0x7c00;
  if (!(positive == positive)) return 0x7e00;
  while (high - low > 1) {
    u16 middle = (low + high) / 2;
    if (half_to_float(middle) <= positive) low = middle; else high = middle;
  }
  double below = positive - (double)half_to_float(low);
  double above = (high == 0x7c00 ? 65536.0 : (double)half_to_float(high)) - positive;
  return sign | (above < below || (above == below && low % 2) ? high : low);
}
static float byte_to_float(u8 byte, int type) { /* e4m3's exponents are 7 + 8 below those of 16 bits, e5m2's are theirs */
  if (type == R_8F_E5M2) return half_to_float((u16)byte << 8);
  return 256 * half_to_float((u16)(byte & 0x80) << 8 | (byte & 0x7f) << 7);
}
static float load(const void *from, u64 at, int type) {
  if (type == R_32F) return ((const float *)from)[at];
  if (type == R_8F_E4M3 || type == R_8F_E5M2) return byte_to_float(((const u8 *)from)[at], type);
  u16 bits = ((const u16 *)from)[at];
  return type == R_16F ? half_to_float(bits) : as_float((u32)bits << 16);
}
static void store(void *to, u64 at, int type, float f) {
  if (type == R_32F) ((float *)to)[at] = f;
  else if (type == R_16F) ((u16 *)to)[at] = float_to_half(f);
  else { u32 bits = as_bits(f); ((u16 *)to)[at] = (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); }
}
