// An emulated GPU: runs one launch of a kernel that was compiled for this machine, and watches it.
//
// Lanes. Every lane of a workgroup is a fiber with a stack of its own. Workgroups run one after the other, and of
// one the waves: a wave runs until all its lanes stand at a barrier of the workgroup, so that waves are as far
// apart as barriers allow. Lanes of a wave run one after the other up to an instruction that they do together;
// the last one to arrive does it for all. Workgroups of odd number take their waves in the opposite order.
//
// Memory. Kernels are compiled with clang's instrumentation for race detectors (-fsanitize=thread), which calls
// __tsan_read4(address) and the like before every access that is not provably of a variable on the stack. These
// functions are this file's own. An access must lie within a buffer that the launch names (with the right to read or to
// write), within LDS as far as it was asked for, among the module's constants, or on the lane's own stack; and vectors
// must be aligned. LDS may not be read before it was written, and an element of an output is written once.
//
// Races in LDS. Barriers of the workgroup cut its time into epochs. Two accesses by different lanes to the same
// two bytes, of which one is a write, must be in different epochs, or the result depends on who comes first. A barrier
// begins an epoch only for what was released before it and acquired after it: a bare s_barrier of gfx950 does not.
// That is stricter than gfx950, whose lanes of one wave cannot overtake each other.
//
// Copies to LDS write nothing until they are waited for: the bytes hold a pattern (NaN of every format), and
// touching them is an error.
//
// A violation ends the launch, with a message that says who did what.

#include "emulator.hpp"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

