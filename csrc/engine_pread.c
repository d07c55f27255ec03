/* The pread kind: reads through the page cache. */
#include <stdlib.h>
#include <sys/uio.h>

#include "engine_buffered.h"

struct lio_source {
    int fd;
    lio_buffered known;
};

static int source_open(lio_file *file, lio_error *error)
{
    lio_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    source->fd = file->fd;
    lio_buffered_probe(&source->known, file->fd); /* programs open a file for each record */
    file->source = source;
    file->known = &source->known;
    return LIO_OK;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    return lio_pread_all(source->fd, read, 1, received, calls, error);
}

/* Neighbours of more bytes together are read one by one: the kernel does not serve all in one call. */
enum { SCATTER_BYTES_MAX = 1 << 30 };

static int scatter(lio_source *source, const lio_read *reads, size_t count, uint64_t *received,
                   uint64_t *calls, lio_error *error)
{
    struct iovec parts[LIO_SCATTER_MAX];
    uint64_t bytes = 0;
    int code = LIO_OK;
    for (size_t i = 0; i < count; i++) {
        parts[i] = (struct iovec){.iov_base = reads[i].into, .iov_len = (size_t)reads[i].length};
        bytes += reads[i].length;
    }
    if (bytes <= SCATTER_BYTES_MAX) {
        ++*calls;
        if (preadv(source->fd, parts, (int)count, (off_t)reads[0].offset) == (ssize_t)bytes) {
            *received += bytes;
            return LIO_OK;
        }
    }
    /* Or where a signal, the end of the file or an error came between. */
    for (size_t i = 0; i < count && code == LIO_OK; i++)
        code = lio_pread_all(source->fd, &reads[i], 1, received, calls, error);
    return code;
}

static lio_mapped *map_file(lio_source *source)
{
    return lio_mapped_open(source->fd, source->known.mapped_bytes_max);
}

static lio_cached holds(lio_source *source, uint64_t offset, uint64_t length, bool sure)
{
    lio_mapped *mapped = lio_buffered_mapping(&source->known, map_file, source);
    if (mapped != NULL && lio_mapped_holds(mapped, NULL, offset, length))
        return LIO_CACHED_MAPPED;
    return lio_buffered_holds(&source->known, source->fd, offset, length, mapped != NULL || sure);
}

static lio_cached try_read(lio_source *source, const lio_read *read, const struct iovec *into,
                           int count)
{
    lio_mapped *mapped = lio_buffered_mapping(&source->known, map_file, source);
    if (mapped != NULL &&
        lio_mapped_copy(mapped, NULL, read->offset, read->length, into, count, NULL))
        return LIO_CACHED_MAPPED;
    return lio_buffered_try(&source->known, source->fd, read, into, count);
}

static int populate(lio_source *source, uint64_t offset, uint64_t length, bool is_stream,
                    lio_error *error)
{
    return lio_buffered_populate(&source->known, source->fd, offset, length, is_stream, error);
}

static void source_close(lio_source *source)
{
    lio_mapped_close(source->known.mapped);
    free(source);
}

const lio_file_kind lio_file_pread = {
    .name = "pread",
    .alignment = 1,
    .open = source_open,
    .read = read_one,
    .scatter = scatter,
    .close = source_close,
    .try_read = try_read,
    .holds = holds,
    .populate = populate,
};
