/* The calls that faultdisk stands in front of, each: look up the descriptor, refuse or
 * delay if the control block says so, do the real call, log it.  See state.c for
 * what the library promises.
 */
#include "faultdisk.h"

/* ------------------------------------------------------------------ opening */

static int existed(int dirfd, const char *path, int flags) {
    struct stat st;
    int error = errno;
    int found = !(flags & O_CREAT) || fstatat(dirfd, path, &st, 0) == 0;
    errno = error;
    return found;
}

static int opened(int fd, int flags, int existed_before, int64_t begin) {
    int error = errno;
    char buffer[PATH_MAX];
    struct stat st;
    if (fd < 0 || !on()) return fd;
    drop(fd);
    const char *name = name_of(fd, buffer);
    if (name && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && st.st_ino != fd_log_inode) {
        remember(fd, name, &st, flags);
        if (S_ISREG(st.st_mode) && (flags & O_ACCMODE) != O_RDONLY) {
            struct record r = blank(OP_OPEN, st.st_ino, begin);
            r.flags = (uint16_t)((existed_before ? 0 : F_CREATED) | (flags & O_TRUNC ? F_TRUNCATED : 0) | (flags & O_APPEND ? F_APPEND : 0)
                                 | (flags & (O_SYNC | O_DSYNC) ? F_SYNCED : 0));
            r.length = st.st_size;
            log_named(&r, name, fd, error);
            size_t n = strlen(name);
            if (fd_keep[0] && !existed_before && n > 4 && strcmp(name + n - 4, ".log") == 0) {
                char second[PATH_MAX + 32];
                snprintf(second, sizeof second, "%s/%llu", fd_keep, (unsigned long long)st.st_ino);
                syscall(SYS_linkat, AT_FDCWD, buffer, AT_FDCWD, second, 0);
            }
        } else if (S_ISDIR(st.st_mode)) {
            struct record r = blank(OP_OPEN, st.st_ino, begin);
            r.flags = F_DIRECTORY;
            log_named(&r, name, fd, error);
        }
    }
    errno = error;
    return fd;
}

#define OPEN_AT(NAME, DIRFD, CALL) { \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); } \
    int64_t begin = now_ns(); \
    int before = existed(DIRFD, path, flags); \
    return opened(REAL(NAME) CALL, flags, before, begin); }

