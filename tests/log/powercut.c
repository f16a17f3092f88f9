/* A disk whose power can fail: a library to preload (LD_PRELOAD) into a program that writes files.

   kill -9 loses nothing that the kernel has. So every change to a file or a name below POWERCUT_ROOT is noted,
   with what was there before, in the file POWERCUT_JOURNAL; a sync is noted too, and not carried out. When the
   process is dead, powercut.py takes back what no sync has covered: any part of it, sector by sector.

   POWERCUT_AT: the process kills itself with -9 at its so-manieth change or sync: a write stops in its middle,
   all else has just happened. POWERCUT_FAIL: its so-manieth sync of a file fails, as Linux does it: what was written
   and not synced is lost, unless it is written again, and a later sync succeeds all the same; every descriptor of
   the file is told once. Nothing is done before POWERCUT_ROOT is set, so a process can set it after a fork.

   A record of the journal: kind, bytes of names, inode, offset, bytes of old content, old size of the file, and
   for a sync the number of records that it covers; then the names (each with a 0 behind it), then the content. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITTEN = 1, RESIZED, SYNCED, CREATED, RENAMED, REMOVED, DIRECTORY_SYNCED, SYNC_FAILED };

struct record {
    uint32_t kind, names_bytes;
    uint64_t inode, offset, old_bytes, old_size, covered;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static uint64_t records, changes, kill_at, syncs, fail_at, failed_inode;
static int told_fd;
static char root[PATH_MAX];

static void fail(const char *what) {
    perror(what);
    _exit(70);
}

static int is_on(void) {
    if (journal >= 0)
        return 1;
    const char *wanted = getenv("POWERCUT_ROOT"), *path = getenv("POWERCUT_JOURNAL"), *at = getenv("POWERCUT_AT");
    if (!wanted || !path)
        return 0;
    snprintf(root, sizeof root, "%s", wanted);
    kill_at = at ? strtoull(at, NULL, 10) : 0;
    const char *fails = getenv("POWERCUT_FAIL"), *before = getenv("POWERCUT_RECORDS");
    fail_at = fails ? strtoull(fails, NULL, 10) : 0;
    records = before ? strtoull(before, NULL, 10) : 0;
    journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0)
        fail("powercut: journal");
    return 1;
}

static int is_below(const char *path) {
    return strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

static void note(struct record *record, const char *first, const char *second, const void *old) {
    record->names_bytes = (first ? strlen(first) + 1 : 0) + (second ? strlen(second) + 1 : 0);
    struct iovec parts[4] = {
        {record, sizeof *record},
        {(void *)first, first ? strlen(first) + 1 : 0},
        {(void *)second, second ? strlen(second) + 1 : 0},
        {(void *)old, record->old_bytes},
    };
    ssize_t whole = sizeof *record + record->names_bytes + record->old_bytes;
    if (syscall(SYS_writev, journal, parts, 4) != whole)
        fail("powercut: cannot write the journal");
    records++;
}

static int is_moment(void) {
    return ++changes == kill_at;
}

static void cut(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    pause();
}

static void note_write(int fd, size_t size, off_t offset) {
    struct stat now;
    if (fstat(fd, &now))
        fail("powercut: fstat");
    char *old = calloc(1, size + 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC); /* it may be open for writing only */
    if (!old || reader < 0 || syscall(SYS_pread64, reader, old, size, offset) < 0)
        fail("powercut: cannot read what is there");
    close(reader);
    struct record record = {WRITTEN, 0, now.st_ino, offset, size, now.st_size, 0};
    note(&record, NULL, NULL, old);
    free(old);
}

