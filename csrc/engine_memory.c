/* The memory kind: a file in memory, for tests. */
#include <stdlib.h>
#include <string.h>

#include "engine_file.h"

struct lio_source {
    const uint8_t *bytes; /* borrowed */
    uint64_t size;
};

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    uint64_t length = read->offset >= source->size ? 0 : source->size - read->offset;
    length = length < read->length ? length : read->length;
    ++*calls;
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

static const lio_file_kind memory = {
    .name = "memory",
    .alignment = 1,
    .read = read_one,
    .size = source_size,
    .close = source_close,
    .fd = source_fd,
};

int lio_file_memory(const uint8_t *bytes, uint64_t size, lio_file *out, lio_error *error)
{
    lio_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    source->bytes = bytes;
    source->size = size;
    *out = (lio_file){.kind = &memory, .source = source};
    return LIO_OK;
}