EXPORT int open(const char *path, int flags, ...) OPEN_AT(open, AT_FDCWD, (path, flags, mode))
EXPORT int open64(const char *path, int flags, ...) OPEN_AT(open64, AT_FDCWD, (path, flags, mode))
EXPORT int openat(int dirfd, const char *path, int flags, ...) OPEN_AT(openat, dirfd, (dirfd, path, flags, mode))
EXPORT int openat64(int dirfd, const char *path, int flags, ...) OPEN_AT(openat64, dirfd, (dirfd, path, flags, mode))
/* What open becomes when a program is compiled with _FORTIFY_SOURCE. */
EXPORT int __open_2(const char *path, int flags) { return open(path, flags); }
EXPORT int __open64_2(const char *path, int flags) { return open64(path, flags); }
EXPORT int __openat_2(int dirfd, const char *path, int flags) { return openat(dirfd, path, flags); }
EXPORT int __openat64_2(int dirfd, const char *path, int flags) { return openat64(dirfd, path, flags); }
EXPORT int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORT int creat64(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static FILE *streamed(FILE *f, const char *mode, int before, int64_t begin) {
    int flags = mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR;
    if (mode[0] == 'w') flags |= O_TRUNC;
    if (mode[0] == 'a') flags |= O_APPEND;
    if (f) opened(fileno(f), flags, before, begin);
    return f;
}
static int stream_existed(const char *path, const char *mode) { return existed(AT_FDCWD, path, mode[0] == 'r' ? 0 : O_CREAT); }
EXPORT FILE *fopen(const char *path, const char *mode) {
    int64_t begin = now_ns(); int before = stream_existed(path, mode);
    return streamed(REAL(fopen)(path, mode), mode, before, begin);
}
EXPORT FILE *fopen64(const char *path, const char *mode) {
    int64_t begin = now_ns(); int before = stream_existed(path, mode);
    return streamed(REAL(fopen64)(path, mode), mode, before, begin);
}

/* ---------------------------------------------------- closing and copying */

static void closing(int fd) {
    struct entry *e = mine() ? watched(fd) : NULL;
    if (!e || e->kind != FILE_) return;
    struct record r = blank(OP_CLOSE, e->file, now_ns());
    log_event(&r, 0, errno);
}

EXPORT int close(int fd) {
    if (on() && fd == fd_log) return 0;
    closing(fd);
    drop(fd);                       /* before the close: another thread may get the number at once */
    return REAL(close)(fd);
}
EXPORT int fclose(FILE *f) {
    int fd = f ? fileno(f) : -1;
    closing(fd);
    drop(fd);
    return REAL(fclose)(f);
}
EXPORT int close_range(unsigned first, unsigned last, int flags) {
    unsigned log = (unsigned)fd_log;
    if (mine() && !(flags & 4 /* CLOSE_RANGE_CLOEXEC */))
        for (unsigned fd = first; fd <= last && fd < FDS; fd++) if (fd != log && fd_table[fd].kind) drop((int)fd);
    if (!on() || log < first || log > last || (flags & 4)) return REAL(close_range)(first, last, flags);
    int low = log > first ? REAL(close_range)(first, log - 1, flags) : 0;
    int high = log < last ? REAL(close_range)(log + 1, last, flags) : 0;
    return low ? low : high;
}

static int copied(int from, int to) {
    if (to < 0 || from == to || !mine()) return to;
    struct entry *a = slot(from), *b = slot(to);
    if (!b) return to;
    b->kind = NONE;
    if (a && a->kind) {
        uint8_t kind = a->kind;
        b->flags = a->flags; b->named = a->named; b->file = a->file;
        memcpy(b->tail, a->tail, TAIL);
        b->kind = kind;
    }
    return to;
}
EXPORT int dup(int fd) { return copied(fd, REAL(dup)(fd)); }
EXPORT int dup2(int from, int to) { return copied(from, REAL(dup2)(from, to)); }
EXPORT int dup3(int from, int to, int flags) { return copied(from, REAL(dup3)(from, to, flags)); }
#define FCNTL(NAME) (int fd, int command, ...) { \
    va_list a; va_start(a, command); void *arg = va_arg(a, void *); va_end(a); \
    int result = REAL(NAME)(fd, command, arg); \
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, result) : result; }
EXPORT int fcntl FCNTL(fcntl)
EXPORT int fcntl64 FCNTL(fcntl64)

/* ------------------------------------------------------------------ writing */

static ssize_t wrote(struct entry *e, int fd, const void *first, size_t first_n, size_t n, int64_t at, int64_t begin, ssize_t result, int injected) {
    int error = injected ? injected : errno;
    struct record r = blank(OP_WRITE, e->file, begin);
    r.flags = (uint16_t)(e->flags | (injected ? F_INJECTED : 0));
    r.length = (int64_t)n;
    r.offset = at;
    if (at < 0 && result >= 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        r.offset = end >= result ? end - result : -1;
    }
    if (first) memcpy(r.prefix, first, first_n < sizeof r.prefix ? first_n : sizeof r.prefix);
    log_event(&r, injected ? -1 : result, error);
    return injected ? -1 : result;
}

#define WRITE(FIRST, FIRST_N, N, AT, CALL) { \
    struct entry *e = watched(fd); \
    if (e) { \
        die_at_file(OP_WRITE, 0, fd); \
        int64_t begin = now_ns(); int refused = write_refused(e); \
        ssize_t done = refused ? -1 : CALL; \
        ssize_t told = wrote(e, fd, FIRST, FIRST_N, N, AT, begin, done, refused); \
        die_at_file(OP_WRITE, 1, fd); \
        return told; \
    } \
    if ((e = logged_socket(fd))) { \
        log_send(fd, e, FIRST, FIRST_N, N); \
        return log_sent(e, N, CALL); \
    } \
    return CALL; }

