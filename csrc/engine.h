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
 *   remote   a file that lies elsewhere: a function reads that was handed in (remote.h)
 *   memory   over bytes in memory, for tests; a script makes reads fail or dawdle
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

#include <stddef.h>

#include "extent.h"
#include "remote.h"
#include "status.h"
#include "trace.h"

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

typedef struct {
    uint64_t requests; /* reads issued, and copies out of a mapping */
    uint64_t bytes;    /* bytes received */
} lio_counters;

/* Opens `path` read-only. `kind`: "pread", "direct", "uring", "staged" or "mmap". `depth`:
 * requests in flight, 1..256. LIO_ERR_IO with ENOENT etc.; LIO_ERR_UNSUPPORTED when the file
 * system knows no O_DIRECT, or the kernel or a sandbox forbids io_uring; LIO_ERR_INVALID for a
 * folder or anything else that is no regular file. */
int lio_engine_open(const char *path, const char *kind, uint32_t depth, lio_engine **out,
                    lio_error *error);

/* The memory engine. `bytes` is borrowed until close. */
int lio_engine_open_memory(const uint8_t *bytes, uint64_t size, uint32_t depth, lio_engine **out,
                           lio_error *error);

/* Each of the files that are read as one begins at a multiple of this. */
enum { LIO_PART_ALIGNMENT = 4096 };

/* One of them (engine_joined.h), in the state of one transaction. */
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
int lio_engine_open_again(lio_engine *engine, uint32_t depth, lio_engine **out, lio_error *error);

/* Tells that what is read lies anywhere: the kernel is not to read ahead of joined files, whenever they
 * are opened. A hint; does nothing for others, whose descriptor the caller has. */
void lio_engine_expect_random(lio_engine *engine);

/* An engine for a file that lies elsewhere. `remote` is borrowed until close. */
int lio_engine_open_remote(lio_remote *remote, uint32_t depth, lio_engine **out, lio_error *error);

/* For an engine from lio_engine_open_memory: every read whose number (from 0, counted since this
 * call) is a multiple of `every`, and not 0, fails with `sys_errno` (0: none fails); each read first
 * sleeps `delay_us`. LIO_ERR_UNSUPPORTED for other engines. */
int lio_engine_inject_faults(lio_engine *engine, uint64_t every, int sys_errno, uint32_t delay_us,
                             lio_error *error);

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

/* Lets a pread engine copy what is asked for, and the page cache holds, out of a mapping
 * (engine_mapped.h), of which at most `bytes_max` are touched; nothing changes for other kinds, nor
 * on file systems where a cut would be seen too late (storage.h, unmaps_first). To be said before
 * the first read. NULL, or the reason why nothing is copied so. */
const char *lio_engine_map_cached(lio_engine *engine, uint64_t bytes_max);

/* How many of `length` bytes from `offset` on (0: to the end of the file) are in the page cache
 * now. LIO_ERR_UNSUPPORTED where the kernel cannot say (before Linux 6.5, or in a sandbox), and
 * for memory. */
int lio_engine_cached(lio_engine *engine, uint64_t offset, uint64_t length, uint64_t *bytes,
                      lio_error *error);

/* These bytes were brought there by another engine: what is not believed to be there, is asked for anew. */
void lio_engine_forget_missing(lio_engine *engine, lio_extent range);

/* Whether a byte can be read without waiting: what is on its way is in the page cache, too. */
bool lio_engine_has_come(lio_engine *engine, uint64_t offset);

/* Requests and bytes since open. */
void lio_engine_counters(lio_engine *engine, lio_counters *out);

/* Notes requests in `trace`, while that is on, under the number `engine_number`. For ever: an
 * engine has one trace at most, and is an owner of it until it is closed. */
void lio_engine_trace(lio_engine *engine, lio_trace *trace, uint32_t engine_number);

/* Whether such a trace is on now. */
bool lio_engine_is_traced(const lio_engine *engine);

/* All counts since open, of the engine and of the rooms that read with it. */
void lio_engine_tally(const lio_engine *engine, lio_tally *out);

/* Counts more. */
void lio_engine_count(lio_engine *engine, const lio_tally *more);

/* The same for records found, records handed out and bytes of their values. */
void lio_engine_count_records(lio_engine *engine, uint64_t located, uint64_t records,
                              uint64_t record_bytes);

/* The same for the bytes that a read was to give, those that nobody asked for included. */
void lio_engine_count_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes);

