/* Wraps a file and makes reads of it fail or dawdle, as a script says; for tests. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine_file.h"

struct lio_source {
    lio_file_kind kind; /* the wrapped file's name and alignment, and the functions below */
    lio_file file;      /* owned */
    _Atomic uint64_t reads, every;
    _Atomic int sys_errno;
    _Atomic uint32_t delay_us;
};

static int read_or_fail(lio_source *source, const lio_read *read, uint64_t *received,
                        uint64_t *calls, lio_error *error)
{
    uint64_t number = source->reads++, every = source->every;
    struct timespec delay = {.tv_sec = source->delay_us / 1000000,
                             .tv_nsec = (long)(source->delay_us % 1000000) * 1000};
    if (source->delay_us > 0)
        (void)nanosleep(&delay, NULL);
    if (every > 0 && number > 0 && number % every == 0 && source->sys_errno != 0) {
        ++*calls;
        return lio_fail_errno(error, source->sys_errno, read->offset, read->length, "cannot read");
    }
    return source->file.kind->read(source->file.source, read, received, calls, error);
}

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    return source->file.kind->size(source->file.source, size, error);
}

static void source_close(lio_source *source)
{
    source->file.kind->close(source->file.source);
    free(source);
}

static int source_fd(const lio_source *source)
{
    return source->file.kind->fd(source->file.source);
}

int lio_file_faults(lio_file file, lio_file *out, lio_error *error)
{
    lio_source *source = calloc(1, sizeof *source);
    if (source == NULL) {
        file.kind->close(file.source);
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    }
    source->kind = (lio_file_kind){.name = file.kind->name,
                                   .alignment = file.kind->alignment,
                                   .keeps_state = file.kind->keeps_state,
                                   .read = read_or_fail,
                                   .size = source_size,
                                   .close = source_close,
                                   .fd = source_fd};
    source->file = file;
    *out = (lio_file){.kind = &source->kind, .source = source};
    return LIO_OK;
}

bool lio_file_script(lio_file file, uint64_t every, int sys_errno, uint32_t delay_us)
{
    lio_source *source = file.source;
    if (file.kind->read != read_or_fail)
        return false;
    source->every = every;
    source->sys_errno = sys_errno;
    source->delay_us = delay_us;
    source->reads = 0;
    return true;
}
