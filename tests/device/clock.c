/* The clock of the CPU target, whose machine code tile_oracle.device.native_clock has: a test compares the two.

   Before every run each operand changes: masks of the former run are taken away and others put on, by XOR.
   Before each run some output bytes are set to 0xFF, to check that the run has written them when it returns.
   The output of one run is copied, to be compared. */

typedef unsigned char Byte;
typedef unsigned long Word __attribute__((vector_size(16), aligned(1), may_alias));
typedef struct { long seconds, nanoseconds; } Clock;
typedef struct {
  const Byte *from;                     /* masks; those of run i begin at[i + 1] bytes beyond */
  const long *at;
  long steps[3];                        /* bytes from one mask to the next along each outer axis */
  long within;                          /* ~0: masks as long as the inner axis; 15: of 16 bytes */
} Masks;
typedef struct {
  Byte *to;
  long extents[3], width;               /* the outer axes; bytes of the inner axis */
  Masks masks[2];
} Change;
typedef struct {
  int (*launch)(const void *);
  const void *args;
  int (*now)(int, Clock *);
  long count;
  unsigned long *nanoseconds;           /* of each run */
  const Change *changes;
  long change_count;
  Byte *const *watched;                 /* of each run: bytes of the output that are never 0xFF in a result */
  long watched_count;
  long untouched;                       /* of all, how many a run had not written when it returned */
  long begun;                           /* runs, before whose work the operands changed */
  long kept_run;                        /* whose output is copied to `kept`; -1: none */
  const Byte *out;
  Byte *kept;
  long out_bytes;
} Runs;

static void change(const Change *c, long run) {
  const Masks *p = &c->masks[0], *q = &c->masks[1];
  Byte *to = c->to;
  for (long i = 0; i < c->extents[0]; ++i)
    for (long j = 0; j < c->extents[1]; ++j)
      for (long k = 0; k < c->extents[2]; ++k, to += c->width) {
        const Byte *p0 = p->from + i * p->steps[0] + j * p->steps[1] + k * p->steps[2];
        const Byte *q0 = q->from + i * q->steps[0] + j * q->steps[1] + k * q->steps[2];
        const Byte *p1 = p0 + p->at[run + 1], *q1 = q0 + q->at[run + 1];
        p0 += p->at[run], q0 += q->at[run];
        long at = 0;
        for (; at + 16 <= c->width; at += 16) {
          long in_p = at & p->within, in_q = at & q->within;
          *(Word *)(to + at) ^= *(const Word *)(p0 + in_p) ^ *(const Word *)(p1 + in_p) ^
                                *(const Word *)(q0 + in_q) ^ *(const Word *)(q1 + in_q);
        }
        for (; at < c->width; ++at) {
          long in_p = at & p->within, in_q = at & q->within;
          to[at] ^= p0[in_p] ^ p1[in_p] ^ q0[in_q] ^ q1[in_q];
        }
      }
}

long to_time_runs(Runs *r) {
  for (long i = 0; i < r->count; ++i) {
    Byte *const *watched = r->watched + i * r->watched_count;
    Clock start, stop;
    for (long at = 0; at < r->change_count; ++at) change(&r->changes[at], i);
    r->begun = i + 1;
    for (long at = 0; at < r->watched_count; ++at) *(volatile Byte *)watched[at] = 0xFF;
    r->now(1, &start);
    int returned = r->launch(r->args);
    r->now(1, &stop);
    for (long at = 0; at < r->watched_count; ++at)
      r->untouched += *(const volatile Byte *)watched[at] == 0xFF;
    if (returned) return returned;
    long seconds = stop.seconds - start.seconds;
    r->nanoseconds[i] = (unsigned long)(seconds * 1000000000l + stop.nanoseconds - start.nanoseconds);
    if (i != r->kept_run) continue;
    long at = 0;
    for (; at + 16 <= r->out_bytes; at += 16) *(Word *)(r->kept + at) = *(const Word *)(r->out + at);
    for (; at < r->out_bytes; ++at) ((volatile Byte *)r->kept)[at] = r->out[at];
  }
  return 0;
}
