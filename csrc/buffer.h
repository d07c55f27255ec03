/* buffer: memory for an engine to fill, fit for O_DIRECT.
 *
 * Large buffers ask for huge pages. A disk that writes to 512 times fewer pieces of memory was
 * seen to go 1.5 times as fast past the page cache. It pays for memory that is used again and
 * again: to make huge pages for a single use costs as much.
 */
#ifndef LIO_BUFFER_H
#define LIO_BUFFER_H

#include <stdint.h>

enum {
    LIO_BUFFER_ALIGNMENT = 4096,  /* of any buffer; every file system's O_DIRECT takes it */
    LIO_HUGE_PAGE_BYTES = 2097152, /* alignment of large ones */
    LIO_HUGE_BYTES_MIN = 2097152   /* from here on a buffer is large */
};

/* At least `size` bytes, undefined, rounded up to the alignment; NULL: no memory. */
uint8_t *lio_buffer_open(uint64_t size);

/* NULL is fine. */
void lio_buffer_close(uint8_t *buffer);

#endif
