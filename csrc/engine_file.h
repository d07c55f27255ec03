/* engine_file: the seam between an engine and the kinds of file that it reads.
 *
 *   engine  -> queue, page cache -> file: pread, direct, staged, uring, mmap,
 *                                         joined, remote
 *
 * A kind is a table of functions. It performs one request at a time and blocks meanwhile; many
 * threads call it at once. A function that a kind lacks is NULL in its table, and nobody asks for its name.
 *
 * Private to the engine.
 */
#ifndef LIO_ENGINE_FILE_H
#define LIO_ENGINE_FILE_H

#include <stdbool.h>
#include <sys/uio.h>

#include "buffer.h"
#include "engine.h"

typedef struct lio_source lio_source; /* what a kind keeps open */

/* Whether the calling thread gets bytes without waiting for the storage, and how. */
typedef enum {
    LIO_CACHED_NOT,     /* it does not, or not all of them */
    LIO_CACHED_SOON,    /* the same, but the kernel has begun to bring them into the page cache */
    LIO_CACHED_BY_CALL, /* the kernel copies all of them out of the page cache */
    LIO_CACHED_MAPPED /* the thread copies all of them out of a mapping; the file was whole then */
} lio_cached;

typedef struct lio_file lio_file;
typedef struct lio_mapped lio_mapped;           /* engine_mapped.h */
typedef struct lio_mapped_file lio_mapped_file; /* one of the files in it */
typedef struct lio_buffered lio_buffered;       /* engine_buffered.h */

typedef struct {
    const char *name;
    uint32_t alignment; /* of offsets, lengths and memory, in bytes; a power of two */
    bool is_ringed;     /* an io_uring may carry the reads of its descriptor */
    uint32_t
        stack_bytes; /* of a thread that carries reads; 0: the usual, for calls of the kernel */
    /* Fills in the rest of a file whose descriptor is open, which it may put another one in the place of.
     * NULL: the kind has no path. */
    int (*open)(lio_file *file, lio_error *error);
    /* Reads up to read->length bytes, at least read->needed. The function adds to `*received` and
     * `*calls` also when it fails. */
    int (*read)(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                lio_error *error);
    /* Reads neighbours (lio_engine_scatter), in one call of the kernel. NULL: each takes a call. */
    int (*scatter)(lio_source *source, const lio_read *reads, size_t count, uint64_t *received,
                   uint64_t *calls, lio_error *error);
    /* The mapping that the kind lends (borrowed until close), and how many bytes of the file it
     * has. NULL: it lends none. */
    const uint8_t *(*map)(const lio_source *source, uint64_t *size);
    /* Has those of `reads` end soon, with an error, that are under way. NULL: they do by themselves. */
    void (*give_up)(lio_source *source, const lio_read *reads, size_t count);
    int (*size)(lio_source *source, uint64_t *size, lio_error *error); /* NULL: the descriptor's */
    void (*close)(lio_source *source);                                 /* NULL: another owns it */
    /* See lio_engine_cached. NULL: by the descriptor. */
    bool (*cached)(lio_source *source, uint64_t offset, uint64_t length, uint64_t *bytes);
    /* See lio_engine_expect_random. NULL: there is nothing to do. */
    void (*expect_random)(lio_source *source);
    /* Counts one owner more of the source, each of whom closes it. NULL: it has one. */
    lio_source *(*share)(lio_source *source);

    /* Of kinds that read by way of the page cache; NULL in all others. */

    /* Fills `into`, over which the bytes of `read` are cut (the function ignores read->into), with
     * what is there without waiting; never LIO_CACHED_SOON and filled. */
    lio_cached (*try_read)(lio_source *source, const lio_read *read, const struct iovec *into,
                           int count);
    /* The most likely result of try_read, where to ask is cheaper than to try. For a short read
     * to try is cheaper: unless `sure`, the answer is then that the kernel would copy it. */
    lio_cached (*holds)(lio_source *source, uint64_t offset, uint64_t length, bool sure);
    /* Finds the file of a mapping that has all of these bytes, and where in it; NULL: none. Where there is
     * one file alone, the function is NULL. */
    lio_mapped_file *(*place)(lio_source *source, uint64_t *offset, uint64_t length);
    /* Asks the kernel to bring the bytes into the page cache. `is_stream`: by reading them. */
    int (*populate)(lio_source *source, uint64_t offset, uint64_t length, bool is_stream,
                    lio_error *error);
} lio_file_kind;

/* An open file. Its owner closes it by lio_file_close. */
struct lio_file {
    const lio_file_kind *kind;
    lio_source *source;
    int fd;              /* -1: none */
    bool keeps_state;    /* a read fails once it has left the state that it was opened in */
    lio_buffered *known; /* NULL: the kind goes past the page cache, or cannot tell */
};

extern const lio_file_kind lio_file_pread;
extern const lio_file_kind lio_file_direct;
extern const lio_file_kind lio_file_staged;
extern const lio_file_kind lio_file_uring;
extern const lio_file_kind lio_file_mmap;

/* A file over others, read through the page cache; see lio_engine_open_joined and engine_joined.c. */
int lio_file_joined(const char *names, const lio_part *parts, size_t count, uint32_t open_max,
                    lio_file *out, lio_error *error);

/* A file that `remote` (borrowed until close) reads. */
lio_file lio_file_remote(lio_remote *remote);

/* While another process cuts a file, Linux may give zeros for the rest of the page in which the file
 * ends by then. So this asks for the size after the reads: LIO_ERR_SHORT when the file ends before
 * what one of them needed. */
int lio_file_check_size(lio_file file, const lio_read *reads, size_t count, lio_error *error);

/* Direct reads begin and end on multiples of this, in file and memory. */
enum { LIO_DIRECT_ALIGNMENT = LIO_BUFFER_ALIGNMENT };
int lio_direct_check(const lio_read *read, lio_error *error);

void lio_file_close(lio_file file);
int lio_file_size(lio_file file, uint64_t *size, lio_error *error);

/* For the kinds that have a descriptor: opens a regular file for reading. */
int lio_open_file(const char *path, int *fd, lio_error *error);
int lio_fd_size(int fd, uint64_t *size, lio_error *error);
/* How many of `length` bytes (0: to the end of the file) the page cache holds; false where the
 * kernel cannot say. */
bool lio_cached_bytes(int fd, uint64_t offset, uint64_t length, uint64_t *bytes);
/* Calls pread until `length` bytes have come or the file ends, from multiples of `alignment` on. */
int lio_pread_all(int fd, const lio_read *read, uint32_t alignment, uint64_t *received,
                  uint64_t *calls, lio_error *error);
/* LIO_ERR_SHORT for a read that received less than it needed. */
int lio_short_read(const lio_read *read, uint64_t received, lio_error *error);

#endif