static size_t total(const struct iovec *v, int n) { size_t sum = 0; for (int i = 0; i < n; i++) sum += v[i].iov_len; return sum; }

/* The first bytes of several pieces, for the record's prefix. */
static __thread char head[16];
static size_t gather(const struct iovec *v, int n) {
    size_t have = 0;
    for (int i = 0; i < n && have < sizeof head; i++) {
        size_t piece = v[i].iov_len < sizeof head - have ? v[i].iov_len : sizeof head - have;
        memcpy(head + have, v[i].iov_base, piece);
        have += piece;
    }
    return have;
}
#define WRITEV(AT, CALL) WRITE(head, gather(v, n), total(v, n), AT, CALL)

EXPORT ssize_t write(int fd, const void *b, size_t n) WRITE(b, n, n, -1, REAL(write)(fd, b, n))
EXPORT ssize_t pwrite(int fd, const void *b, size_t n, off_t at) WRITE(b, n, n, at, REAL(pwrite)(fd, b, n, at))
EXPORT ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) WRITE(b, n, n, at, REAL(pwrite64)(fd, b, n, at))
EXPORT ssize_t writev(int fd, const struct iovec *v, int n) WRITEV(-1, REAL(writev)(fd, v, n))
EXPORT ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) WRITEV(at, REAL(pwritev)(fd, v, n, at))
EXPORT ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) WRITEV(at, REAL(pwritev64)(fd, v, n, at))
EXPORT ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int f) WRITEV(at, REAL(pwritev2)(fd, v, n, at, f))
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off64_t at, int f) WRITEV(at, REAL(pwritev64v2)(fd, v, n, at, f))
EXPORT ssize_t copy_file_range(int in, off64_t *from, int fd, off64_t *to, size_t n, unsigned f) WRITE(NULL, 0, n, (to ? *to - (done > 0 ? done : 0) : -1), REAL(copy_file_range)(in, from, fd, to, n, f))
EXPORT ssize_t sendfile(int fd, int in, off_t *from, size_t n) WRITE(NULL, 0, n, -1, REAL(sendfile)(fd, in, from, n))
EXPORT ssize_t sendfile64(int fd, int in, off64_t *from, size_t n) WRITE(NULL, 0, n, -1, REAL(sendfile64)(fd, in, from, n))

EXPORT ssize_t send(int fd, const void *b, size_t n, int f) {
    struct entry *e = logged_socket(fd);
    if (!e) return REAL(send)(fd, b, n, f);
    log_send(fd, e, b, n, n);
    return log_sent(e, n, REAL(send)(fd, b, n, f));
}
EXPORT ssize_t sendto(int fd, const void *b, size_t n, int f, const struct sockaddr *to, socklen_t to_n) {
    struct entry *e = logged_socket(fd);
    if (!e) return REAL(sendto)(fd, b, n, f, to, to_n);
    log_send(fd, e, b, n, n);
    return log_sent(e, n, REAL(sendto)(fd, b, n, f, to, to_n));
}
EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int f) {
    struct entry *e = logged_socket(fd);
    if (!e) return REAL(sendmsg)(fd, m, f);
    const struct iovec *v = m->msg_iov; int n = (int)m->msg_iovlen;
    log_send(fd, e, head, gather(v, n), total(v, n));
    return log_sent(e, total(v, n), REAL(sendmsg)(fd, m, f));
}

