/* The mmap kind: copies out of a shared mapping made at open, guarded against SIGBUS
 * (engine_mapped.h). It reads with pread what the file has grown by since, its last page, and all
 * of it where somebody else handles that signal, or where a cut is seen too late (lio_storage).
 * A caller that lends the mapping itself (lio_engine_map) lends SIGBUS with it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "engine_file.h"
#include "engine_mapped.h"
#include "storage.h"

struct lio_source {
    int fd;
    uint8_t *map; /* NULL when the file was empty */
    uint64_t size;
    bool unmaps_first; /* see lio_storage */
};

static int source_open(lio_file *file, lio_error *error)
{
    lio_source made = {.fd = file->fd};
    lio_storage storage;
    int code = lio_fd_size(file->fd, &made.size, error);
    if (code != LIO_OK)
        return code;
    if (made.size > SIZE_MAX / 2)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, made.size, 0,
                        "the file is too large to map");
    file->source = malloc(sizeof *file->source);
    if (file->source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof made, 0, "no memory for an engine");
    if (made.size > 0) {
        void *map = mmap(NULL, (size_t)made.size, PROT_READ, MAP_SHARED, file->fd, 0);
        if (map == MAP_FAILED) {
            code = lio_fail_errno(error, errno, 0, made.size, "cannot map the file");
            free(file->source);
            return code;
        }
        made.map = map;
    }
    lio_storage_probe_type(file->fd, &storage);
    made.unmaps_first = storage.unmaps_first;
    *file->source = made;
    return LIO_OK;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    if (source->map == NULL || !source->unmaps_first ||
        !lio_copy_guarded(source->map, source->size, read))
        return lio_pread_all(source->fd, read, 1, received, calls, error);
    *received += read->length;
    ++*calls;
    return LIO_OK;
}

static const uint8_t *map(const lio_source *source, uint64_t *size)
{
    *size = source->map != NULL ? source->size : 0;
    return source->map;
}

static void source_close(lio_source *source)
{
    if (source->map != NULL)
        (void)munmap(source->map, (size_t)source->size);
    free(source);
}

const lio_file_kind lio_file_mmap = {
    .name = "mmap",
    .alignment = 1,
    .open = source_open,
    .read = read_one,
    .map = map,
    .close = source_close,
};
