/* engine_mapped: copies out of a mapping of the file what the page cache holds, without a call of
 * the kernel.
 *
 *   [piece][piece][piece] ...   a piece is touched when the kernel has just said that all of it is
 *                               in the page cache; that is asked again after a second; or when it
 *                               is believed
 *
 * For a small read the call costs more than the copy, and a large one the kernel copies page by
 * page, at half the speed that was measured out of a mapping. A page that has left the cache since
 * is brought back by the fault, as a read would have done.
 *
 * To ask takes as long as to copy a few pages. So where it has been said of many pieces in a row
 * that they are there, of others that is believed by long reads, until one had to wait for the
 * storage: then that came late, and all is asked for again. The kernel counts such faults of a
 * thread, which tells them from a processor that was busy with others.
 *
 * The first touch is a fault for every 64 KiB, which takes about as long as to copy them. So of a
 * batch of long values another thread touches the later ones while the first are used.
 *
 * Touched pages count as memory of the process (as shared file pages, which the kernel takes
 * back at will), so their number is bounded, by 2 MiB, since the page cache may have huge pages, of
 * which a touch maps all; and the first pieces come first.
 *
 * When the file is cut while bytes are copied, the kernel sends SIGBUS. A handler, for which the
 * process is asked once, ends such a copy, and no other: what it does not know goes to the
 * handler that was there before. Where somebody has put another handler over it, or the calling
 * thread has the signal blocked, nothing is copied any more, from a second later on at the latest:
 * each thread looks once a second, since a look is a call of the kernel too. A page of which only
 * the end was cut off shows zeros instead; so every copy then looks at a page behind it too (of one
 * file its last page), which is gone by that time, and is no part of what is copied.
 *
 * Private to the engine.
 */
#ifndef LIO_ENGINE_MAPPED_H
#define LIO_ENGINE_MAPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine_file.h"

/* Given to a thread as it begins. By default the first use allocates what a library that is loaded
 * late has of it: glibc aborts there without memory, and a signal's handler may not allocate. */
#ifdef __GLIBC__
#define LIO_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else /* musl loads no library late that asks for it */
#define LIO_THREAD_LOCAL _Thread_local
#endif

/* Whether this thread, which has just taken so long to copy bytes out of the page cache, has waited for
 * the storage then, or else since it was last asked. The clock says when to ask the kernel, which counts a
 * thread's faults and what a disk read for it: that tells a wait from a processor that was busy with
 * others. The kernel may not count reads of file systems without a disk. */
bool lio_has_waited(uint64_t elapsed_ns, uint64_t bytes);

/* Bytes that are asked about together. */
enum { LIO_PIECE_BYTES = 256 << 10 };

/* Maps the file as long as it is now, of which at most `bytes_max` are touched. `fd` is borrowed
 * until close. NULL where that cannot be, or the kernel does not say what is cached. */
lio_mapped *lio_mapped_open(int fd, uint64_t bytes_max);

/* A file in a mapping, where several may lie side by side. */
struct lio_mapped_file {
    uint64_t place, size; /* in the mapping, a multiple of LIO_PIECE_BYTES, and its bytes */
    uint64_t last;        /* where in the file its last page begins */
    uint64_t end;         /* of what is copied: the last page, unless the caller looks whether the
                           * file is as long as it was after each copy from that */
    lio_extent meta;      /* of its meta page: what each copy takes along; empty: nothing */
    atomic_bool is_mapped;
};

/* Whether all of these bytes of the file are in the page cache. After true the file is mapped, to its
 * place in `map`: the mapping. */
typedef bool (*lio_mapped_ask)(void *owner, lio_mapped_file *file, uint64_t offset,
                               uint64_t length, uint8_t *map);

/* A mapping of `size` bytes for several files, none of which is mapped yet. The functions below are
 * then told of which file they are to copy, and its offsets; else of NULL. */
lio_mapped *lio_mapped_reserve(uint64_t size, uint64_t bytes_max, lio_mapped_ask ask, void *owner);

void lio_mapped_close(lio_mapped *mapped);

/* Somebody has brought these bytes to the page cache: what was said to be missing is asked for again. */
void lio_mapped_forget_missing(lio_mapped *mapped, const lio_mapped_file *file, uint64_t offset,
                               uint64_t length);

/* Whether lio_mapped_copy would most likely do. */
bool lio_mapped_holds(lio_mapped *mapped, lio_mapped_file *file, uint64_t offset, uint64_t length);

/* Fills `into` with the `length` bytes from `offset` on, and after that, where it is not NULL, `behind`.
 * False: they must be read another way, and `into` may hold anything. */
bool lio_mapped_copy(lio_mapped *mapped, lio_mapped_file *file, uint64_t offset, uint64_t length,
                     const struct iovec *into, int count, const lio_read *behind);

/* Fills read->into, of one file, for the first ones of `count` short reads, and says for how many:
 * what makes sure that the file was whole is done once for all of them. */
size_t lio_mapped_copy_each(lio_mapped *mapped, const lio_read *reads, size_t count);

/* How many faults lio_mapped_prefault would most likely make there, of what lio_mapped_holds has
 * just said to be held; 0 where it gains nothing: for short reads, and where the process had one
 * processor when the mapping was opened. Pages that the kernel has unmapped since are not known. */
size_t lio_mapped_faults(const lio_mapped *mapped, const lio_mapped_file *file, uint64_t offset,
                         uint64_t length);

/* Touches once what lio_mapped_copy would copy, in each window that the kernel maps at a fault: who
 * copies later is spared those, which take as long as the copies. */
void lio_mapped_prefault(lio_mapped *mapped, lio_mapped_file *file, uint64_t offset,
                         uint64_t length);

/* Has the processor bring the first ones of `length` bytes at `offset`, which will most likely be copied
 * next, to its cache, with what a copy looks at besides: it does not look past the page that it reads.
 * Touches nothing. */
void lio_mapped_approach(const lio_mapped *mapped, const lio_mapped_file *file, uint64_t offset,
                         uint64_t length);

/* Fills read->into out of a mapping, by whomever, of the first `size` bytes of a file: what is not
 * cached, too. False: it must be read another way. */
bool lio_copy_guarded(const uint8_t *map, uint64_t size, const lio_read *read);

#endif
