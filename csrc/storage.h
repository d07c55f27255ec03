/* storage: what is under an open file, as far as the kernel says. Reads nothing of the file,
 * and never fails: what is not known is 0.
 */
#ifndef LIO_STORAGE_H
#define LIO_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t magic;        /* statfs's f_type, such as 0xEF53 for ext4                     */
    uint64_t id;           /* statfs's f_fsid: the file system's own, where it has one     */
    uint64_t block_bytes;  /* stat's st_blksize: what the file system likes to be asked    */
    uint64_t mount_id;     /* in /proc/self/mountinfo                                      */
    uint32_t device_major; /* of stat's st_dev                                             */
    uint32_t device_minor;
    uint32_t direct_alignment; /* of offsets for O_DIRECT (STATX_DIOALIGN, from Linux 6.1 on)  */
    bool direct_known;         /* the kernel said it: then an alignment of 0 means no O_DIRECT */
    bool disk;                 /* a disk of this machine is under the file system              */
    bool unmaps_first;         /* who cuts a file takes what lay behind out of all mappings     */
                               /* before the rest of the page that it now ends in becomes zeros */
} lio_storage;

/* `fd` may be any number; a bad one gives zeros. */
void lio_storage_probe(int fd, lio_storage *out);

/* The same but `mount_id`, `direct_known` and `direct_alignment`, which take a call of the kernel more. */
void lio_storage_probe_type(int fd, lio_storage *out);

/* Whether two streams of the file would have a disk move its heads all the time: it has some, as far as
 * the kernel says, which does not read far ahead; or nobody knows. */
bool lio_storage_seeks(int fd);

/* Whether the kernel reads ahead as much as a request should have: a mapping's pages come so. */
bool lio_storage_reads_far(int fd);

/* Gives a range of a file back to the file system: it reads as zeros from then on, and the file is as
 * long as it was. Returns 0, or errno. */
int lio_storage_release(int fd, uint64_t offset, uint64_t length);

#endif
