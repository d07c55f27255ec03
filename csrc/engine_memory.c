/* The memory kind: a file in memory, for tests. Its script makes reads fail or dawdle. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine_kind.h"

struct lio_source {
    const uint8_t *bytes; /* borrowed */
    uint64_t size;
    _Atomic uint64_t reads, every;
    _Atomic int sys_errno;
    _Atomic uint32_t delay_us;
};

int lio_memory_open(const uint8_t *bytes, uint64_t size, lio_source **out, lio_error *error)
{
    lio_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    source->bytes = bytes;
    source->size = size;
    *out = source;
    return LIO_OK;
}

void lio_memory_script(lio_source *source, uint64_t every, int sys_errno, uint32_t delay_us)
{
    source->every = every;
    source->sys_errno = sys_errno;
    source->delay_us = delay_us;
    source->reads = 0;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    uint64_t number = source->reads++, every = source->every, length;
    struct timespec delay = {.tv_sec = source->delay_us / 1000000,
                             .tv_nsec = (long)(source->delay_us % 1000000) * 1000};
    if (source->delay_us > 0)
        (void)nanosleep(&delay, NULL);
    ++*calls;
    if (every > 0 && number > 0 && number % every == 0 && source->sys_errno != 0)
        return lio_fail_errno(error, source->sys_errno, read->offset, read->length, "cannot read");
    length = read->offset >= source->size ? 0 : source->size - read->offset;
    length = length < read->length ? length : read->length;
    if (length > 0)
        memcpy(read->into, source->bytes + read->offset, (size_t)length);
    *received += length;
    return length < read->needed ? lio_short_read(read, length, error) : LIO_OK;
}

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    (void)error;
    *size = source->size;
    return LIO_OK;
}

static void source_close(lio_source *source)
{
    free(source);
}

static int source_fd(const lio_source *source)
{
    (void)source;
    return -1;
}

const lio_kind lio_kind_memory = {
    .name = "memory", .alignment = 1, .read = read_one, .size = source_size,
    .close = source_close, .fd = source_fd,
};
