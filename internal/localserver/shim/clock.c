// Gives a process a time of day of its own: that of the machine and the nanoseconds
// that stand in the file FENCING_CLOCK. Preloaded; the monotonic clock stays as it is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none;
static volatile int64_t *ahead = &none;

__attribute__((constructor)) static void open_clock(void) {
  const char *file = getenv("FENCING_CLOCK");
  int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0)
    return;
  void *p = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
  if (p != MAP_FAILED)
    ahead = p;
  close(fd);
}

// Straight to the kernel: looking up the function of libc allocates, and allocators ask for the time.
int clock_gettime(clockid_t id, struct timespec *t) {
  int rc = syscall(SYS_clock_gettime, id, t);
  if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *ahead;
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
  }
  return rc;
}

int gettimeofday(struct timeval *tv, void *zone) {
  struct timespec t;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &t) != 0)
    return -1;
  tv->tv_sec = t.tv_sec;
  tv->tv_usec = t.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec t;
  if (clock_gettime(CLOCK_REALTIME, &t) != 0)
    return -1;
  if (out)
    *out = t.tv_sec;
  return t.tv_sec;
}
