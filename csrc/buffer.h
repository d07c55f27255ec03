/* buffer: memory for an engine to fill, fit for O_DIRECT.
 *
 * Large buffers ask for huge pages. A disk that writes to 512 times fewer pieces of memory was
 * seen to go 1.5 times as fast past the page cache. It pays for memory that is used again and
 * again: to make huge pages for a single use costs as much.
 */
#ifndef LIO_BUFFER_H
#define LIO_BUFFER_H

#include <stddef.h>
#include <stdint.h>

enum {
    LIO_BUFFER_ALIGNMENT = 4096,   /* of any buffer; every file system's O_DIRECT takes it */
    LIO_HUGE_PAGE_BYTES = 2097152, /* alignment of large ones */
    LIO_HUGE_BYTES_MIN = 2097152   /* from here on a buffer is large */
};

/* At least `size` bytes, undefined, rounded up to the alignment; NULL: no memory. */
uint8_t *lio_buffer_open(uint64_t size);

/* NULL is fine. */
void lio_buffer_close(uint8_t *buffer);

/* memcpy, where it is slow too. glibc's copies long ones by `rep movsb`, which AMD's processors
 * (measured on Zen 3) do at a fifth of its speed where `to` lies 1 to 31 bytes behind `from`, page
 * offsets compared. Values begin 16 bytes into a page, and a loader makes object after object at
 * one address: that of a whole epoch may be such a one. */
void lio_copy(void *to, const void *from, size_t size);

/* Copies `count` rows: row i has lengths[i] bytes at from[i], and goes to to[i]. */
void lio_copy_rows(const uint64_t *from, const uint64_t *lengths, const uint64_t *to,
                   uint64_t count);

/* Lets malloc keep up to 64 MiB that objects leave at the end of the heap, instead of giving them
 * back to the kernel and asking for them anew, page by page: where lists of large objects come and
 * go, that was seen to be a third of the processor time. A program that frees one large array
 * brings about the same: glibc grows its thresholds to what was freed (mallopt(3),
 * M_MMAP_THRESHOLD); others ignore it. */
void lio_heap_retain(void);

#endif
