/* engine_kind: the seam between the engine and its ways of reading.
 *
 * A kind performs one request at a time, blocking, from many threads at once; the engine
 * around it carries the concurrency, the counters and the errors. Private to csrc.
 */
#ifndef LIO_ENGINE_KIND_H
#define LIO_ENGINE_KIND_H

#include <stdbool.h>
#include <sys/uio.h>

#include "buffer.h"
#include "engine.h"

typedef struct lio_source lio_source; /* what a kind keeps open */

/* What came of a read that must not wait. */
typedef enum {
    LIO_PEEK_NOTHING, /* the bytes are not there, or not all */
    LIO_PEEK_BEGUN,   /* the same, but they are on their way to the page cache */
    LIO_PEEK_BY_CALL, /* all there, from the kernel */
    LIO_PEEK_MAPPED   /* all there, out of a mapping: the file was whole then */
} lio_peek;

/* How a peek would most likely be served. */
typedef enum {
    LIO_HOLDS_NOT,
    LIO_HOLDS_BY_CALL, /* of the kernel */
    LIO_HOLDS_MAPPED
} lio_holds;

typedef struct {
    const char *name;
    uint32_t alignment; /* power of two */
    /* Reads up to read->length bytes, at least read->needed; `*received` and `*calls` are
     * filled also on failure. */
    int (*read)(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                lio_error *error);
    /* Fills `into`, over which the bytes of `read` are cut (read->into is not looked at), with what
     * is there without waiting. NULL: this kind always waits. */
    lio_peek (*peek)(lio_source *source, const lio_read *read, const struct iovec *into,
                     int count);
    /* Whether a peek would give all of that, which is cheaper to ask than to try; for a short one
     * to try is cheaper, and unless `sure` the answer is yes. NULL where `peek` is. */
    lio_holds (*holds)(lio_source *source, uint64_t offset, uint64_t length, bool sure);
    /* Touches what a peek would copy out of a mapping, and how many faults that would most likely
     * be. NULL, both: no mapping. */
    void (*prefault)(lio_source *source, uint64_t offset, uint64_t length);
    size_t (*untouched)(lio_source *source, lio_extent extent);
    /* Asks for the bytes to be brought into the page cache. NULL: no page cache. */
    int (*populate)(lio_source *source, uint64_t offset, uint64_t length, lio_error *error);
    int (*size)(lio_source *source, uint64_t *size, lio_error *error);
    void (*close)(lio_source *source);
    int (*fd)(const lio_source *source);
} lio_kind;

extern const lio_kind lio_kind_pread;
extern const lio_kind lio_kind_direct;
extern const lio_kind lio_kind_staged;
extern const lio_kind lio_kind_uring;
extern const lio_kind lio_kind_mmap;
extern const lio_kind lio_kind_memory;

/* Each kind's own way to open its source. */
int lio_pread_open(const char *path, lio_source **out, lio_error *error);
void lio_pread_map_cached(lio_source *source, uint64_t bytes_max);
int lio_pread_scatter(lio_source *source, const lio_read *reads, size_t count,
                      uint64_t *received, uint64_t *calls, lio_error *error);
int lio_direct_open(const char *path, lio_source **out, lio_error *error);
int lio_uring_open(const char *path, lio_source **out, lio_error *error);
int lio_mmap_open(const char *path, lio_source **out, lio_error *error);
int lio_memory_open(const uint8_t *bytes, uint64_t size, lio_source **out, lio_error *error);
/* The mapping (borrowed until close) and how much of the file lies in it. */
const uint8_t *lio_mmap_span(const lio_source *source, uint64_t *size);
void lio_memory_script(lio_source *source, uint64_t every, int sys_errno, uint32_t delay_us);

/* Direct reads begin and end on multiples of this, in file and memory. */
enum { LIO_DIRECT_ALIGNMENT = LIO_BUFFER_ALIGNMENT };
int lio_direct_check(const lio_read *read, lio_error *error);

/* Shared by the kinds that have a descriptor: opens a regular file for reading. */
int lio_open_file(const char *path, int *fd, lio_error *error);
int lio_file_size(int fd, uint64_t *size, lio_error *error);
/* How many of `length` bytes (0: to the end of the file) are in the page cache; false where
 * the kernel cannot say. */
bool lio_cached_bytes(int fd, uint64_t offset, uint64_t length, uint64_t *bytes);
/* pread until `length` bytes or the end of the file, from multiples of `alignment` on. */
int lio_pread_all(int fd, const lio_read *read, uint32_t alignment, uint64_t *received,
                  uint64_t *calls, lio_error *error);
int lio_short_read(const lio_read *read, uint64_t received, lio_error *error);

#endif
