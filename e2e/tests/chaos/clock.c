/* Adds the seconds of a shared file to the wall clock of one process.
 * Monotonic clocks are not changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) offset_s = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int outcome = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
  if (outcome == 0 && offset_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset_s;
  return outcome;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec read;
  if (clock_gettime(CLOCK_REALTIME, &read) != 0) return -1;
  now->tv_sec = read.tv_sec;
  now->tv_usec = read.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *kept) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (kept) *kept = read.tv_sec;
  return read.tv_sec;
}
