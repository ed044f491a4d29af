/* An interposed library (LD_PRELOAD) that watches, and on demand spoils, what a
 * process does to the files of one directory.
 *
 * It appends one record per write, sync, open, rename, unlink, truncate and
 * (optionally) socket send to a log, and it fails or delays syncs and writes when
 * a small shared control file says so.  What the log means is left to the
 * readers (trace.py, forget.py); what to spoil is left to control.py.
 *
 * What always holds:
 * 1. a call on a file is logged after it happened and before it returns to its
 *    caller, with its begin and its end on CLOCK_MONOTONIC, which all processes
 *    share: if A returned before B was called, then end(A) <= begin(B) in the log.
 *    A send is logged before it happens, see log_send;
 * 2. a record is one write() on an O_APPEND descriptor, so records of many
 *    processes never mix, and what was logged survives kill -9 of the writer;
 * 3. an injected failure has no effect on the file: a failed sync syncs nothing,
 *    a failed write writes nothing;
 * 4. a process that is ended at a call has not made it, or has made it, logged it and
 *    not returned from it: nothing that its caller would have done next has begun.
 *
 * What it cannot see: stores through mmap, stdio buffers (fwrite), raw system
 * calls, descriptors passed over sockets.  Therefore a sync records the size the
 * file had when the sync began, and nothing depends on having seen every write.
 *
 * Environment: FAULTDISK_ROOT (files below it are watched), FAULTDISK_LOG,
 * FAULTDISK_CONTROL (optional), FAULTDISK_LOG_SOCKETS (optional: "1" for every
 * socket, or a comma separated list of local TCP ports), FAULTDISK_KEEP (optional:
 * a directory on the same file system; a watched .log file gets a second name there
 * when it is created, so that its content can be read after it was unlinked).
 */
#include "faultdisk.h"

struct entry fd_table[FDS];

char fd_keep[PATH_MAX];
static char root[PATH_MAX], log_path[PATH_MAX];
static size_t root_len;
int fd_log = -1;
uint64_t fd_log_inode;
static struct control *control;
static int sockets;                        /* 0 none, 1 all, 2 the ports below */
static uint16_t ports[16];
static int port_count;
static _Atomic pid_t owner;                /* whose table this is: a vfork child shares it and must not touch it */

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---------------------------------------------------------------- the log */

static int open_log(void) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return -1;
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOG_FD_MIN);
    if (high >= 0) { syscall(SYS_close, fd); fd = high; }
    struct stat st;
    if (fstat(fd, &st) == 0) fd_log_inode = st.st_ino;
    return fd;
}

static void append(const void *bytes, size_t n) {
    struct stat st;
    /* A process that closes every descriptor by system call closes this one too; never write into its successor. */
    if (fstat(fd_log, &st) != 0 || st.st_ino != fd_log_inode) fd_log = open_log();
    if (fd_log >= 0) syscall(SYS_write, fd_log, bytes, n);
}

struct record blank(enum op op, uint64_t file, int64_t begin) {
    struct record r = {.magic = MAGIC, .op = op, .file = file, .begin_ns = begin};
    return r;
}

static void fill(struct record *r, int64_t result, int error) {
    r->end_ns = now_ns();
    r->pid = (uint32_t)getpid();
    r->tid = (uint32_t)syscall(SYS_gettid);
    r->result = result < 0 ? -(int64_t)error : result;
}

void log_event(struct record *r, int64_t result, int error) {
    fill(r, result, error);
    append(r, sizeof *r);
    errno = error;
}

/* An event that says which name its file has: the name record goes first, in the same write. */
void log_named(struct record *r, const char *name, int64_t result, int error) {
    struct { struct record r[2]; char text[PATH_MAX + sizeof(struct record)]; } m;
    size_t n = strlen(name), padded = (n + sizeof *r - 1) / sizeof *r * sizeof *r;
    fill(r, result, error);
    char *p = (char *)&m;
    struct record nr = blank(OP_NAME, r->file, r->begin_ns);
    nr.end_ns = r->end_ns; nr.pid = r->pid; nr.tid = r->tid; nr.length = (int64_t)n;
    memcpy(p, &nr, sizeof nr); p += sizeof nr;
    memset(p, 0, padded); memcpy(p, name, n); p += padded;
    memcpy(p, r, sizeof *r); p += sizeof *r;
    append(&m, (size_t)(p - (char *)&m));
    errno = error;
}

/* ------------------------------------------------------- which descriptors */

int on(void) { return fd_log >= 0; }
int mine(void) { return getpid() == owner; }

/* The path below root, or NULL; "" is the root itself. */
static const char *below(const char *path) {
    if (!root_len || strncmp(path, root, root_len) != 0) return NULL;
    if (path[root_len] == '/') return path + root_len + 1;
    return path[root_len] ? NULL : path + root_len;
}

/* What an open descriptor is called, below root or NULL. */
const char *name_of(int fd, char *buffer) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, buffer, PATH_MAX - 1);
    if (n <= 0) return NULL;
    buffer[n] = 0;
    return below(buffer);
}

