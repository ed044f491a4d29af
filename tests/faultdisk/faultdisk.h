/* What the two halves of the library share: the record, the control block, and
 * the small functions between them.  state.c has the log, the table of descriptors
 * and the faults; calls.c has the wrapped calls.
 */
#ifndef FAULTDISK_H
#define FAULTDISK_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define FDS 262144   /* descriptors above this number are not watched */
#define TAIL 16      /* how much of a file name a suffix rule can look at */
#define PATTERN 64
#define LOG_FD_MIN 900

enum op {
    OP_NAME = 1, OP_OPEN, OP_WRITE, OP_FSYNC, OP_FDATASYNC, OP_SYNC_FILE_RANGE, OP_SYNCFS,
    OP_RENAME, OP_UNLINK, OP_TRUNCATE, OP_CLOSE, OP_SEND, OP_ALLOCATE, OP_RESET, OP_LINK, OP_UNSENT
};
enum flag { F_CREATED = 1, F_TRUNCATED = 2, F_APPEND = 4, F_SYNCED = 8, F_DIRECTORY = 16, F_INJECTED = 32, F_LAST = 64 };

struct record {               /* little endian, 96 bytes; trace.py knows it as RECORD */
    uint32_t magic;
    uint16_t op, flags;
    uint32_t pid, tid;
    int64_t begin_ns, end_ns;
    uint64_t file;            /* inode number; of a socket, its socket inode */
    int64_t offset, length;
    int64_t result;           /* what the call returned, or minus errno */
    uint64_t other;           /* rename: inode replaced, or 0 */
    uint64_t spare;
    uint8_t prefix[16];       /* the first bytes written or sent */
};
_Static_assert(sizeof(struct record) == 96, "trace.py reads 96 bytes");
#define MAGIC 0x31524446u     /* "FDR1" */

struct control {              /* shared by every process; control.py knows it as CONTROL */
    uint32_t magic;           /* "FDC1" */
    _Atomic int32_t fail_syncs;     /* so many further syncs fail; below 0: all, until set back */
    int32_t sync_errno;
    char sync_suffix[TAIL];         /* only files whose name ends so; empty: all */
    _Atomic int32_t full;           /* while not 0, writes fail */
    int32_t write_errno;
    char write_suffix[TAIL];
    _Atomic uint32_t sync_delay_us; /* read again every 10 ms, so a delay can be lifted */
    _Atomic uint64_t syncs_failed, writes_failed, syncs_delayed;
    _Atomic int32_t death_in;       /* so many such calls from now on, and the last of them ends its process; 0: none does */
    int32_t death_op;               /* OP_FSYNC: also an fdatasync */
    int32_t death_after;            /* 0: before it happens; else when it has happened and is logged */
    int32_t spare;
    char death_name[PATTERN];       /* as a shell has it, of the path below the root; of a rename the new one */
    _Atomic uint64_t deaths;
};
_Static_assert(sizeof(struct control) == 168, "control.py maps 168 bytes");
#define CONTROL_MAGIC 0x31434446u

enum kind { NONE = 0, FILE_, DIRECTORY, SOCKET, OTHER_SOCKET };
struct entry {
    _Atomic uint8_t kind;
    uint8_t flags;
    uint8_t named;
    char tail[TAIL];          /* the end of the name at open; a rename does not change it */
    uint64_t file;
};

#define REAL(name) ({ \
    static __typeof__(&name) real_; \
    if (!real_) real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real_; })

/* state.c */
extern char fd_keep[PATH_MAX];     /* FAULTDISK_KEEP or empty */
extern int fd_log;                 /* the log's descriptor, -1 while nothing is watched */
extern uint64_t fd_log_inode;
extern struct entry fd_table[FDS];

int64_t now_ns(void);
struct record blank(enum op op, uint64_t file, int64_t begin);
void log_event(struct record *r, int64_t result, int error);
void log_named(struct record *r, const char *name, int64_t result, int error);
void log_send(int fd, struct entry *e, const void *first, size_t first_n, size_t n);
ssize_t log_sent(struct entry *e, size_t n, ssize_t result);

int on(void);
int mine(void);
const char *name_of(int fd, char *buffer);
const char *resolve(int dirfd, const char *path, char *buffer);
struct entry *slot(int fd);
void drop(int fd);
void remember(int fd, const char *name, const struct stat *st, int open_flags);
struct entry *watched(int fd);
struct entry *logged_socket(int fd);

int write_refused(const struct entry *e);
int sync_refused(const struct entry *e);
void sync_delay(const struct entry *e);
int deadly(enum op op, int after);
void die_at(const char *name);
void die_at_file(enum op op, int after, int fd);
#endif