static int truncated(uint64_t file, int64_t length, int64_t begin, int result) {
    struct record r = blank(OP_TRUNCATE, file, begin);
    r.length = length;
    log_event(&r, result, errno);
    return result;
}
#define FTRUNCATE(NAME, T) (int fd, T length) { \
    struct entry *e = watched(fd); int64_t begin = now_ns(); \
    int result = REAL(NAME)(fd, length); \
    return e ? truncated(e->file, length, begin, result) : result; }
EXPORT int ftruncate FTRUNCATE(ftruncate, off_t)
EXPORT int ftruncate64 FTRUNCATE(ftruncate64, off64_t)
static int path_truncated(const char *path, int64_t length, int64_t begin, int result) {
    char buffer[PATH_MAX]; struct stat st; int error = errno;
    if (on() && result == 0 && resolve(AT_FDCWD, path, buffer) && stat(path, &st) == 0) truncated(st.st_ino, length, begin, result);
    errno = error;
    return result;
}
EXPORT int truncate(const char *path, off_t length) { int64_t b = now_ns(); return path_truncated(path, length, b, REAL(truncate)(path, length)); }
EXPORT int truncate64(const char *path, off64_t length) { int64_t b = now_ns(); return path_truncated(path, length, b, REAL(truncate64)(path, length)); }

/* fallocate returns -1 and errno, posix_fallocate the error number itself. */
static int allocation_refused(int fd, int64_t length) {
    struct entry *e = watched(fd);
    int refused = e ? write_refused(e) : 0;
    if (!refused) return 0;
    struct record r = blank(OP_ALLOCATE, e->file, now_ns());
    r.length = length; r.flags = F_INJECTED;
    log_event(&r, -1, refused);
    return refused;
}
EXPORT int fallocate(int fd, int mode, off_t at, off_t n) { if (allocation_refused(fd, n)) return -1; return REAL(fallocate)(fd, mode, at, n); }
EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t n) { if (allocation_refused(fd, n)) return -1; return REAL(fallocate64)(fd, mode, at, n); }
EXPORT int posix_fallocate(int fd, off_t at, off_t n) { int refused = allocation_refused(fd, n); return refused ? refused : REAL(posix_fallocate)(fd, at, n); }
EXPORT int posix_fallocate64(int fd, off64_t at, off64_t n) { int refused = allocation_refused(fd, n); return refused ? refused : REAL(posix_fallocate64)(fd, at, n); }

/* ------------------------------------------------------------------ syncing */

#define SYNC(OP, CALL) { \
    struct entry *e = watched(fd); \
    if (!e) return CALL; \
    die_at_file(OP, 0, fd); \
    struct record r = blank(OP, e->file, now_ns()); \
    struct stat st; \
    if (fstat(fd, &st) == 0) r.length = st.st_size; \
    if (e->kind == DIRECTORY) r.flags = F_DIRECTORY; \
    sync_delay(e); \
    int refused = sync_refused(e); \
    if (refused) { r.flags |= F_INJECTED; log_event(&r, -1, refused); return -1; } \
    int result = CALL; \
    log_event(&r, result, errno); \
    die_at_file(OP, 1, fd); \
    return result; }

EXPORT int fsync(int fd) SYNC(OP_FSYNC, REAL(fsync)(fd))
EXPORT int fdatasync(int fd) SYNC(OP_FDATASYNC, REAL(fdatasync)(fd))
EXPORT int sync_file_range(int fd, off64_t at, off64_t n, unsigned f) SYNC(OP_SYNC_FILE_RANGE, REAL(sync_file_range)(fd, at, n, f))
EXPORT int syncfs(int fd) SYNC(OP_SYNCFS, REAL(syncfs)(fd))

/* ------------------------------------------------------------------- naming */