/* The canonical form of a path that may not exist yet, below root or NULL. */
const char *resolve(int dirfd, const char *path, char *buffer) {
    char whole[PATH_MAX], dir[PATH_MAX], base[NAME_MAX + 1];
    if (path[0] == '/' || dirfd == AT_FDCWD) {
        if (snprintf(whole, sizeof whole, "%s", path) >= (int)sizeof whole) return NULL;
    } else {
        char link[40];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t n = readlink(link, dir, sizeof dir - 1);
        if (n <= 0) return NULL;
        dir[n] = 0;
        if (snprintf(whole, sizeof whole, "%s/%s", dir, path) >= (int)sizeof whole) return NULL;
    }
    char *slash = strrchr(whole, '/');
    const char *last = slash ? slash + 1 : whole;
    if (strlen(last) > NAME_MAX) return NULL;
    strcpy(base, last);
    if (!slash) strcpy(whole, "."); else if (slash == whole) slash[1] = 0; else *slash = 0;
    if (!realpath(whole, dir)) return NULL;
    if (snprintf(buffer, PATH_MAX, "%s/%s", dir, base) >= PATH_MAX) return NULL;
    return below(buffer);
}

struct entry *slot(int fd) { return fd >= 0 && fd < FDS ? &fd_table[fd] : NULL; }

void drop(int fd) {
    struct entry *e = slot(fd);
    if (e && mine()) e->kind = NONE;
}

void remember(int fd, const char *name, const struct stat *st, int open_flags) {
    struct entry *e = slot(fd);
    if (!e || !mine()) return;
    size_t n = strlen(name), from = n < TAIL - 1 ? 0 : n - (TAIL - 1);
    e->kind = NONE;
    e->file = st->st_ino;
    e->flags = (uint8_t)((open_flags & (O_SYNC | O_DSYNC)) ? F_SYNCED : 0);
    memset(e->tail, 0, TAIL);
    memcpy(e->tail, name + from, n - from);
    e->kind = S_ISDIR(st->st_mode) ? DIRECTORY : FILE_;
}

/* The entry of a watched file or directory.  Descriptors can be closed behind our
 * back (uvloop closes by system call), hence the look at the inode. */
struct entry *watched(int fd) {
    struct entry *e = slot(fd);
    struct stat st;
    if (!on() || !e || (e->kind != FILE_ && e->kind != DIRECTORY)) return NULL;
    if (fstat(fd, &st) != 0 || st.st_ino != e->file || S_ISSOCK(st.st_mode)) { drop(fd); return NULL; }
    return e;
}

static int port_wanted(uint16_t port) {
    for (int i = 0; i < port_count; i++) if (ports[i] == port) return 1;
    return 0;
}

/* The entry of a socket whose sends are logged. */
struct entry *logged_socket(int fd) {
    struct entry *e = slot(fd);
    struct stat st;
    if (!on() || !sockets || !e) return NULL;
    int error = errno;
    if (fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode)) { errno = error; return NULL; }
    if ((e->kind != SOCKET && e->kind != OTHER_SOCKET) || e->file != st.st_ino) {
        if (!mine()) { errno = error; return NULL; }
        union { struct sockaddr a; struct sockaddr_in in; struct sockaddr_in6 in6; struct sockaddr_storage s; } local;
        socklen_t n = sizeof local;
        memset(&local, 0, sizeof local);
        uint16_t port = 0;
        if (getsockname(fd, &local.a, &n) == 0)
            port = local.a.sa_family == AF_INET ? ntohs(local.in.sin_port) : local.a.sa_family == AF_INET6 ? ntohs(local.in6.sin6_port) : 0;
        e->kind = NONE;
        e->file = st.st_ino;
        e->named = 0;
        e->kind = sockets == 1 || (port && port_wanted(port)) ? SOCKET : OTHER_SOCKET;
    }
    errno = error;
    return e->kind == SOCKET ? e : NULL;
}

/* "tcp:1883>40112" is the socket of port 1883 whose peer has port 40112. */
static void socket_name(int fd, char *out, size_t size) {
    union { struct sockaddr a; struct sockaddr_in in; struct sockaddr_in6 in6; struct sockaddr_storage s; } at[2];
    int port[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        socklen_t n = sizeof at[i];
        memset(&at[i], 0, sizeof at[i]);
        if ((i ? getpeername : getsockname)(fd, &at[i].a, &n) != 0) continue;
        port[i] = at[i].a.sa_family == AF_INET ? ntohs(at[i].in.sin_port) : at[i].a.sa_family == AF_INET6 ? ntohs(at[i].in6.sin6_port) : 0;
    }
    if (port[0]) snprintf(out, size, "tcp:%d>%d", port[0], port[1]);
    else snprintf(out, size, "socket");
}

/* A send is logged before it happens: its bytes can reach the peer, and the peer can have this process
 * killed, before the call returns.  It is taken to send everything; what it did not send is logged after it. */
void log_send(int fd, struct entry *e, const void *first, size_t first_n, size_t n) {
    int error = errno;
    struct record r = blank(OP_SEND, e->file, now_ns());
    r.length = (int64_t)n;
    if (first) memcpy(r.prefix, first, first_n < sizeof r.prefix ? first_n : sizeof r.prefix);
    if (e->named) { log_event(&r, (int64_t)n, error); return; }
    char name[64];
    socket_name(fd, name, sizeof name);
    e->named = 1;
    log_named(&r, name, (int64_t)n, error);
}

