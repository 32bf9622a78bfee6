/* A disk that stalls, or is full: preloaded, it makes a process wait at each write to a file below a folder and at each
 * sync of such a file, and lets no such file grow. A file says so, which may change at any time: eight bytes, how long to
 * wait in milliseconds; eight bytes, other than 0 if it is full; eight bytes, other than 0 if no sync ends for now; eight
 * bytes, other than 0 if each sync fails: the error.
 *
 * BAD_FOLDER: the folder. BAD_DISK: the file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const volatile struct {
    int64_t pause_ms;
    int64_t is_full;
    int64_t holds_syncs;
    int64_t fails_syncs;
} *disk;
static const char *folder;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("BAD_DISK"), *named = getenv("BAD_FOLDER");
    /* Servers that show what they do in their process's title write over their environment. */
    folder = named ? strdup(named) : NULL;
    int file = path && folder ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *disk, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        disk = mapped;
    close(file);
}

static int is_on_it(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    size_t folder_length = strlen(folder);
    if (length < 0 || (size_t)length < folder_length || memcmp(path, folder, folder_length) != 0)
        return 0;
    return (size_t)length == folder_length || path[folder_length] == '/';
}

static void stall(int fd)
{
    if (!disk || disk->pause_ms <= 0 || !is_on_it(fd))
        return;
    int64_t ms = disk->pause_ms;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Whether a file would have to grow in order to reach this far, and cannot. What is there already may be written. */
static int lacks_room(int fd, off_t end)
{
    struct stat there;
    return disk && disk->is_full && is_on_it(fd) && fstat(fd, &there) == 0 && end > there.st_size;
}

static int lacks_room_at_end(int fd, size_t length)
{
    if (!disk || !disk->is_full)
        return 0;
    int is_appended = fcntl(fd, F_GETFL) & O_APPEND;
    return lacks_room(fd, (off_t)length + lseek(fd, 0, is_appended ? SEEK_END : SEEK_CUR));
}

static ssize_t no_room(void)
{
    errno = ENOSPC;
    return -1;
}

static size_t sum(const struct iovec *parts, int count)
{
    size_t length = 0;
    for (int part = 0; part < count; part++)
        length += parts[part].iov_len;
    return length;
}

#define REAL(result, name, parameters)                     \
    static result (*real) parameters;                      \
    if (!real)                                             \
        real = (result (*) parameters)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t length)
{
    REAL(ssize_t, write, (int, const void *, size_t));
    stall(fd);
    return lacks_room_at_end(fd, length) ? no_room() : real(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    REAL(ssize_t, pwrite, (int, const void *, size_t, off_t));
    stall(fd);
    return lacks_room(fd, at + (off_t)length) ? no_room() : real(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    REAL(ssize_t, pwrite64, (int, const void *, size_t, off64_t));
    stall(fd);
    return lacks_room(fd, at + (off_t)length) ? no_room() : real(fd, bytes, length, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    REAL(ssize_t, pwritev, (int, const struct iovec *, int, off_t));
    stall(fd);
    return lacks_room(fd, at + (off_t)sum(parts, count)) ? no_room() : real(fd, parts, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    REAL(ssize_t, pwritev64, (int, const struct iovec *, int, off64_t));
    stall(fd);
    return lacks_room(fd, at + (off_t)sum(parts, count)) ? no_room() : real(fd, parts, count, at);
}

int posix_fallocate(int fd, off_t at, off_t length)
{
    REAL(int, posix_fallocate, (int, off_t, off_t));
    return lacks_room(fd, at + length) ? ENOSPC : real(fd, at, length);
}

int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    REAL(int, posix_fallocate64, (int, off64_t, off64_t));
    return lacks_room(fd, at + length) ? ENOSPC : real(fd, at, length);
}

/* Waits until a sync may end. Says whether it has to fail. */
static int sync_fails(int fd)
{
    const struct timespec pause = {0, 1000000};
    stall(fd);
    if (!disk || !is_on_it(fd))
        return 0;
    while (disk->holds_syncs)
        nanosleep(&pause, NULL);
    return disk->fails_syncs != 0;
}

static int broken(void)
{
    errno = (int)disk->fails_syncs;
    return -1;
}

int fsync(int fd)
{
    REAL(int, fsync, (int));
    return sync_fails(fd) ? broken() : real(fd);
}

int fdatasync(int fd)
{
    REAL(int, fdatasync, (int));
    return sync_fails(fd) ? broken() : real(fd);
}
