/* A disk that stalls: preloaded, it makes a process wait at each write to a file below a folder, and at each sync of
 * such a file. How long, in milliseconds, is in a file of eight bytes, which may change at any time.
 *
 * SLOW_FOLDER: the folder. SLOW_DISK: the file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *pause_ms;
static const char *folder;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SLOW_DISK");
    folder = getenv("SLOW_FOLDER");
    int file = path && folder ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *pause_ms, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        pause_ms = mapped;
    close(file);
}

static void stall(int fd)
{
    if (!pause_ms || *pause_ms <= 0)
        return;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    size_t folder_length = strlen(folder);
    if (length < 0 || (size_t)length < folder_length || memcmp(path, folder, folder_length) != 0)
        return;
    int64_t ms = *pause_ms;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

#define REAL(result, name, parameters)                     \
    static result (*real) parameters;                      \
    if (!real)                                             \
        real = (result (*) parameters)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t length)
{
    REAL(ssize_t, write, (int, const void *, size_t));
    stall(fd);
    return real(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    REAL(ssize_t, pwrite, (int, const void *, size_t, off_t));
    stall(fd);
    return real(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    REAL(ssize_t, pwrite64, (int, const void *, size_t, off64_t));
    stall(fd);
    return real(fd, bytes, length, at);
}

int fsync(int fd)
{
    REAL(int, fsync, (int));
    stall(fd);
    return real(fd);
}

int fdatasync(int fd)
{
    REAL(int, fdatasync, (int));
    stall(fd);
    return real(fd);
}