extern "C" {
int snprintf(char *, decltype(sizeof(0)), const char *, ...);
void *mmap(void *, decltype(sizeof(0)), int, int, int, long);
int mprotect(void *, decltype(sizeof(0)), int);
void *memcpy(void *, const void *, decltype(sizeof(0)));
void *memmove(void *, const void *, decltype(sizeof(0)));
void *memset(void *, int, decltype(sizeof(0)));
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

// ---- what the launching side knows -------------------------------------------------------------------

enum { MAY_READ = 1, MAY_WRITE = 2, WRITES_ONCE = 4 };

struct emu_range {
  u8 *first;
  u64 bytes;
  u8 *written; // with WRITES_ONCE: a byte for every two bytes, zeros at first
  const char *name;
  int rights;
};

struct emu_launch {
  void (*entry)(const void *args);
  const emu_module *module;
  const void *args;
  const emu_range *ranges;
  int range_count;
  int grid[3];
  int threads;
  int dynamic_lds_bytes;
  char message[512];
};

// ---- fibers --------------------------------------------------------------------------------------------

// Saves the callee's registers on this stack, its stack pointer to *save, and goes on where `load` was saved.
extern "C" void emu_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
constexpr int SAVED_WORDS = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, %function
emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "lanes are switched by x86_64 or aarch64 instructions"
#endif

// ---- state -----------------------------------------------------------------------------------------------

namespace {

constexpr int MOST_LANES = 1024, MOST_WAVES = 32, MOST_COPIES = 256;
constexpr u64 STACK_BYTES = 256 << 10, PAGE = 64 << 10;
constexpr int MOST_LDS = 256 << 10, MOST_VARIABLES = 64 << 10;

struct Copy {
  u8 *to;
  const u8 *from;
  int bytes, live;
  u32 group;
};

// What a lane brings to an instruction of its wave, and what it takes away.
struct Operands {
  emu_u4 a, b, a_more, b_more;
  emu_f4 c;
  emu_f16 c16;
  const u8 *address;
  u8 *wave_base;
  int x, lane;
};

enum Kind { NONE, BARRIER, FIRST_LANE, FROM_LANE, COPY, WAIT, MFMA_16, MFMA_32, MFMA_DEEP, MMA, LDMATRIX };
const char *const kind_names[] = {"nothing",      "a barrier", "readfirstlane", "an exchange of lanes", "a copy to LDS",
                                  "a wait for copies", "mfma 16x16", "mfma 32x32", "mfma of fp8",    "mma.sync",             "ldmatrix"};

struct Lane {
  void *sp;
  u8 *stack;
  u32 epoch;
  bool released, ended;
  int thread;
  Copy copies[MOST_COPIES];
  int first_copy, copy_count;
  u32 open_group; // the group that copies join
  Operands with;
};

struct Wave {
  Kind kind;
  int parameter;
  int arrived, ended, next;
  bool at_barrier;
};

// Of two bytes of LDS.
struct Cell {
  u32 write_epoch, read_epoch;
  u16 writer, reader; // reader: MANY of them in read_epoch
  bool pending;
};
constexpr u16 MANY = 0xFFFF;

Lane lanes[MOST_LANES];
Wave waves[MOST_WAVES];
Cell cells[(MOST_LDS + MOST_VARIABLES) / 2];
float value_of_fp16[1 << 16], value_of_fp8[1 << 8];

emu_launch *launch;
Lane *now;
int block[3];
void *outside;
int lanes_per_wave, wave_count, wave_step, waves_at_barrier, waves_ended;
bool all_released;
u32 epoch = 1, first_epoch = 1; // of the launches so far; of this workgroup
int lds_bytes;
u8 *variables, *variables_end;
bool failed, trapped;
u64 accesses; // of all launches so far: the nearest thing to time that there is here

template <class... T> [[noreturn]] void fail(const char *format, T... values) {
  int used = snprintf(launch->message, sizeof launch->message, "workgroup (%d, %d, %d), lane %d: ", block[0], block[1],
                      block[2], now->thread);
  snprintf(launch->message + used, sizeof launch->message - used, format, values...);
  failed = true;
  void *nowhere;
  emu_switch(&nowhere, outside);
  __builtin_unreachable();
}

// ---- memory ----------------------------------------------------------------------------------------------

// The first cell of an address in LDS, or -1.
int cell_of(const u8 *p, u64 bytes) {
  i64 at = p - to_lds;
  if (at >= 0 && at + (i64)bytes <= lds_bytes) return (int)(at / 2);
  if (p >= variables && p + bytes <= variables_end) return (int)(MOST_LDS + (p - variables)) / 2;
  return -1;
}

int offset_of(int cell) { return cell * 2 - (cell * 2 >= MOST_LDS ? MOST_LDS : 0); }

void read_cell(int at) {
  Cell &c = cells[at];
  u16 me = now->thread;
  if (c.pending) fail("reads byte %d of LDS, where a copy is still under way (no wait for it)", offset_of(at));
  if (c.write_epoch < first_epoch) fail("reads byte %d of LDS, which nobody has written", offset_of(at));
  if (c.writer != me && c.write_epoch >= now->epoch)
    fail("reads byte %d of LDS, which lane %d writes, with no barrier in between", offset_of(at), c.writer);
  if (c.read_epoch < now->epoch) {
    c.read_epoch = now->epoch;
    c.reader = me;
  } else if (c.reader != me) {
    c.reader = MANY;
  }
}

void write_cell(int at) {
  Cell &c = cells[at];
  u16 me = now->thread;
  if (c.pending) fail("writes byte %d of LDS, where a copy is still under way", offset_of(at));
  if (c.writer != me && c.write_epoch >= now->epoch)
    fail("writes byte %d of LDS, which lane %d writes too, with no barrier in between", offset_of(at), c.writer);
  if (c.read_epoch >= now->epoch && c.reader != me)
    fail("writes byte %d of LDS, which %s %d reads, with no barrier in between", offset_of(at),
         c.reader == MANY ? "several lanes, not only lane" : "lane", c.reader == MANY ? (int)me : (int)c.reader);
  c.write_epoch = now->epoch;
  c.writer = me;
}

// Every access of a kernel comes by here. aligned: the code counts on an address that the size divides.
void touch(const void *address, u64 bytes, bool write, bool aligned) {
  ++accesses;
  const u8 *p = (const u8 *)address;
  if ((u64)(p - now->stack) < STACK_BYTES) return;
  const char *does = write ? "writes" : "reads";
  if (aligned && (u64)p % bytes) fail("%s %d bytes at an address that is no multiple of that", does, (int)bytes);
  int cell = cell_of(p, bytes);
  if (cell >= 0) {
    now->released = false;
    int end = cell + (int)((bytes + 1) / 2);
    for (; cell < end; ++cell) write ? write_cell(cell) : read_cell(cell);
    return;
  }
  for (int i = 0; i < launch->range_count; ++i) {
    const emu_range &r = launch->ranges[i];
    u64 at = p - r.first;
    if (at >= r.bytes) continue;
    if (at + bytes > r.bytes)
      fail("%s %d bytes at byte %llu of %s, which has %llu", does, (int)bytes, at, r.name, r.bytes);
    if (!(r.rights & (write ? MAY_WRITE : MAY_READ))) fail("%s byte %llu of %s, and must not", does, at, r.name);
    if (write && r.rights & WRITES_ONCE)
      for (u64 half = at / 2; half < (at + bytes + 1) / 2; ++half)
        if (r.written[half]++) fail("writes byte %llu of %s, which was written before", half * 2, r.name);
    return;
  }
  const emu_module &m = *launch->module;
  if (!write && p >= m.constants && p + bytes <= m.constants_end) return;
  // Where is it? The nearest thing says most.
  const char *near = "to_lds";
  i64 distance = p - to_lds, best = distance < 0 ? -distance : distance;
  for (int i = 0; i < launch->range_count; ++i) {
    i64 far = p - launch->ranges[i].first, size = far < 0 ? -far : far;
    if (size < best) {
      best = size;
      distance = far;
      near = launch->ranges[i].name;
    }
  }
  fail("%s %d bytes out of bounds, at byte %lld of %s", does, (int)bytes, distance, near);
}

// ---- lanes -----------------------------------------------------------------------------------------------

void go_to(Lane &lane) {
  Lane *from = now;
  now = &lane;
  emu_switch(&from->sp, lane.sp);
}

Wave &my_wave() { return waves[now->thread / lanes_per_wave]; }
Lane *my_lanes() { return lanes + now->thread / lanes_per_wave * lanes_per_wave; }

// Some lane of another wave that can run.
void go_to_next_wave() {
  int from = now->thread / lanes_per_wave;
  for (int i = 1; i <= wave_count; ++i) {
    int w = ((from + wave_step * i) % wave_count + wave_count) % wave_count;
    if (waves[w].at_barrier || waves[w].ended == lanes_per_wave) continue;
    go_to(lanes[w * lanes_per_wave + waves[w].next]);
    return;
  }
  fail("has ended or waits at a barrier that other waves never come to");
}

void lane_ends() {
  Wave &w = my_wave();
  if (now->copy_count) fail("ends with a copy to LDS under way");
  if (w.arrived) fail("ends, and other lanes of its wave wait at %s", kind_names[w.kind]);
  now->ended = true;
  if (++w.ended < lanes_per_wave) {
    w.next = (w.next + 1) % lanes_per_wave;
    go_to(my_lanes()[w.next]);
  }
  if (waves_at_barrier) fail("ends, and other waves wait at a barrier");
  if (++waves_ended < wave_count) go_to_next_wave();
  void *nowhere;
  emu_switch(&nowhere, outside);
}

extern "C" void emu_lane_begins() {
  launch->entry(launch->args);
  lane_ends();
}

// Returns true to the last lane that arrives, which does what all lanes do; the others come back after that.
bool arrive(Kind kind, int parameter = 0) {
  Wave &w = my_wave();
  if (w.ended) fail("comes to %s, and other lanes of its wave have ended", kind_names[kind]);
  if (w.arrived == 0) {
    w.kind = kind;
    w.parameter = parameter;
  } else if (w.kind != kind || w.parameter != parameter) {
    fail("comes to %s (%d), and other lanes of its wave to %s (%d)", kind_names[kind], parameter, kind_names[w.kind],
         w.parameter);
  }
  if (++w.arrived == lanes_per_wave) {
    w.arrived = 0;
    return true;
  }
  w.next = (w.next + 1) % lanes_per_wave;
  go_to(my_lanes()[w.next]);
  return false;
}

void begin_lanes() {
  for (int t = 0; t < launch->threads; ++t) {
    Lane &lane = lanes[t];
    if (!lane.stack) {
      void *memory = mmap(nullptr, STACK_BYTES + PAGE, 3, 0x22, -1, 0); // read and write; private, anonymous
      if (memory == (void *)-1) {
        now = &lanes[0];
        snprintf(launch->message, sizeof launch->message, "no memory for the stacks of lanes");
        failed = true;
        return;
      }
      mprotect(memory, PAGE, 0);
      lane.stack = (u8 *)memory + PAGE;
    }
    lane.thread = t;
    lane.epoch = epoch;
    lane.released = lane.ended = false;
    lane.first_copy = lane.copy_count = 0;
    lane.open_group = 1;
    u64 *top = (u64 *)(lane.stack + STACK_BYTES);
#if defined(__x86_64__)
    *--top = 0; // the stack as it is when a function has just been called
    *--top = (u64)&emu_lane_begins;
    for (int i = 0; i < SAVED_WORDS; ++i) *--top = 0;
#else
    top -= 20;
    for (int i = 0; i < 20; ++i) top[i] = 0;
    top[11] = (u64)&emu_lane_begins;
#endif
    lane.sp = top;
  }
}

void run_workgroup() {
  int number = block[0] + block[1] + block[2];
  wave_count = launch->threads / lanes_per_wave;
  wave_step = number % 2 ? -1 : 1;
  waves_at_barrier = waves_ended = 0;
  all_released = true;
  first_epoch = ++epoch;
  for (int w = 0; w < wave_count; ++w) waves[w] = Wave{};
  memset(to_lds, 0xFF, lds_bytes);
  begin_lanes();
  if (failed) return;
  now = &lanes[wave_step > 0 ? 0 : launch->threads - lanes_per_wave];
  emu_switch(&outside, now->sp);
}

// ---- formats ---------------------------------------------------------------------------------------------

float bits_to_float(u32 bits) { return __builtin_bit_cast(float, bits); }

float fp16_to_float(u16 bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return bits_to_float(sign | 0x7F800000 | mantissa << 13);
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
  float small = (float)mantissa * 0x1p-24f;
  return sign ? -small : small;
}

// OCP's e4m3: bias 7, three bits of mantissa, NaN only where all bits but the sign are set.
float fp8_to_float(u8 bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return __builtin_nanf("");
  float size = exponent ? (float)(8 + mantissa) * bits_to_float((u32)(exponent + 117) << 23) : (float)mantissa * 0x1p-9f;
  return bits & 128 ? -size : size;
}

// Element i of what a lane holds.
float element(int format, const emu_u4 &v, int i) {
  if (format == EMU_FP8) return value_of_fp8[(u8)(v[i / 4] >> i % 4 * 8)];
  if (format == EMU_FP32) return bits_to_float(v[i]);
  u16 bits = (u16)(v[i / 2] >> i % 2 * 16);
  return format == EMU_BF16 ? bits_to_float((u32)bits << 16) : value_of_fp16[bits];
}

} // namespace

// ---- the emulated instructions -----------------------------------------------------------------------------

EXPORTED {
alignas(1024) __attribute__((visibility("default"))) u8 to_lds[MOST_LDS];
}

EXPORTED int emu_thread() { return now->thread; }
EXPORTED int emu_block(int axis) { return block[axis]; }
EXPORTED i64 emu_grid_threads() { return (i64)launch->grid[0] * launch->threads; }

EXPORTED unsigned short emu_round(int format, float x) {
  u32 bits = __builtin_bit_cast(u32, x);
  if (x != x) return format == EMU_BF16 ? (u16)(bits >> 16 | 0x40) : (u16)((bits >> 16 & 0x8000) | 0x7E00);
  if (format == EMU_BF16) return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  u16 sign = (u16)(bits >> 16 & 0x8000);
  float size = __builtin_fabsf(x);
  if (size >= 65520.0f) return sign | 0x7C00;
  // Adding a number whose last place is that of the result rounds to it, ties to even.
  if (size < 0x1p-14f) return sign | (u16)(__builtin_bit_cast(u32, size + 0.5f) & 0x7FF);
  u32 b = __builtin_bit_cast(u32, size);
  b += 0xFFF + (b >> 13 & 1);
  return sign | (u16)((b >> 13) - (112 << 10));
}

#if defined(__x86_64__)
// What clang calls for conversions of half floats, which x86_64 need not have.
EXPORTED _Float16 __truncsfhf2(float x) { return __builtin_bit_cast(_Float16, emu_round(EMU_FP16, x)); }
EXPORTED float __extendhfsf2(_Float16 x) { return value_of_fp16[__builtin_bit_cast(u16, x)]; }
#endif

// What __builtin_trap() is compiled to (-ftrap-function).
EXPORTED void emu_trap() {
  trapped = true;
  fail("traps");
}

EXPORTED void emu_release() { now->released = true; }
EXPORTED void emu_acquire() { now->epoch = epoch; }

EXPORTED void emu_barrier() {
  all_released = all_released && now->released;
  if (!arrive(BARRIER)) return;
  my_wave().at_barrier = true;
  if (++waves_at_barrier < wave_count) {
    if (waves_ended) fail("waits at a barrier, and other waves have ended");
    my_wave().next = now->thread % lanes_per_wave;
    go_to_next_wave();
    return;
  }
  for (int w = 0; w < wave_count; ++w) waves[w].at_barrier = false;
  waves_at_barrier = 0;
  if (all_released) ++epoch;
  all_released = true;
}

EXPORTED int emu_first_lane(int x) {
  now->with.x = x;
  if (arrive(FIRST_LANE))
    for (Lane *l = my_lanes(), *lane = l; lane < l + lanes_per_wave; ++lane) lane->with.x = l->with.x;
  return now->with.x;
}

EXPORTED int emu_from_lane(int x, int lane) {
  now->with.x = x;
  now->with.lane = lane;
  if (arrive(FROM_LANE)) {
    Lane *l = my_lanes();
    int taken[64];
    for (int i = 0; i < lanes_per_wave; ++i) taken[i] = l[l[i].with.lane].with.x;
    for (int i = 0; i < lanes_per_wave; ++i) l[i].with.x = taken[i];
  }
  return now->with.x;
}

// ---- copies ----------------------------------------------------------------------------------------------

static void begin_copy(u8 *to, const u8 *from, int bytes, int live) {
  if (live) touch(from, live, false, false);
  if ((live && (u64)from % bytes) || (u64)to % bytes) fail("copies %d bytes from or to where it may not", bytes);
  int cell = cell_of(to, bytes);
  if (cell < 0) fail("copies to LDS, out of bounds: to byte %lld", (i64)(to - to_lds));
  for (int i = cell; i < cell + bytes / 2; ++i) {
    write_cell(i);
    cells[i].pending = true;
  }
  memset(to, 0xFF, bytes);
  if (now->copy_count == MOST_COPIES) fail("has %d copies to LDS under way, which is more than is emulated", MOST_COPIES);
  now->copies[(now->first_copy + now->copy_count++) % MOST_COPIES] = Copy{to, from, bytes, live, now->open_group};
}

static void end_oldest_copy() {
  Copy &c = now->copies[now->first_copy];
  now->first_copy = (now->first_copy + 1) % MOST_COPIES;
  --now->copy_count;
  memcpy(c.to, c.from, c.live);
  memset(c.to + c.live, 0, c.bytes - c.live);
  int cell = cell_of(c.to, c.bytes);
  for (int i = cell; i < cell + c.bytes / 2; ++i) {
    cells[i].pending = false;
    cells[i].write_epoch = now->epoch;
  }
  now->released = false;
}

// CDNA4 ISA, global_load_lds_dwordx4: LDS address = base (of M0, one for the wave) + 16 * lane.
EXPORTED void emu_load_to_lds(const void *from, void *wave_base) {
  now->with.address = (const u8 *)from;
  now->with.wave_base = (u8 *)wave_base;
  if (arrive(COPY)) {
    Lane *l = my_lanes(), *me = now;
    for (int i = 0; i < lanes_per_wave; ++i) {
      if (l[i].with.wave_base != l[0].with.wave_base) fail("copies to LDS from another base than lane %d", l[0].thread);
      now = l + i;
      begin_copy(l[i].with.wave_base + 16 * i, l[i].with.address, 16, 16);
      now = me;
    }
  }
}

EXPORTED void emu_wait_loads(int pending) {
  if (arrive(WAIT)) {
    Lane *l = my_lanes(), *me = now;
    for (int i = 0; i < lanes_per_wave; ++i) {
      now = l + i;
      while (now->copy_count > pending) end_oldest_copy();
      now = me;
    }
  }
}

EXPORTED void emu_cp_async(void *to, const void *from, int bytes, int live) {
  begin_copy((u8 *)to, (const u8 *)from, bytes, live);
}
EXPORTED void emu_cp_async_commit() { ++now->open_group; }
// PTX ISA, cp.async.wait_group N: all committed groups but the last N are complete; other copies need not be.
EXPORTED void emu_cp_async_wait(int pending_groups) {
  while (now->copy_count && now->copies[now->first_copy].group + pending_groups < now->open_group) end_oldest_copy();
}

// ---- matrices --------------------------------------------------------------------------------------------
//
// MFMA, after the register layouts in AMD's "CDNA3" and "CDNA4" instruction set manuals, chapter on matrix
// arithmetic, of instructions with one block: with M = N rows of A and columns of B,
//   A: lane l holds row l mod M; its E = M * K / 64 elements are of depth E * (l / M) and on.
//   B: lane l holds column l mod N, and the same depths.
//   D: lane l holds column l mod N. Its registers are rows: four neighbours at a time, beginning with
//      4 * (l / N), and then every 4 * 64 / N rows further on.

template <int M, int K, class Vector, Vector Operands::*SUM> static void mfma(int format) {
  constexpr int EACH = M * K / 64, IN_FIRST = EACH == 32 ? 16 : EACH;
  Lane *l = my_lanes();
  float a[K][M], b[K][M], d[M][M]; // d: row, column
  for (int lane = 0; lane < 64; ++lane)
    for (int e = 0; e < EACH; ++e) {
      const Operands &o = l[lane].with;
      a[EACH * (lane / M) + e][lane % M] = element(format, e < IN_FIRST ? o.a : o.a_more, e % IN_FIRST);
      b[EACH * (lane / M) + e][lane % M] = element(format, e < IN_FIRST ? o.b : o.b_more, e % IN_FIRST);
    }
  constexpr int REGISTERS = M * M / 64, NEXT = 4 * 64 / M;
  for (int lane = 0; lane < 64; ++lane)
    for (int r = 0; r < REGISTERS; ++r) d[r / 4 * NEXT + lane / M * 4 + r % 4][lane % M] = (l[lane].with.*SUM)[r];
  for (int k = 0; k < K; ++k)
    for (int row = 0; row < M; ++row)
      for (int column = 0; column < M; ++column) d[row][column] += a[k][row] * b[k][column];
  for (int lane = 0; lane < 64; ++lane)
    for (int r = 0; r < REGISTERS; ++r) (l[lane].with.*SUM)[r] = d[r / 4 * NEXT + lane / M * 4 + r % 4][lane % M];
}

EXPORTED emu_f4 emu_mfma_16x16(int k, int format, emu_u4 a, emu_u4 b, emu_f4 c) {
  now->with.a = a;
  now->with.b = b;
  now->with.c = c;
  if (arrive(MFMA_16, k)) {
    if (k == 4) mfma<16, 4, emu_f4, &Operands::c>(format);
    else if (k == 16) mfma<16, 16, emu_f4, &Operands::c>(format);
    else mfma<16, 32, emu_f4, &Operands::c>(format);
  }
  return now->with.c;
}

EXPORTED emu_f16 emu_mfma_32x32(int k, int format, emu_u4 a, emu_u4 b, emu_f16 c) {
  now->with.a = a;
  now->with.b = b;
  now->with.c16 = c;
  if (arrive(MFMA_32, k))
    k == 8 ? mfma<32, 8, emu_f16, &Operands::c16>(format) : mfma<32, 16, emu_f16, &Operands::c16>(format);
  return now->with.c16;
}

// V_MFMA_F32_4X4X4_16B: sixteen products, of which lane l belongs to product l / 4. There it holds four depths of row
// l mod 4 of A and of column l mod 4 of B, and of D the four rows of column l mod 4.
EXPORTED emu_f4 emu_mfma_4x4x4x16(int format, emu_u4 a, emu_u4 b, emu_f4 c) {
  now->with.a = a;
  now->with.b = b;
  now->with.c = c;
  if (arrive(MFMA_16, 4))
    for (int product = 0; product < 16; ++product) {
      Lane *l = my_lanes() + product * 4;
      for (int column = 0; column < 4; ++column)
        for (int row = 0; row < 4; ++row)
          for (int k = 0; k < 4; ++k)
            l[column].with.c[row] += element(format, l[row].with.a, k) * element(format, l[column].with.b, k);
    }
  return now->with.c;
}

// The deep ones of 8-bit elements, 32 a lane. How depths are dealt to lanes is taken to be as above; results do not depend
// on that as long as A and B do it in the same way, and without scales.
EXPORTED emu_f4 emu_mfma_16x16x128_fp8(emu_u4 a, emu_u4 a_more, emu_u4 b, emu_u4 b_more, emu_f4 c) {
  now->with.a = a;
  now->with.a_more = a_more;
  now->with.b = b;
  now->with.b_more = b_more;
  now->with.c = c;
  if (arrive(MFMA_DEEP, 128)) mfma<16, 128, emu_f4, &Operands::c>(EMU_FP8);
  return now->with.c;
}
EXPORTED emu_f16 emu_mfma_32x32x64_fp8(emu_u4 a, emu_u4 a_more, emu_u4 b, emu_u4 b_more, emu_f16 c) {
  now->with.a = a;
  now->with.a_more = a_more;
  now->with.b = b;
  now->with.b_more = b_more;
  now->with.c16 = c;
  if (arrive(MFMA_DEEP, 64)) mfma<32, 64, emu_f16, &Operands::c16>(EMU_FP8);
  return now->with.c16;
}

// mma.sync.m16n8k16 of 16-bit elements, after the figures in the PTX ISA, section on that shape. With g = lane / 4 and
// t = lane mod 4, two elements a register, the one with the smaller index in the lower half:
//   A (16 x 16): registers hold (row g, columns 2t, 2t+1), (row g+8, the same), (row g, columns 2t+8, 2t+9),
//                (row g+8, the same)
//   B (16 x 8):  (rows 2t, 2t+1, column g), (rows 2t+8, 2t+9, column g)
//   C (16 x 8):  row g, columns 2t and 2t+1; row g+8, the same
EXPORTED emu_f4 emu_mma_m16n8k16(int format, emu_u4 a, emu_u2 b, emu_f4 c) {
  now->with.a = a;
  now->with.b = emu_u4{b.x, b.y, 0, 0};
  now->with.c = c;
  if (arrive(MMA)) {
    Lane *l = my_lanes();
    float ma[16][16], mb[16][8], mc[16][8]; // row, column
    for (int lane = 0; lane < 32; ++lane) {
      int g = lane / 4, t = lane % 4;
      const Operands &o = l[lane].with;
      for (int half = 0; half < 2; ++half) {
        ma[g][2 * t + half] = element(format, o.a, half);
        ma[g + 8][2 * t + half] = element(format, o.a, 2 + half);
        ma[g][2 * t + 8 + half] = element(format, o.a, 4 + half);
        ma[g + 8][2 * t + 8 + half] = element(format, o.a, 6 + half);
        mb[2 * t + half][g] = element(format, o.b, half);
        mb[2 * t + 8 + half][g] = element(format, o.b, 2 + half);
        mc[g][2 * t + half] = o.c[half];
        mc[g + 8][2 * t + half] = o.c[2 + half];
      }
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column) mc[row][column] += ma[row][k] * mb[k][column];
    for (int lane = 0; lane < 32; ++lane) {
      int g = lane / 4, t = lane % 4;
      l[lane].with.c = emu_f4{mc[g][2 * t], mc[g][2 * t + 1], mc[g + 8][2 * t], mc[g + 8][2 * t + 1]};
    }
  }
  return now->with.c;
}

// ldmatrix .m8n8.x4 of 16-bit elements, after the PTX ISA: lanes 8i to 8i + 7 give the addresses of the rows (16 bytes,
// aligned to that) of matrix i, and register i of lane l takes from matrix i: row l / 4, columns 2 (l mod 4) and the next.
// With .trans: column l / 4, rows 2 (l mod 4) and the next.
EXPORTED emu_u4 emu_ldmatrix_x4(const void *row, int transposed) {
  now->with.address = (const u8 *)row;
  touch(row, 16, false, true);
  if (cell_of((const u8 *)row, 16) < 0) fail("points ldmatrix to what is not LDS");
  if (arrive(LDMATRIX, transposed)) {
    Lane *l = my_lanes();
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        u32 pair[2];
        for (int half = 0; half < 2; ++half) {
          int r = transposed ? 2 * (lane % 4) + half : lane / 4, c = transposed ? lane / 4 : 2 * (lane % 4) + half;
          u16 value;
          memcpy(&value, l[matrix * 8 + r].with.address + 2 * c, 2);
          pair[half] = value;
        }
        l[lane].with.a[matrix] = pair[0] | pair[1] << 16;
      }
  }
  return now->with.a;
}

