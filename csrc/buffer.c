#include "buffer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "extent.h"

enum { HEAP_KEEP_BYTES = (32 << 20) - (64 << 10) };

/* See lio_copy: of page offsets; from which length on; and what compilers copy by registers. */
enum { ALIAS_BYTES = 4096, CLOSE_BYTES = 32, LONG_BYTES = 2048, STEP_BYTES = 64 };

uint8_t *lio_buffer_open(uint64_t size)
{
    uint64_t alignment = size < LIO_HUGE_BYTES_MIN ? LIO_BUFFER_ALIGNMENT : LIO_HUGE_PAGE_BYTES;
    uint64_t rounded = lio_round_up(size > 0 ? size : 1, alignment);
    uint8_t *buffer;
    if (rounded > SIZE_MAX - alignment)
        return NULL;
    buffer = aligned_alloc((size_t)alignment, (size_t)rounded);
    if (buffer != NULL && alignment == LIO_HUGE_PAGE_BYTES)
        (void)madvise(buffer, (size_t)rounded, MADV_HUGEPAGE); /* else small ones do */
    return buffer;
}

void lio_buffer_close(uint8_t *buffer)
{
    free(buffer);
}

void lio_copy(void *to, const void *from, size_t size)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t behind = ((uintptr_t)to - (uintptr_t)from) % ALIAS_BYTES;
    if (size >= LONG_BYTES && behind > 0 && behind < CLOSE_BYTES)
        for (; size >= STEP_BYTES; size -= STEP_BYTES) {
            memcpy(out, in, STEP_BYTES);
            out += STEP_BYTES;
            in += STEP_BYTES;
        }
    memcpy(out, in, size);
}

void lio_copy_rows(const uint64_t *from, const uint64_t *lengths, const uint64_t *to,
                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        lio_copy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], (size_t)lengths[i]);
}

void lio_heap_retain(void)
{
    /* Below 32 MiB, which glibc always gives back; never touched, so that it takes no memory. */
    void *volatile block = malloc(HEAP_KEEP_BYTES);
    free(block);
}
