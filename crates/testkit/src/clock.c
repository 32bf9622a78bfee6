/* A wrong wall clock, preloaded: off by the milliseconds in the file that WRONG_CLOCK names. Waits until a time by this
 * clock take as long as they would by a right one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *wrong_ms;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WRONG_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    void *page = mmap(NULL, sizeof *wrong_ms, PROT_READ, MAP_SHARED, file, 0);
    wrong_ms = page == MAP_FAILED ? NULL : page;
    close(file);
  }
}

static void shift(struct timespec *at, int64_t ms) {
  int64_t ns = at->tv_nsec + ms % 1000 * 1000000;
  at->tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
  at->tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = (int)syscall(SYS_clock_gettime, clock, at);
  if (result == 0 && wrong_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at, *wrong_ms);
  return result;
}

int timespec_get(struct timespec *at, int base) { return clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0; }

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  at->tv_sec = exact.tv_sec;
  at->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (at) *at = exact.tv_sec;
  return exact.tv_sec;
}

/* Used by RocksDB. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  struct timespec right = *until;
  /* Not the obsolete version, which dlsym may return. */
  if (!wait) *(void **)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  if (wrong_ms) shift(&right, -*wrong_ms);
  return wait(cond, mutex, &right);
}

/* Used by librdkafka. */
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
  static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
  struct timespec right = *until;
  if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "cnd_timedwait");
  if (wrong_ms) shift(&right, -*wrong_ms);
  return wait(cond, mutex, &right);
}
