/* engine: reads a file. One interface, several ways of reading.
 *
 *   pread    read through the page cache
 *   direct   O_DIRECT: no page cache, no copy by the kernel; offsets, lengths and memory
 *            must be multiples of lio_engine_alignment()
 *   staged   direct into a few huge pages of its own, and copied from there; for memory made of
 *            small pages, such as shared memory
 *   uring    direct by way of an io_uring: one thread for all requests in flight; less work where
 *            requests are small. Offsets, lengths and memory as for direct
 *   mmap     copies out of a shared mapping, and lends it: a process that uses what is lent dies
 *            by SIGBUS when the file is cut meanwhile
 *   remote   a file that lies elsewhere: a function reads that was handed in (engine_remote.h)
 *
 * Concurrency is part of the engine: up to `depth` requests are in flight at once, carried
 * by threads that start on the first submit that needs them and are rebuilt in a child
 * after fork. An engine may be used by many threads at once.
 *
 * Small requests that the page cache can serve at once are served by the submitting thread
 * (RWF_NOWAIT), which costs a tenth of handing them to another one.
 *
 * Reads resume after EINTR and short counts and are split above the kernel's limit. After reads by
 * calls of the kernel the file's size is asked for, once for all that were submitted together. The
 * memory is the caller's and must live until the ticket is freed.
 */
#ifndef LIO_ENGINE_H
#define LIO_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "extent.h"
#include "engine_remote.h"
#include "status.h"

typedef struct lio_engine lio_engine;
typedef struct lio_ticket lio_ticket; /* a batch of requests under way */

/* One request. Bytes [offset, offset + needed) must exist, or the read fails with
 * LIO_ERR_SHORT; what lies between `needed` and `length` may be past the end of the file. */
typedef struct {
    uint64_t offset;
    uint64_t length;
    uint64_t needed;
    uint8_t *into;
} lio_read;

/* Opens `path` read-only. `kind`: "pread", "direct", "uring", "staged" or "mmap". `depth`:
 * requests in flight, 1..256. LIO_ERR_IO with ENOENT etc.; LIO_ERR_UNSUPPORTED when the file
 * system knows no O_DIRECT, or the kernel or a sandbox forbids io_uring; LIO_ERR_INVALID for a
 * folder or anything else that is no regular file. */
int lio_engine_open(const char *path, const char *kind, uint32_t depth, lio_engine **out,
                    lio_error *error);

/* Each of the files that are read as one begins at a multiple of this. */
enum { LIO_PART_ALIGNMENT = 4096 };

/* One of them (engine_joined.c), in the state of one transaction. */
typedef struct {
    uint64_t base;          /* where it begins */
    uint64_t size;          /* bytes of it that are used */
    uint64_t device, inode; /* of the file */
    uint64_t version;       /* LIO_FORMAT_V1 or LIO_FORMAT_V3 */
    uint64_t meta;          /* where in the file the body of the transaction's meta page begins */
    uint64_t txnid, mark;   /* of the transaction (lio_meta_mark) */
} lio_part;

/* Opens `count` files as one, by pread. `names`: one after the other, each with its NUL; `parts` in the
 * same order, which is that of `base`; both are copied. At most `open_max` files, and the first, are
 * open at a time. Errors as above, and LIO_ERR_CHANGED. */
int lio_engine_open_joined(const char *names, const lio_part *parts, size_t count,
                           uint32_t open_max, uint32_t depth, lio_engine **out, lio_error *error);

/* Opens the file of another engine once more, with a depth and a descriptor of its own, for which the
 * kernel reads ahead. Joined files: both have the same descriptors, and the same mapping.
 * LIO_ERR_UNSUPPORTED where there is none. */
int lio_engine_reopen(lio_engine *engine, uint32_t depth, lio_engine **out, lio_error *error);

/* Tells that what is read lies anywhere: the kernel is not to read ahead of joined files, whenever they
 * are opened. A hint; does nothing for others, whose descriptor the caller has. */
void lio_engine_expect_random(lio_engine *engine);

/* An engine for a file that lies elsewhere. `remote` is borrowed until close. */
int lio_engine_open_remote(lio_remote *remote, uint32_t depth, lio_engine **out, lio_error *error);

/* Waits for the requests under way and closes. NULL is fine. */
void lio_engine_close(lio_engine *engine);

/* Power of two; 1 when any offset will do. */
uint32_t lio_engine_alignment(const lio_engine *engine);

/* The size of the file now. */
int lio_engine_size(lio_engine *engine, uint64_t *size, lio_error *error);

/* Whether a read fails once the file is no longer in the state that it was opened in: then nobody need
 * look at the meta pages again. */
bool lio_engine_keeps_state(const lio_engine *engine);

/* The descriptor behind the engine (borrowed), -1: it has none. */
int lio_engine_fd(const lio_engine *engine);

/* Stands for the file system of the file while that is mounted: its device's major and minor number,
 * 32 bits each. 0: not known; a pread engine looks. */
uint64_t lio_engine_device(const lio_engine *engine);

/* See lio_storage_seeks. */
bool lio_engine_seeks(const lio_engine *engine);

/* The mapping of an mmap engine (borrowed until close), and how much of the file it holds: what
 * there was at open. NULL, 0: of an empty file, and for other kinds. */
const uint8_t *lio_engine_map(const lio_engine *engine, uint64_t *size);

/* Queues `count` requests (copied) and returns at once. */
int lio_engine_submit(lio_engine *engine, const lio_read *reads, size_t count, lio_ticket **out,
                      lio_error *error);

/* Waits up to `timeout_ms` (-1: for ever). LIO_OK: every byte is there. LIO_PENDING: ask
 * again. Else the first error; what was not yet begun is not read any more. */
int lio_ticket_wait(lio_ticket *ticket, int timeout_ms, lio_error *error);

/* Waits until no request of the ticket is left to begin, though some may be under way. LIO_PENDING:
 * not yet; time is up, or `older`, NULL or another ticket of the engine, has ended before. */
int lio_ticket_wait_begun(lio_ticket *ticket, lio_ticket *older, int timeout_ms, lio_error *error);

/* The share of its requests that have not ended: 1, none has; 0, all have. */
double lio_ticket_left(lio_ticket *ticket);

/* When it was submitted and had its last byte, on CLOCK_MONOTONIC; the same moment when all was
 * there at once, or is not yet. */
void lio_ticket_times(lio_ticket *ticket, uint64_t *submitted_ns, uint64_t *ended_ns);

/* Drops what is not yet begun, waits for what is, frees. NULL is fine. */
void lio_ticket_free(lio_ticket *ticket);

/* Reads what lies one right after another in the file, LIO_SCATTER_MAX reads at most, by the calling
 * thread: in one call to the kernel where the engine can (pread). All of each `length` must exist. */
enum { LIO_SCATTER_MAX = 2 };
int lio_engine_scatter(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error);

/* Submit and wait. A single small request is read by the calling thread. */
int lio_engine_read(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error);

#endif
