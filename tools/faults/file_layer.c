/* Stands between a process and the C library's file calls, for the fault campaigns (LD_PRELOAD).
 *
 * Only paths below one folder matter, and descriptors opened on them. Armed (file_layer_arm), the n-th such
 * call fails with a given error number, and so does every later one if that is asked for. Where processes are
 * armed by their environment, only the first that gets to its n-th call is hit: it makes FILE_LAYER_ONCE. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 65536 };

static char root[4096];
static size_t root_length;
static char once[4096];
static long fail_at, calls;
static int fail_errno, fail_on;
static char failed_call[64];
static unsigned char tracked[MOST_DESCRIPTORS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int below(const char *path) {
  return root_length && path && !strncmp(path, root, root_length) &&
         (path[root_length] == '/' || path[root_length] == 0);
}

static int is_tracked(int fd) { return fd >= 0 && fd < MOST_DESCRIPTORS && tracked[fd]; }

/* Whether this process is the first to be hit. */
static int is_first(const char *name) {
  REAL(int, "open64", const char *, int, ...);
  int fd = real(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  ssize_t written = syscall(SYS_write, fd, name, strlen(name));
  syscall(SYS_close, fd);
  return written > 0;
}

/* Whether this call is to fail; sets errno. */
static int fails(const char *name) {
  pthread_mutex_lock(&mutex);
  long number = ++calls;
  int now = fail_at && (number == fail_at || (fail_on && number > fail_at));
  if (number == fail_at) snprintf(failed_call, sizeof failed_call, "%s", name);
  pthread_mutex_unlock(&mutex);
  if (now && once[0] && !is_first(name)) now = 0;
  if (now) errno = fail_errno;
  return now;
}

void file_layer_arm(const char *folder, long at, int number, int every_later) {
  pthread_mutex_lock(&mutex);
  snprintf(root, sizeof root, "%s", folder);
  root_length = strlen(root);
  fail_at = at, fail_errno = number, fail_on = every_later, calls = 0, failed_call[0] = 0;
  pthread_mutex_unlock(&mutex);
}

/* For a process that does not arm itself. */
__attribute__((constructor)) static void arm_by_environment(void) {
  const char *folder = getenv("FILE_LAYER_FOLDER"), *at = getenv("FILE_LAYER_AT");
  const char *number = getenv("FILE_LAYER_ERRNO");
  const char *mark = getenv("FILE_LAYER_ONCE");
  if (mark) snprintf(once, sizeof once, "%s", mark);
  if (folder && at && number) file_layer_arm(folder, atol(at), atoi(number), 0);
}

long file_layer_calls(void) { return calls; }
const char *file_layer_failed(void) { return failed_call; }

/* ---- the calls ---- */

static int opened(int fd) {
  if (fd >= 0 && fd < MOST_DESCRIPTORS) tracked[fd] = 1;
  return fd;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    va_list arguments; \
    va_start(arguments, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments); \
    if (!below(path)) { \
      int fd = real(path, flags, mode); \
      if (fd >= 0 && fd < MOST_DESCRIPTORS) tracked[fd] = 0; \
      return fd; \
    } \
    if (fails("open")) return -1; \
    return opened(real(path, flags, mode)); \
  }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    REAL(int, #name, int, const char *, int, ...); \
    va_list arguments; \
    va_start(arguments, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments); \
    if (!below(path) && !(path[0] != '/' && is_tracked(folder))) { \
      int fd = real(folder, path, flags, mode); \
      if (fd >= 0 && fd < MOST_DESCRIPTORS) tracked[fd] = 0; \
      return fd; \
    } \
    if (fails("openat")) return -1; \
    return opened(real(folder, path, flags, mode)); \
  }
OPEN_AT(openat)
OPEN_AT(openat64)

int close(int fd) {
  REAL(int, "close", int);
  if (fd >= 0 && fd < MOST_DESCRIPTORS) tracked[fd] = 0;
  return real(fd);
}

DIR *opendir(const char *path) {
  REAL(DIR *, "opendir", const char *);
  if (below(path) && fails("opendir")) return NULL;
  return real(path);
}

ssize_t read(int fd, void *data, size_t size) {
  REAL(ssize_t, "read", int, void *, size_t);
  if (is_tracked(fd) && fails("read")) return -1;
  return real(fd, data, size);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
  REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
  if (is_tracked(fd) && fails("pread")) return -1;
  return real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
  REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
  return is_tracked(fd) && fails("pwrite") ? -1 : real(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  return is_tracked(fd) && fails("write") ? -1 : real(fd, data, size);
}

#define ON_DESCRIPTOR(name) \
  int name(int fd) { \
    REAL(int, #name, int); \
    return is_tracked(fd) && fails(#name) ? -1 : real(fd); \
  }
ON_DESCRIPTOR(fsync)
ON_DESCRIPTOR(fdatasync)

int flock(int fd, int how) {
  REAL(int, "flock", int, int);
  if (is_tracked(fd) && fails("flock")) return -1;
  return real(fd, how);
}

int ftruncate64(int fd, off64_t size) {
  REAL(int, "ftruncate64", int, off64_t);
  return is_tracked(fd) && fails("ftruncate") ? -1 : real(fd, size);
}

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  return below(from) && fails("rename") ? -1 : real(from, to);
}

int unlink(const char *path) {
  REAL(int, "unlink", const char *);
  return below(path) && fails("unlink") ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  return below(path) && fails("mkdir") ? -1 : real(path, mode);
}

int stat64(const char *restrict path, struct stat64 *restrict result) {
  REAL(int, "stat64", const char *, struct stat64 *);
  if (below(path) && fails("stat")) return -1;
  return real(path, result);
}

int lstat64(const char *restrict path, struct stat64 *restrict result) {
  REAL(int, "lstat64", const char *, struct stat64 *);
  if (below(path) && fails("lstat")) return -1;
  return real(path, result);
}
