#include "storage.h"
#include "extent.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* linux/stat.h has these, but in older editions not all, and it quarrels with sys/stat.h. */
enum { WANT_MOUNT_ID = 0x1000, WANT_DIRECT = 0x2000, EMPTY_PATH = 0x1000 };

/* struct statx of the kernel, as far as it is used here. */
typedef struct {
    uint32_t mask;
    uint32_t unused[35];
    uint64_t mount_id;
    uint32_t direct_memory_alignment, direct_offset_alignment;
    uint32_t later[24];
} kernel_statx;

_Static_assert(sizeof(kernel_statx) == 256, "struct statx has 256 bytes");
_Static_assert(offsetof(kernel_statx, mount_id) == 0x90, "stx_mnt_id");
_Static_assert(offsetof(kernel_statx, direct_offset_alignment) == 0x9c, "stx_dio_offset_align");

/* Disks of this machine, whose file systems make up a device number: btrfs, bcachefs, ZFS. */
static bool makes_up_its_device(uint64_t magic)
{
    return magic == 0x9123683e || magic == 0xca451a4e || magic == 0x2fc12fc1;
}

/* ext2 to ext4, btrfs and tmpfs. XFS zeroes first; what others do was not seen. */
static bool unmaps_first(uint64_t magic)
{
    return magic == 0xef53 || magic == 0x9123683e || magic == 0x01021994;
}

static void look_at_statx(int fd, lio_storage *out)
{
    kernel_statx found;
    memset(&found, 0, sizeof found);
    if (syscall(SYS_statx, fd, "", EMPTY_PATH, WANT_MOUNT_ID | WANT_DIRECT, &found) != 0)
        return;
    if ((found.mask & WANT_MOUNT_ID) != 0)
        out->mount_id = found.mount_id;
    if ((found.mask & WANT_DIRECT) != 0) {
        out->direct_known = true;
        out->direct_alignment = found.direct_offset_alignment;
    }
}

void lio_storage_probe_type(int fd, lio_storage *out)
{
    struct stat status;
    struct statfs system;
    *out = (lio_storage){0};
    if (fstatfs(fd, &system) == 0) {
        out->magic = (uint64_t)system.f_type & 0xffffffffu;
        out->unmaps_first = unmaps_first(out->magic);
        memcpy(&out->id, &system.f_fsid, sizeof out->id);
    }
    if (fstat(fd, &status) == 0) {
        out->block_bytes = (uint64_t)status.st_blksize;
        out->device_major = major(status.st_dev);
        out->device_minor = minor(status.st_dev);
        /* Network and FUSE file systems have numbers of their own making too, of major 0. */
        out->disk = out->device_major != 0 || makes_up_its_device(out->magic);
    }
}

void lio_storage_probe(int fd, lio_storage *out)
{
    lio_storage_probe_type(fd, out);
    look_at_statx(fd, out);
}

/* A setting of the queue of a device, or of the disk that a partition is of; `fallback`: there is none. */
static unsigned long queue_setting(const struct stat *status, const char *name,
                                   unsigned long fallback)
{
    static const char *const of[] = {"", "../"};
    char path[96], text[24];
    for (size_t i = 0; i < 2; i++) {
        ssize_t got;
        int fd;
        (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%squeue/%s", major(status->st_dev),
                       minor(status->st_dev), of[i], name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        got = read(fd, text, sizeof text - 1);
        (void)close(fd);
        if (got > 0) {
            text[got] = '\0';
            return strtoul(text, NULL, 10);
        }
    }
    return fallback;
}

/* A disk of 150 MB/s moves its heads in the time of 1 MiB. Virtual disks say that they have heads. */
enum { LONG_READAHEAD_KIB = 2048 };

/* Shorter requests get less of a fast disk. */
enum { REQUEST_KIB = 1024 };

bool lio_storage_seeks(int fd)
{
    struct stat status;
    /* Of several disks, or numbers of its own making: not known. */
    if (fstat(fd, &status) != 0 || major(status.st_dev) == 0)
        return true;
    return queue_setting(&status, "rotational", 0) == 1 &&
           queue_setting(&status, "read_ahead_kb", 0) < LONG_READAHEAD_KIB;
}

bool lio_storage_reads_far(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && major(status.st_dev) != 0 &&
           queue_setting(&status, "read_ahead_kb", 0) >= REQUEST_KIB;
}

int lio_storage_release(int fd, uint64_t offset, uint64_t length)
{
    if (length == 0)
        return 0;
    if (!lio_fits(offset, length, INT64_MAX))
        return EINVAL;
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return fallocate(fd, mode, (off_t)offset, (off_t)length) == 0 ? 0 : errno;
}