// ---- what clang's instrumentation calls ------------------------------------------------------------------------

#define TOUCH(size)                                                                                 \
  EXPORTED void __tsan_read##size(const void *p) { touch(p, size, false, true); }                   \
  EXPORTED void __tsan_write##size(void *p) { touch(p, size, true, true); }                         \
  EXPORTED void __tsan_unaligned_read##size(const void *p) { touch(p, size, false, false); }        \
  EXPORTED void __tsan_unaligned_write##size(void *p) { touch(p, size, true, false); }
TOUCH(1) TOUCH(2) TOUCH(4) TOUCH(8) TOUCH(16)
EXPORTED void *__tsan_memcpy(void *to, const void *from, u64 bytes) {
  touch(from, bytes, false, false);
  touch(to, bytes, true, false);
  return memcpy(to, from, bytes);
}
EXPORTED void *__tsan_memmove(void *to, const void *from, u64 bytes) {
  touch(from, bytes, false, false);
  touch(to, bytes, true, false);
  return memmove(to, from, bytes);
}
EXPORTED void *__tsan_memset(void *to, int value, u64 bytes) {
  touch(to, bytes, true, false);
  return memset(to, value, bytes);
}
EXPORTED void __tsan_init() {}

// Lanes never run at the same time, so that what is atomic on a GPU is so here by itself.
EXPORTED u64 __tsan_atomic64_load(const u64 *p, int) {
  touch(p, 8, false, true);
  return *p;
}
EXPORTED u64 __tsan_atomic64_fetch_add(u64 *p, u64 value, int) {
  touch(p, 8, true, true);
  u64 old = *p;
  *p += value;
  return old;
}
EXPORTED int __tsan_atomic64_compare_exchange_strong(u64 *p, u64 *expected, u64 value, int, int) {
  touch(p, 8, true, true);
  u64 old = *p;
  if (old == *expected) {
    *p = value;
    return 1;
  }
  *expected = old;
  return 0;
}
EXPORTED u64 __tsan_atomic64_compare_exchange_val(u64 *p, u64 expected, u64 value, int, int) {
  touch(p, 8, true, true);
  u64 old = *p;
  if (old == expected) *p = value;
  return old;
}

