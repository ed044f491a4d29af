/* An interposed library (LD_PRELOAD) that moves the clocks of the processes that load it, and of nobody else.
 *
 * It adds a shift to CLOCK_REALTIME and one to CLOCK_BOOTTIME, and shows another boot id, as a small shared control file says
 * (control.py writes it; the order of its fields is that of struct control).  A shift may change at any time: that is a step.
 * CLOCK_MONOTONIC is never touched, as no step touches it.
 *
 * What always holds:
 * 1. a wait until a moment of CLOCK_REALTIME ends when the moved clock shows that moment as it was moved when the wait began.
 *    The kernel knows nothing of the shift, so the moment is moved back before it is asked;
 * 2. moments before 2001 are none of CLOCK_REALTIME: such a deadline is of another clock, and is left alone.
 *
 * What it cannot see: raw system calls other than futex, programs that are linked statically, timers of the kernel that are
 * set to a moment of CLOCK_REALTIME, and the times of files.
 *
 * Environment: CLOCKSHIM_CONTROL, the control file; without it nothing is moved.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define SECOND 1000000000LL
#define YEAR_2001 978307200

struct control {
    uint32_t magic;
    uint32_t boots;                 /* 0: the boot id of the kernel */
    _Atomic int64_t realtime_ns;
    _Atomic int64_t boottime_ns;
    char boot_id_path[256];
};
#define MAGIC 0x314b4c43

static const struct control still;
static const struct control *control = &still;

static int (*next_clock_gettime)(clockid_t, struct timespec *);
static int (*next_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*next_mutex_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*next_sem_timedwait)(sem_t *, const struct timespec *);
static int (*next_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*next_open)(const char *, int, ...);
static int (*next_open64)(const char *, int, ...);
static int (*next_openat)(int, const char *, int, ...);
static int (*next_openat64)(int, const char *, int, ...);
static FILE *(*next_fopen)(const char *, const char *);
static FILE *(*next_fopen64)(const char *, const char *);
static long (*next_syscall)(long, ...);

static void *newest(const char *name, const char *version) {
    /* Of the condition variables there are two; the plain look-up may find the one of 2002. */
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
    if (next_clock_gettime) return;
    next_cond_timedwait = newest("pthread_cond_timedwait", "GLIBC_2.3.2");
    next_mutex_timedlock = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    next_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    next_clock_nanosleep = newest("clock_nanosleep", "GLIBC_2.17");
    next_open = dlsym(RTLD_NEXT, "open");
    next_open64 = dlsym(RTLD_NEXT, "open64");
    next_openat = dlsym(RTLD_NEXT, "openat");
    next_openat64 = dlsym(RTLD_NEXT, "openat64");
    next_fopen = dlsym(RTLD_NEXT, "fopen");
    next_fopen64 = dlsym(RTLD_NEXT, "fopen64");
    next_syscall = dlsym(RTLD_NEXT, "syscall");
    next_clock_gettime = newest("clock_gettime", "GLIBC_2.17");
    const char *path = getenv("CLOCKSHIM_CONTROL");
    if (!path) return;
    int fd = next_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct control *found = mmap(NULL, sizeof *found, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED && found->magic == MAGIC) control = found;
}

static struct timespec moved(struct timespec at, int64_t by_ns) {
    int64_t ns = (int64_t)at.tv_sec * SECOND + at.tv_nsec + by_ns;
    if (ns < 0) ns = 0;
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

/* What the kernel is to wait for, when the program waits for `at` of the moved clock. */
static const struct timespec *of_kernel(const struct timespec *at, struct timespec *room) {
    if (!at || at->tv_sec < YEAR_2001) return at;
    *room = moved(*at, -control->realtime_ns);
    return room;
}

EXPORT int clock_gettime(clockid_t which, struct timespec *out) {
    if (!next_clock_gettime) begin();
    int done = next_clock_gettime(which, out);
    if (done) return done;
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) *out = moved(*out, control->realtime_ns);
    else if (which == CLOCK_BOOTTIME) *out = moved(*out, control->boottime_ns);
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

EXPORT time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

EXPORT int timespec_get(struct timespec *out, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, out) == 0 ? base : 0;
}

/* ---------------------------------------------------------------- waits */

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict at) {
    struct timespec room;
    if (!next_cond_timedwait) begin();
    return next_cond_timedwait(cond, mutex, of_kernel(at, &room));
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict at) {
    struct timespec room;
    if (!next_mutex_timedlock) begin();
    return next_mutex_timedlock(mutex, of_kernel(at, &room));
}

EXPORT int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict at) {
    struct timespec room;
    if (!next_sem_timedwait) begin();
    return next_sem_timedwait(sem, of_kernel(at, &room));
}

EXPORT int clock_nanosleep(clockid_t which, int flags, const struct timespec *at, struct timespec *left) {
    struct timespec room;
    if (!next_clock_nanosleep) begin();
    if ((flags & TIMER_ABSTIME) && which == CLOCK_REALTIME) at = of_kernel(at, &room);
    return next_clock_nanosleep(which, flags, at, left);
}

EXPORT long syscall(long number, ...) {
    struct timespec room;
    long a[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
    va_end(given);
    if (!next_syscall) begin();
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && (a[1] & FUTEX_CLOCK_REALTIME))
        a[3] = (long)of_kernel((const struct timespec *)a[3], &room);
    return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---------------------------------------------------------------- the boot id */

static const char *shown(const char *path) {
    if (!next_open) begin();
    return control->boots && path && !strcmp(path, BOOT_ID) ? control->boot_id_path : path;
}

#define MODE(flags, mode)                                                                                                       \
    mode_t mode = 0;                                                                                                            \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                                    \
        va_list given;                                                                                                          \
        va_start(given, flags);                                                                                                 \
        mode = va_arg(given, mode_t);                                                                                           \
        va_end(given);                                                                                                          \
    }

EXPORT int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    path = shown(path);
    return next_open(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    path = shown(path);
    return next_open64(path, flags, mode);
}

EXPORT int openat(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    path = shown(path);
    return next_openat(at, path, flags, mode);
}

EXPORT int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    path = shown(path);
    return next_openat64(at, path, flags, mode);
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode) {
    path = shown(path);
    return next_fopen(path, mode);
}

EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode) {
    path = shown(path);
    return next_fopen64(path, mode);
}