static ssize_t write_pieces(int fd, const struct iovec *pieces, int count, off_t offset) {
    char path[PATH_MAX];
    if (!is_on() || !path_of(fd, path))
        return syscall(SYS_pwritev, fd, pieces, (long)count, offset, 0L);
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += pieces[i].iov_len;
    pthread_mutex_lock(&lock);
    note_write(fd, size, offset);
    if (is_moment()) {
        struct iovec half = pieces[0];
        if (count == 1)
            half.iov_len /= 2;
        syscall(SYS_pwritev, fd, &half, 1L, offset, 0L);
        cut();
    }
    ssize_t written = syscall(SYS_pwritev, fd, pieces, (long)count, offset, 0L);
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    return write_pieces(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t offset) {
    return write_pieces(fd, pieces, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    (void)flags;
    return write_pieces(fd, pieces, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    (void)flags;
    return write_pieces(fd, pieces, count, offset);
}

ssize_t pwrite(int fd, const void *content, size_t size, off_t offset) {
    struct iovec piece = {(void *)content, size};
    return write_pieces(fd, &piece, 1, offset);
}

ssize_t pwrite64(int fd, const void *content, size_t size, off_t offset) {
    return pwrite(fd, content, size, offset);
}

ssize_t write(int fd, const void *content, size_t size) {
    char path[PATH_MAX];
    if (is_on() && path_of(fd, path)) {
        fprintf(stderr, "powercut: write() to %s: use pwrite()\n", path);
        _exit(70);
    }
    return syscall(SYS_write, fd, content, size);
}

static int resize(int fd, off_t size, int is_growing) {
    char path[PATH_MAX];
    int is_ours = is_on() && path_of(fd, path);
    if (is_ours) {
        struct stat now;
        pthread_mutex_lock(&lock);
        if (fstat(fd, &now))
            fail("powercut: fstat");
        struct record record = {RESIZED, 0, now.st_ino, size, 0, now.st_size, 0};
        note(&record, NULL, NULL, NULL);
    }
    int result = is_growing ? syscall(SYS_fallocate, fd, 0L, 0L, size) : syscall(SYS_ftruncate, fd, size);
    if (is_ours) {
        int error = errno;
        if (is_moment())
            cut();
        pthread_mutex_unlock(&lock);
        errno = error;
    }
    return result;
}

int ftruncate(int fd, off_t size) { return resize(fd, size, 0); }
int ftruncate64(int fd, off_t size) { return resize(fd, size, 0); }
int posix_fallocate(int fd, off_t offset, off_t size) { return resize(fd, offset + size, 1) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

static int sync_file(int fd, long call) {
    char path[PATH_MAX];
    if (!is_on() || !path_of(fd, path))
        return syscall(call, fd);
    struct stat now;
    if (fstat(fd, &now))
        fail("powercut: fstat");
    pthread_mutex_lock(&lock);
    uint64_t covered = records;
    pthread_mutex_unlock(&lock);
    usleep(200); /* others may write meanwhile */
    pthread_mutex_lock(&lock);
    int is_first = !S_ISDIR(now.st_mode) && ++syncs == fail_at;
    int is_failing = is_first || (failed_inode == now.st_ino && fd != told_fd);
    struct record record = {S_ISDIR(now.st_mode) ? DIRECTORY_SYNCED : SYNCED, 0, now.st_ino, 0, 0, 0, covered};
    if (is_first) {
        record.kind = SYNC_FAILED;
        failed_inode = now.st_ino;
        told_fd = fd;
    } else if (is_failing)
        failed_inode = 0;
    if (is_first || !is_failing)
        note(&record, NULL, NULL, NULL);
    if (is_moment())
        cut();
    pthread_mutex_unlock(&lock);
    errno = EIO;
    return is_failing ? -1 : 0;
}

int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
int fsync(int fd) { return sync_file(fd, SYS_fsync); }

static int open_file(int directory, const char *path, int flags, mode_t mode) {
    struct stat now;
    if (!is_on() || !is_below(path))
        return syscall(SYS_openat, directory, path, flags, mode);
    if (!(flags & O_CREAT)) {
        pthread_mutex_lock(&lock);
        if ((flags & O_ACCMODE) != O_RDONLY && stat(path, &now) == 0 && now.st_ino == failed_inode)
            failed_inode = 0; /* a new descriptor hears nothing of what others were told */
        pthread_mutex_unlock(&lock);
        return syscall(SYS_openat, directory, path, flags, mode);
    }
    pthread_mutex_lock(&lock);
    int is_new = stat(path, &now) != 0;
    int fd = syscall(SYS_openat, directory, path, flags, mode);
    int error = errno;
    if (fd >= 0 && is_new) {
        if (fstat(fd, &now))
            fail("powercut: fstat");
        struct record record = {CREATED, 0, now.st_ino, 0, 0, 0, 0};
        note(&record, path, NULL, NULL);
        if (is_moment())
            cut();
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE(flags, last)                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return open_file(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return open_file(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, flags) return open_file(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, flags) return open_file(at, path, flags, mode); }

int rename(const char *from, const char *to) {
    int is_ours = is_on() && is_below(from);
    struct record record = {RENAMED, 0, 0, 0, 0, 0, 0};
    struct stat now;
    if (is_ours) {
        pthread_mutex_lock(&lock);
        if (stat(from, &now) == 0)
            record.inode = now.st_ino;
        note(&record, from, to, NULL);
    }
    int result = syscall(SYS_rename, from, to);
    if (is_ours) {
        int error = errno;
        if (is_moment())
            cut();
        pthread_mutex_unlock(&lock);
        errno = error;
    }
    return result;
}

int unlink(const char *path) {
    int is_ours = is_on() && is_below(path);
    if (is_ours) {
        struct stat now;
        pthread_mutex_lock(&lock);
        if (stat(path, &now) == 0) {
            char grave[PATH_MAX + 64]; /* the file itself must stay, in case its name comes back */
            snprintf(grave, sizeof grave, "%s.%llu", getenv("POWERCUT_JOURNAL"), (unsigned long long)now.st_ino);
            syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, grave, 0L);
            struct record record = {REMOVED, 0, now.st_ino, 0, 0, 0, 0};
            note(&record, path, NULL, NULL);
        }
    }
    int result = syscall(SYS_unlink, path);
    if (is_ours) {
        int error = errno;
        if (is_moment())
            cut();
        pthread_mutex_unlock(&lock);
        errno = error;
    }
    return result;
}
