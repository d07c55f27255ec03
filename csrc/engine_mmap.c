/* The mmap kind: copies out of a shared mapping made at open, guarded against SIGBUS
 * (engine_mapped.h). It reads with pread what the file has grown by since, its last page, and all
 * of it where somebody else handles that signal, or where a cut is seen too late (lio_storage).
 * A caller that lends the mapping itself (lio_engine_map) lends SIGBUS with it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_file.h"
#include "engine_mapped.h"
#include "storage.h"

struct lio_source {
    int fd;
    uint8_t *map; /* NULL when the file was empty */
    uint64_t size;
    bool unmaps_first; /* see lio_storage */
};

static int source_open(const char *path, lio_source **out, lio_error *error)
{
    lio_source *source = NULL;
    lio_storage storage;
    void *map = NULL;
    uint64_t size = 0;
    int fd = -1, code = lio_open_file(path, &fd, error);
    if (code != LIO_OK)
        return code;
    code = lio_file_size(fd, &size, error);
    if (code != LIO_OK)
        goto failed;
    if (size > SIZE_MAX / 2) {
        code = lio_fail(error, LIO_ERR_UNSUPPORTED, 0, size, 0, "the file is too large to map");
        goto failed;
    }
    source = malloc(sizeof *source);
    if (source == NULL) {
        code = lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
        goto failed;
    }
    if (size > 0) {
        map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            code = lio_fail_errno(error, errno, 0, size, "cannot map the file");
            goto failed;
        }
    }
    lio_storage_glance(fd, &storage);
    *source = (lio_source){
        .fd = fd, .map = map, .size = size, .unmaps_first = storage.unmaps_first};
    *out = source;
    return LIO_OK;
failed:
    free(source);
    (void)close(fd);
    return code;
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

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    return lio_file_size(source->fd, size, error);
}

static void source_close(lio_source *source)
{
    if (source->map != NULL)
        (void)munmap(source->map, (size_t)source->size);
    (void)close(source->fd);
    free(source);
}

static int source_fd(const lio_source *source)
{
    return source->fd;
}

const lio_file_kind lio_file_mmap = {
    .name = "mmap",
    .alignment = 1,
    .open = source_open,
    .read = read_one,
    .map = map,
    .size = source_size,
    .close = source_close,
    .fd = source_fd,
};