// ---- a launch ------------------------------------------------------------------------------------------------

// Returns 0, or 1 with a message.
EXPORTED int emu_run(emu_launch *what) {
  launch = what;
  if (failed) memset(cells, 0, sizeof cells);
  failed = false;
  launch->message[0] = 0;
  const emu_module &m = *launch->module;
  lanes_per_wave = m.lanes;
  lds_bytes = m.static_lds_bytes + launch->dynamic_lds_bytes;
  variables = m.variables;
  variables_end = m.variables_end;
  if (launch->threads > MOST_LANES || launch->threads % lanes_per_wave || lds_bytes > MOST_LDS ||
      variables_end - variables > MOST_VARIABLES) {
    snprintf(launch->message, sizeof launch->message, "%d threads and %d bytes of LDS cannot be emulated",
             launch->threads, lds_bytes);
    return 1;
  }
  if (value_of_fp16[0x3C00] != 1.0f) {
    for (int i = 0; i < 1 << 16; ++i) value_of_fp16[i] = fp16_to_float((u16)i);
    for (int i = 0; i < 1 << 8; ++i) value_of_fp8[i] = fp8_to_float((u8)i);
  }
  for (block[2] = 0; block[2] < launch->grid[2]; ++block[2])
    for (block[1] = 0; block[1] < launch->grid[1]; ++block[1])
      for (block[0] = 0; block[0] < launch->grid[0]; ++block[0]) {
        run_workgroup();
        if (failed) return 1;
      }
  return 0;
}
