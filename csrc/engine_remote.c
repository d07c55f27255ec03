/* The remote kind: a file that lies elsewhere (remote.h). */
#include <stdlib.h>
#include <string.h>

#include "engine_file.h"

/* Python runs in the threads that carry reads; a TLS handshake and a look-up of a host's name took less
 * than a quarter of this. */
enum { STACK_BYTES = 1 << 20 };

/* Neighbours of more bytes together are asked for one by one. */
enum { TOGETHER_BYTES_MAX = 16 << 20 };

struct lio_source {
    lio_remote *remote; /* borrowed */
};

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    uint64_t size = lio_remote_size(source->remote), requests = 0;
    uint64_t length = read->offset >= size ? 0 : size - read->offset;
    int code;
    length = length < read->length ? length : read->length;
    if (length < read->needed)
        return lio_short_read(read, length, error);
    if (length == 0)
        return LIO_OK;
    code = lio_remote_fetch(source->remote, read, read->offset, length, read->into, &requests,
                            error);
    *calls += requests;
    if (code == LIO_OK)
        *received += length;
    return code;
}

/* Neighbours in one request, by way of memory that they share: a second one takes longer than a copy. */
static int scatter(lio_source *source, const lio_read *reads, size_t count, uint64_t *received,
                   uint64_t *calls, lio_error *error)
{
    int code = LIO_OK;
    while (count > 0 && code == LIO_OK) {
        lio_read all = {.offset = reads[0].offset};
        size_t served = 0;
        while (served < count && reads[served].offset == all.offset + all.length &&
               (served == 0 || reads[served].length <= TOGETHER_BYTES_MAX - all.length) &&
               (served == 0 || all.length <= TOGETHER_BYTES_MAX))
            all.length += reads[served++].length;
        all.needed = all.length;
        all.into = served == 1 ? reads[0].into : malloc((size_t)all.length + 1);
        if (all.into == NULL && all.length > 0)
            return lio_fail(error, LIO_ERR_NOMEM, 0, all.length, 0, "no memory for a request");
        code = read_one(source, &all, received, calls, error);
        for (uint64_t i = 0, at = 0; served > 1 && i < served; at += reads[i++].length)
            if (code == LIO_OK && reads[i].length > 0)
                memcpy(reads[i].into, all.into + at, (size_t)reads[i].length);
        if (served > 1)
            free(all.into);
        reads += served;
        count -= served;
    }
    return code;
}

static void give_up(lio_source *source, const lio_read *reads, size_t count)
{
    lio_remote_give_up(source->remote, reads, reads + count);
}

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    (void)error;
    *size = lio_remote_size(source->remote);
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

#define KIND(keeps)                                                                               \
    {                                                                                             \
        .name = "remote", .alignment = 1, .keeps_state = (keeps), .stack_bytes = STACK_BYTES,     \
        .read = read_one, .scatter = scatter, .give_up = give_up, .size = source_size,            \
        .close = source_close, .fd = source_fd,                                                   \
    }
static const lio_file_kind keeping = KIND(true), guarded = KIND(false);

int lio_file_remote(lio_remote *remote, lio_file *out, lio_error *error)
{
    lio_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    source->remote = remote;
    *out = (lio_file){.kind = lio_remote_keeps_state(remote) ? &keeping : &guarded,
                      .source = source};
    return LIO_OK;
}
