/* What the families of misbehaviour share: libc by its prototypes (the compiler's own headers are enough to
 * build, so there are none of libc), and the convolution that is right. */
#pragma once
#include "abi.h"
#include <stddef.h>

extern "C" {
typedef long ssize_t_;
struct timespec_ { int64_t seconds, nanoseconds; };
struct dl_info_ { const char *file; void *base; const char *symbol; void *address; };
struct rlimit_ { uint64_t soft, hard; };
struct itimerval_ { int64_t interval_s, interval_us, value_s, value_us; };
struct iovec_ { const void *base; size_t size; };
struct sigaction_ { void (*handler)(int); uint64_t mask[16]; int flags; void (*restorer)(void); };

extern char **environ;
ssize_t_ write(int fd, const void *data, size_t count);
ssize_t_ read(int fd, void *data, size_t count);
ssize_t_ send(int fd, const void *data, size_t count, int flags);
ssize_t_ recv(int fd, void *data, size_t count, int flags);
int open(const char *path, int flags, ...);
int close(int fd);
int dup(int fd);
int dup2(int fd, int other);
int pipe(int *fds);
int fcntl(int fd, int command, ...);
int ftruncate(int fd, int64_t size);
int unlink(const char *path);
int access(const char *path, int mode);
int chdir(const char *path);
int chroot(const char *path);
int mkdir(const char *path, unsigned mode);
unsigned umask(unsigned mask);
char *getenv(const char *name);
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
int putenv(char *text);
int clearenv(void);
char *setlocale(int category, const char *locale);
int fesetround(int mode);
int feenableexcept(int exceptions);
int fegetenv(void *environment);
int fesetenv(const void *environment);
void exit(int code);
void _exit(int code);
void abort(void);
int raise(int number);
int kill(int pid, int number);
int killpg(int group, int number);
int getpid(void);
int getppid(void);
int getpgrp(void);
int setsid(void);
int fork(void);
int execve(const char *path, char *const *arguments, char *const *environment);
int pause(void);
unsigned alarm(unsigned seconds);
int usleep(unsigned microseconds);
int setitimer(int which, const itimerval_ *value, itimerval_ *old);
int sigaction(int number, const sigaction_ *action, sigaction_ *old);
int sigfillset(void *set);
int sigprocmask(int how, const void *set, void *old);
void (*signal(int number, void (*handler)(int)))(int);
int waitpid(int pid, int *status, int options);
int getrlimit(int which, rlimit_ *limit);
int setrlimit(int which, const rlimit_ *limit);
int prlimit64(int pid, int which, const rlimit_ *limit, rlimit_ *old);
int setpriority(int which, int who, int niceness);
int sched_setaffinity(int pid, size_t bytes, const void *cores);
int sched_setscheduler(int pid, int policy, const int *parameter);
int prctl(int what, ...);
long ptrace(int request, ...);
long syscall(long number, ...);
int personality(unsigned long persona);
int mlockall(int flags);
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, int64_t offset);
int mprotect(void *address, size_t bytes, int protection);
int munmap(void *address, size_t bytes);
void *malloc(size_t bytes);
void *memset(void *to, int value, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t count);
char *strstr(const char *text, const char *part);
char *strrchr(const char *text, int c);
int snprintf(char *to, size_t size, const char *format, ...);
int sscanf(const char *text, const char *format, ...);
int clock_gettime(int clock, timespec_ *now);
int pthread_create(void *thread, const void *attributes, void *(*function)(void *), void *argument);
int pthread_detach(unsigned long thread);
int pthread_join(unsigned long thread, void **result);
int _setjmp(void *buffer);
void longjmp(void *buffer, int value);
int dladdr(const void *address, dl_info_ *info);
void *dlopen(const char *path, int flags);
void *dlsym(void *library, const char *name);
}

static volatile int sink;

/* As long as the thread that asks for it needs to be stuck: sleeping would be seen as idle. */
[[noreturn]] static inline void spin() { for (;;) sink = 1; }
static inline void segfault() { *(volatile int *)8 = 1; }

static inline int64_t now_ns() {
    timespec_ now;
    clock_gettime(1, &now);
    return now.seconds * 1000000000 + now.nanoseconds;
}

/* Forward, 2D, fp32. */
__attribute__((noinline)) static void convolve(const to_conv_args *a) {
    const float *x = (const float *)a->in0, *w = (const float *)a->in1;
    float *y = (float *)a->out;
    const int64_t c = a->C / a->G, k = a->K / a->G;
    for (int64_t n = 0; n < a->N; ++n)
        for (int64_t ho = 0; ho < a->Ho; ++ho)
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

static inline int64_t output_values(const to_conv_args *a) { return a->N * a->Ho * a->Wo * a->K; }

/* Changes a value, whatever its exponent is. */
static inline void spoil(float *value, int64_t by) { *value += (1 + (*value < 0 ? -*value : *value)) * (float)by; }

typedef int32_t (*launch_)(const to_conv_args *);

struct family_ {
    const char *name;
    int64_t (*workspace)(const to_conv_args *);
    int32_t (*launch)(const to_conv_args *);
};