/* Of a file or a directory that is to get this name, or has got it. */
static void die_at_name(enum op op, int after, int dir, const char *to) {
    char buffer[PATH_MAX];
    int error = errno;
    if (on() && deadly(op, after)) die_at(resolve(dir, to, buffer));
    errno = error;
}
static int renamed(int from_dir, const char *from, int to_dir, const char *to, int result, uint64_t replaced, int64_t begin) {
    int error = errno;
    char buffer[PATH_MAX];
    struct stat st;
    if (on() && result == 0) {
        const char *name = resolve(to_dir, to, buffer);
        if (name && fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            struct record r = blank(OP_RENAME, st.st_ino, begin);
            r.other = replaced;
            log_named(&r, name, 0, error);
        }
    }
    (void)from_dir; (void)from;
    if (result == 0) die_at_name(OP_RENAME, 1, to_dir, to);
    errno = error;
    return result;
}
static uint64_t inode_at(int dir, const char *path) {
    struct stat st;
    int error = errno;
    uint64_t file = on() && fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink <= 1 ? st.st_ino : 0;
    errno = error;
    return file;
}
EXPORT int rename(const char *from, const char *to) {
    die_at_name(OP_RENAME, 0, AT_FDCWD, to);
    int64_t b = now_ns(); uint64_t replaced = inode_at(AT_FDCWD, to);
    return renamed(AT_FDCWD, from, AT_FDCWD, to, REAL(rename)(from, to), replaced, b);
}
EXPORT int renameat(int fd, const char *from, int td, const char *to) {
    die_at_name(OP_RENAME, 0, td, to);
    int64_t b = now_ns(); uint64_t replaced = inode_at(td, to);
    return renamed(fd, from, td, to, REAL(renameat)(fd, from, td, to), replaced, b);
}
EXPORT int renameat2(int fd, const char *from, int td, const char *to, unsigned f) {
    die_at_name(OP_RENAME, 0, td, to);
    int64_t b = now_ns(); uint64_t replaced = inode_at(td, to);
    return renamed(fd, from, td, to, REAL(renameat2)(fd, from, td, to, f), replaced, b);
}
static int linked(int td, const char *to, int result, int64_t begin) {
    char buffer[PATH_MAX]; struct stat st; int error = errno;
    const char *name = on() && result == 0 ? resolve(td, to, buffer) : NULL;
    if (name && fstatat(td, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        struct record r = blank(OP_LINK, st.st_ino, begin);
        log_named(&r, name, 0, error);
    }
    if (result == 0) die_at_name(OP_LINK, 1, td, to);
    errno = error;
    return result;
}
EXPORT int link(const char *from, const char *to) { die_at_name(OP_LINK, 0, AT_FDCWD, to); int64_t b = now_ns(); return linked(AT_FDCWD, to, REAL(link)(from, to), b); }
EXPORT int linkat(int fd, const char *from, int td, const char *to, int f) { die_at_name(OP_LINK, 0, td, to); int64_t b = now_ns(); return linked(td, to, REAL(linkat)(fd, from, td, to, f), b); }

/* The name must be resolved before the call, the record written after it. */
#define UNLINK(DIRFD, PATH, CALL) { \
    if (!on()) return CALL; \
    char buffer[PATH_MAX]; struct stat st; int64_t begin = now_ns(); int error = errno; \
    const char *name = resolve(DIRFD, PATH, buffer); \
    int known = name && fstatat(DIRFD, PATH, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode); \
    if (known && deadly(OP_UNLINK, 0)) die_at(name); \
    errno = error; \
    int result = CALL; \
    if (known && result == 0) { \
        struct record r = blank(OP_UNLINK, st.st_ino, begin); \
        r.flags = st.st_nlink <= 1 ? F_LAST : 0; \
        log_named(&r, name, 0, errno); \
        if (deadly(OP_UNLINK, 1)) die_at(name); \
        errno = error; \
    } \
    return result; }
EXPORT int unlink(const char *path) UNLINK(AT_FDCWD, path, REAL(unlink)(path))
EXPORT int unlinkat(int dirfd, const char *path, int flags) UNLINK(dirfd, path, REAL(unlinkat)(dirfd, path, flags))
EXPORT int remove(const char *path) UNLINK(AT_FDCWD, path, REAL(remove)(path))
