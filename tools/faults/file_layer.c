/* Stands between a process and the C library's file calls, for the fault campaigns (LD_PRELOAD).
 *
 * Only paths below one folder matter, and descriptors opened on them. Armed (file_layer_arm), the n-th such
 * call fails with a given error number, and so does every later one if that is asked for. Recording
 * (file_layer_record), every call that changes the folder becomes a line of a log, data included. No campaign
 * reads such a log yet. */
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
#include <time.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 65536 };

static char root[4096];
static size_t root_length;
static long fail_at, calls;
static int fail_errno, fail_on;
static char failed_call[64];
static FILE *record;
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

/* Whether this call is to fail; sets errno. */
static int fails(const char *name) {
  pthread_mutex_lock(&mutex);
  long number = ++calls;
  int now = fail_at && (number == fail_at || (fail_on && number > fail_at));
  if (number == fail_at) snprintf(failed_call, sizeof failed_call, "%s", name);
  pthread_mutex_unlock(&mutex);
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
  if (folder && at && number) file_layer_arm(folder, atol(at), atoi(number), 0);
}

long file_layer_calls(void) { return calls; }
const char *file_layer_failed(void) { return failed_call; }

/* ---- recording ---- */

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static unsigned long inode_of(int fd) {
  struct stat s;
  return fstat(fd, &s) ? 0 : s.st_ino;
}

static void note(const char *format, ...) {
  if (!record) return;
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&mutex);
  fprintf(record, "%.6f ", now_s());
  vfprintf(record, format, arguments);
  fputc('\n', record);
  pthread_mutex_unlock(&mutex);
  va_end(arguments);
}

static void note_data(int fd, long long offset, const unsigned char *data, size_t size) {
  if (!record) return;
  pthread_mutex_lock(&mutex);
  fprintf(record, "%.6f write %lu %lld ", now_s(), inode_of(fd), offset);
  for (size_t i = 0; i < size; i++) fprintf(record, "%02x", data[i]);
  fputc('\n', record);
  pthread_mutex_unlock(&mutex);
}

int file_layer_record(const char *folder, const char *log) {
  file_layer_arm(folder, 0, 0, 0);
  record = fopen(log, "w");
  return record ? 0 : -1;
}

void file_layer_mark(const char *text) { note("mark %s", text); }

void file_layer_stop(void) {
  FILE *done = record;
  record = NULL;
  root_length = 0;
  if (done) fclose(done);
}

/* ---- the calls ---- */

static int opened(int fd, const char *path, int flags) {
  if (fd >= 0 && fd < MOST_DESCRIPTORS) {
    tracked[fd] = 1;
    if (flags & O_CREAT) note("create %lu %s", inode_of(fd), path);
    if (flags & O_TRUNC) note("truncate %lu 0", inode_of(fd));
  }
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
    return opened(real(path, flags, mode), path, flags); \
  }
OPEN(open)
OPEN(open64)

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

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  if (!is_tracked(fd)) return real(fd, data, size);
  if (fails("write")) return -1;
  ssize_t done = real(fd, data, size);
  if (done > 0) note_data(fd, (long long)lseek(fd, 0, SEEK_CUR) - done, data, (size_t)done);
  return done;
}

#define ON_DESCRIPTOR(name, said) \
  int name(int fd) { \
    REAL(int, #name, int); \
    if (is_tracked(fd) && fails(#name)) return -1; \
    if (is_tracked(fd)) note("begin %lu", inode_of(fd)); \
    int status = real(fd); \
    if (is_tracked(fd) && !status) note(said " %lu", inode_of(fd)); \
    return status; \
  }
ON_DESCRIPTOR(fsync, "sync")
ON_DESCRIPTOR(fdatasync, "sync")

int flock(int fd, int how) {
  REAL(int, "flock", int, int);
  if (is_tracked(fd) && fails("flock")) return -1;
  return real(fd, how);
}

int ftruncate64(int fd, off64_t size) {
  REAL(int, "ftruncate64", int, off64_t);
  if (is_tracked(fd) && fails("ftruncate")) return -1;
  int status = real(fd, size);
  if (is_tracked(fd) && !status) note("truncate %lu %lld", inode_of(fd), (long long)size);
  return status;
}

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  if (!below(from)) return real(from, to);
  if (fails("rename")) return -1;
  int status = real(from, to);
  if (!status) note("rename %s\t%s", from, to);
  return status;
}

int unlink(const char *path) {
  REAL(int, "unlink", const char *);
  if (!below(path)) return real(path);
  if (fails("unlink")) return -1;
  int status = real(path);
  if (!status) note("unlink %s", path);
  return status;
}

int mkdir(const char *path, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  if (!below(path)) return real(path, mode);
  if (fails("mkdir")) return -1;
  int status = real(path, mode);
  if (!status) {
    struct stat s;
    note("mkdir %lu %s", stat(path, &s) ? 0ul : (unsigned long)s.st_ino, path);
  }
  return status;
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