ssize_t log_sent(struct entry *e, size_t n, ssize_t result) {
    if (result == (ssize_t)n) return result;
    struct record r = blank(OP_UNSENT, e->file, now_ns());
    r.length = (int64_t)n - (result > 0 ? result : 0);
    log_event(&r, result, errno);
    return result;
}

/* ------------------------------------------------------------- the faults */

static int ends_with(const char *tail, const char *suffix) {
    size_t n = strnlen(tail, TAIL), m = strnlen(suffix, TAIL);
    return m <= n && memcmp(tail + n - m, suffix, m) == 0;
}

int write_refused(const struct entry *e) {
    if (!control || !control->full || !ends_with(e->tail, control->write_suffix)) return 0;
    control->writes_failed++;
    return control->write_errno ? control->write_errno : ENOSPC;
}

int sync_refused(const struct entry *e) {
    if (!control || !ends_with(e->tail, control->sync_suffix)) return 0;
    int32_t left = control->fail_syncs;
    while (left != 0) {
        if (left < 0 || atomic_compare_exchange_weak(&control->fail_syncs, &left, left - 1)) {
            control->syncs_failed++;
            return control->sync_errno ? control->sync_errno : EIO;
        }
    }
    return 0;
}

void sync_delay(const struct entry *e) {
    if (!control || !control->sync_delay_us || !ends_with(e->tail, control->sync_suffix)) return;
    control->syncs_delayed++;
    int64_t begin = now_ns();
    for (;;) {
        int64_t left_us = (int64_t)control->sync_delay_us - (now_ns() - begin) / 1000;
        if (left_us <= 0) return;
        usleep((useconds_t)(left_us < 10000 ? left_us : 10000));
    }
}

/* Whether such a call may end this process now. */
int deadly(enum op op, int after) {
    if (!control || !control->death_in || !control->death_after != !after) return 0;
    return control->death_op == (int32_t)op || (control->death_op == OP_FSYNC && op == OP_FDATASYNC);
}

/* Of one that is deadly. Other threads go on until the signal has reached them, the caller does not. */
void die_at(const char *name) {
    if (!name || fnmatch(control->death_name, name, 0) != 0) return;
    int32_t left = control->death_in;
    while (left > 0) {
        if (!atomic_compare_exchange_weak(&control->death_in, &left, left - 1)) continue;
        if (left > 1) return;
        control->deaths++;
        for (;;) kill(getpid(), SIGKILL);
    }
}

void die_at_file(enum op op, int after, int fd) {
    char buffer[PATH_MAX];
    int error = errno;
    if (deadly(op, after)) die_at(name_of(fd, buffer));
    errno = error;
}

/* ----------------------------------------------------------------- starting */

static void forked(void) { owner = getpid(); }

static void take(const char *variable, char *out) {
    const char *value = getenv(variable);
    if (!value || !value[0]) return;
    if (!realpath(value, out)) snprintf(out, PATH_MAX, "%s", value);
}

__attribute__((constructor)) static void start(void) {
    owner = getpid();
    take("FAULTDISK_ROOT", root);
    take("FAULTDISK_KEEP", fd_keep);
    const char *log = getenv("FAULTDISK_LOG"), *shared = getenv("FAULTDISK_CONTROL"), *s = getenv("FAULTDISK_LOG_SOCKETS");
    if (!root[0] || !log || !log[0]) return;
    root_len = strlen(root);
    if (root_len > 1 && root[root_len - 1] == '/') root[--root_len] = 0;
    snprintf(log_path, sizeof log_path, "%s", log);
    if (shared && shared[0]) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, shared, O_RDWR | O_CLOEXEC, 0);
        if (fd >= 0) {
            void *p = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            syscall(SYS_close, fd);
            if (p != MAP_FAILED && ((struct control *)p)->magic == CONTROL_MAGIC) control = p;
        }
    }
    if (s && s[0] && strcmp(s, "0") != 0) {
        if (strcmp(s, "1") == 0) sockets = 1;
        else {
            sockets = 2;
            for (const char *p = s; *p && port_count < 16; p += *p == ',') {
                char *end;
                ports[port_count++] = (uint16_t)strtol(p, &end, 10);
                if (end == p) break;
                p = end;
            }
        }
    }
    pthread_atfork(NULL, NULL, forked);
    fd_log = open_log();
    /* What was open already when this program image began (redirected output, an inherited file). */
    for (int fd = 0; fd < 256; fd++) {
        char buffer[PATH_MAX];
        struct stat st;
        if (fd == fd_log || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        const char *name = name_of(fd, buffer);
        int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
        if (!name || st.st_ino == fd_log_inode || (flags & O_ACCMODE) == O_RDONLY) continue;
        remember(fd, name, &st, flags);
        struct record r = blank(OP_OPEN, st.st_ino, now_ns());
        r.length = st.st_size;
        log_named(&r, name, fd, 0);
    }
    errno = 0;
}