/* A stage that began at `begun_ns` has ended now: counts its time, and notes it. `amount`: see
 * lio_span. */
void lio_engine_count_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns,
                            uint64_t amount);

/* Queues `count` requests (copied) and returns at once. */
int lio_engine_submit(lio_engine *engine, const lio_read *reads, size_t count, lio_ticket **out,
                      lio_error *error);

/* Starts bringing `count` ranges of bytes (copied) into the page cache, in pieces of at most
 * `piece` bytes; no memory is filled. `is_stream`: they are read, in order where the engine has a
 * depth of 1, and each has ended when it is there; else when the kernel knows of it.
 * LIO_ERR_UNSUPPORTED for engines that go past the page cache. */
int lio_engine_populate(lio_engine *engine, const lio_extent *ranges, size_t count, uint64_t piece,
                        bool is_stream, lio_ticket **out, lio_error *error);

/* Makes way for a stream of the first `size` bytes into the page cache: drops the few pages that are
 * there already, which would break it into small pieces. Does nothing where more is there. A hint. */
void lio_engine_clear_way(lio_engine *engine, uint64_t size);

/* Waits up to `timeout_ms` (-1: for ever). LIO_OK: every byte is there. LIO_PENDING: ask
 * again. Else the first error; what was not yet begun is not read any more. */
int lio_ticket_wait(lio_ticket *ticket, int timeout_ms, lio_error *error);

/* The same without waiting. */
int lio_ticket_poll(lio_ticket *ticket, lio_error *error);

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

/* The same for whatever `*ticket` is by now, which becomes NULL. */
void lio_ticket_drop(lio_ticket **ticket);

/* Reads what lies one after another in the file, by the calling thread: neighbours in one call to
 * the kernel where the engine can (pread). All of each `length` must exist. */
int lio_engine_scatter(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error);

/* Copies what lies at `extents` of the file to `offsets` of `into`, which has `room` bytes and where
 * they are placed as by lio_extents_pack (what lies between becomes 0), if the calling thread need
 * not wait for any of it. False: it would have to, or this would take longer than to read them
 * together. Then `into` may hold anything. */
bool lio_engine_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint8_t *into, uint64_t room);

/* Sets missing[i] to whether the calling thread would have to wait for what lies at extents[i], or
 * had better read it with others than copy it by itself; how many that are. The others may
 * be pushed out of the page cache. */
size_t lio_engine_find_missing(lio_engine *engine, const lio_extent *extents, size_t count,
                               uint8_t *missing);

/* Whether lio_engine_find_missing would find none. */
bool lio_engine_is_cached(lio_engine *engine, const lio_extent *extents, size_t count);

/* Whether lio_engine_try_read_checked would most likely copy all of them out of a mapping, without a
 * call of the kernel. */
bool lio_engine_is_mapped(lio_engine *engine, const lio_extent *extents, size_t count);

/* Fills read->into, without a call of the kernel, for the first ones of some short reads, and says for
 * how many. The file had them all then. */
size_t lio_engine_copy_each(lio_engine *engine, const lio_read *reads, size_t count);

/* Tells that these bytes will most likely be read next: where they would be copied out of a mapping, the
 * processor brings the first ones nearer meanwhile. */
void lio_engine_approach(lio_engine *engine, uint64_t offset, uint64_t length);

/* Tells another thread to make ready what lio_engine_try_read_checked would copy out of a mapping,
 * extent by extent, but the first, which the calling thread wants at once. A hint, for extents that
 * lio_engine_is_cached or lio_engine_find_missing has just found in the page cache: nobody waits
 * for it, and nothing fails. */
void lio_engine_prefault(lio_engine *engine, const lio_extent *extents, size_t count);

/* Submit and wait. A single small request is read by the calling thread. */
int lio_engine_read(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error);

/* cdef: skip */
#include <stdbool.h>
#include <sys/uio.h>

/* Fills the pieces of memory `into`, one after the other, with the bytes from `offset` on, if
 * the calling thread need not wait for them; how much is copied is the caller's to limit. False:
 * it would have to, or the engine cannot know. Then `into` may hold anything. */
bool lio_engine_try_read_checked(lio_engine *engine, uint64_t offset, const struct iovec *into,
                                 int count);

/* The same without a look at the file's size afterwards: for a caller that notices by itself when
 * bytes became zeros because another process cuts the file. */
bool lio_engine_try_read(lio_engine *engine, uint64_t offset, const struct iovec *into, int count);
/* cdef: resume */

#endif
