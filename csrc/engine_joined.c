/* The joined kind: several files as one.
 *
 *   [file 0] zeros [file 1] zeros [file 2] ...     each from a multiple of LIO_PART_ALIGNMENT on
 *
 * So records of many files are read as those of one: planned together, in one queue, into one memory. A
 * read may go over the end of one file into the next; between files there are zeros.
 *
 * Few files are open at a time (engine_descriptors.h). Those whose bytes are in the page cache are
 * mapped, side by side as they lie here, and need no descriptor.
 *
 * Each file is read in the state of one transaction: after its bytes its meta page of that
 * transaction is read again, and if it is another one by then, the read fails with
 * LIO_ERR_CHANGED. So nobody need ask the meta pages again (lio_engine_keeps_state).
 *
 * In errors, the offset is one of this file; the caller knows which file that is.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine_buffered.h"
#include "engine_descriptors.h"
#include "extent.h"
#include "format.h"

/* A kernel lets a process map 65,530 areas, unless vm.max_map_count was changed. */
enum { MAPPED_FILES_MAX = 30000 };

struct lio_source {
    size_t count;
    lio_part *parts;         /* sorted by base */
    uint64_t *bases;         /* of the parts, close together: they are searched for each read */
    uint64_t size;           /* of all */
    double density;          /* files for each byte, on average */
    lio_mapped_file *places; /* of the files, in the mapping */
    atomic_bool is_untold;   /* the kernel tells this process not what a mapping has cached */
    lio_descriptors *files;
    lio_buffered known;
    _Atomic size_t owners;
};

static size_t number_of(const lio_source *source, const lio_part *part)
{
    return (size_t)(part - source->parts);
}

static lio_mapped_file *place_of(const lio_source *source, const lio_part *part)
{
    return &source->places[number_of(source, part)];
}

/* The last part that begins at or before `offset`: the bytes there are its, or lie between it and the
 * next one. */
static const lio_part *find_part(const lio_source *source, uint64_t offset)
{
    const uint64_t *low = source->bases;
    /* Where files are of one size, this is it. */
    size_t guess = (size_t)((double)offset * source->density);
    if (guess < source->count && low[guess] <= offset &&
        (guess + 1 == source->count || offset < low[guess + 1]))
        return &source->parts[guess];
    for (size_t left = source->count; left > 1;) {
        size_t half = left / 2;
        low = low[half] <= offset ? low + half : low;
        left -= half;
    }
    return &source->parts[low - source->bases];
}

/* The part that has all of these bytes, one at least; NULL: none. */
static const lio_part *part_of(const lio_source *source, uint64_t offset, uint64_t length)
{
    const lio_part *part = find_part(source, offset);
    return length > 0 && lio_fits(offset - part->base, length, part->size) ? part : NULL;
}

static int take(lio_source *source, const lio_part *part, int *fd, lio_error *error)
{
    int code = lio_descriptors_take(source->files, number_of(source, part), fd, error);
    if (code != LIO_OK && error != NULL)
        error->offset = part->base;
    return code;
}

/* Without waiting. A disk's file system has in memory whose state was looked at; each other one may ask a
 * server whenever a file is opened. */
static int try_take(lio_source *source, const lio_part *part)
{
    const lio_storage *storage = &source->known.storage;
    return lio_descriptors_try_take(source->files, number_of(source, part),
                                    storage->disk || storage->unmaps_first);
}

static void give(lio_source *source, const lio_part *part)
{
    lio_descriptors_give(source->files, number_of(source, part));
}

/* --- the state of a file ---------------------------------------------------------------- */

static bool is_state(const lio_part *part, const uint8_t *body)
{
    lio_layout layout = {.version = (uint32_t)part->version};
    return lio_meta_is(&layout, body, part->txnid) && lio_meta_mark(body) == part->mark;
}

static int fail_changed(const lio_part *part, lio_error *error)
{
    return lio_fail(error, LIO_ERR_CHANGED, part->base, 0, 0,
                    "was written to since it was opened: transaction %llu is not in it any more",
                    (unsigned long long)part->txnid);
}

/* Whether a file is as long as it was, and has its transaction still. After reads from `fd`. */
static int check_state(const lio_part *part, int fd, const lio_read *read, lio_error *error)
{
    uint8_t body[LIO_META_BODY_BYTES];
    lio_read meta = {part->meta, sizeof body, sizeof body, body};
    uint64_t received = 0, calls = 0, size;
    int code = lio_fd_size(fd, &size, error);
    if (code == LIO_OK && !lio_fits(read->offset, read->needed, size))
        code = lio_short_read(read, size > read->offset ? size - read->offset : 0, error);
    if (code == LIO_OK)
        code = lio_pread_all(fd, &meta, 1, &received, &calls, error);
    if (code == LIO_OK && !is_state(part, body))
        code = fail_changed(part, error);
    return code;
}

/* Copies out of the mapping, if the file is in its state; false: it has to be read by a call. */
static bool copy_mapped(lio_source *source, const lio_part *part, lio_mapped *mapped,
                        const lio_read *read, const struct iovec *into, int count)
{
    uint8_t body[LIO_META_BODY_BYTES];
    lio_read meta = {part->meta, sizeof body, sizeof body, body};
    lio_mapped_file *place = place_of(source, part);
    uint64_t offset = read->offset - part->base, end = offset + read->length;
    return lio_mapped_copy(mapped, place, offset, read->length, into, count, &meta) &&
           is_state(part, body) &&
           (end <= place->last ||
            lio_descriptors_has(source->files, number_of(source, part), end));
}

/* --- reading ------------------------------------------------------------------------------ */

/* Reads bytes of one file, which it has. */
static int read_part(lio_source *source, const lio_part *part, const lio_read *read,
                     uint64_t *received, uint64_t *calls, lio_error *error)
{
    lio_read there = *read;
    int fd, code = take(source, part, &fd, error);
    if (code != LIO_OK)
        return code;
    there.offset -= part->base;
    code = lio_pread_all(fd, &there, 1, received, calls, error);
    if (code == LIO_OK && read->needed > 0)
        code = check_state(part, fd, &there, error);
    give(source, part);
    if (code != LIO_OK && code != LIO_ERR_CHANGED && error != NULL)
        error->offset += part->base;
    return code;
}

/* The first bytes of a read: those of one file, or the zeros behind it. */
static lio_read cut_first(const lio_source *source, const lio_read *read, const lio_part **part)
{
    const lio_part *found = find_part(source, read->offset), *next = found + 1;
    uint64_t end = found->base + found->size;
    lio_read first = *read;
    *part = read->offset < end ? found : NULL;
    if (*part == NULL)
        end = number_of(source, next) < source->count ? next->base : UINT64_MAX;
    if (first.length > end - read->offset)
        first.length = end - read->offset;
    first.needed = first.needed < first.length ? first.needed : first.length;
    return first;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    lio_read rest = *read;
    int code = LIO_OK;
    while (rest.length > 0 && code == LIO_OK) {
        const lio_part *part;
        lio_read first = cut_first(source, &rest, &part);
        if (part != NULL)
            code = read_part(source, part, &first, received, calls, error);
        else
            memset(first.into, 0, (size_t)first.length);
        rest = (lio_read){rest.offset + first.length, rest.length - first.length,
                          rest.needed - first.needed, rest.into + first.length};
    }
    return code;
}

/* --- the page cache ----------------------------------------------------------------------- */

/* Whether the kernel tells what a mapping of a file has cached: it does so to the file's owner alone, and
 * says of others' files that all is there. */
static bool tells(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (status.st_uid == geteuid() || geteuid() == 0);
}

/* Maps a file, once: nobody's bytes go away under a copy. */
static bool map_file(lio_source *source, lio_mapped_file *file, int fd, uint8_t *map)
{
    lio_descriptors_lock(source->files);
    if (!atomic_load_explicit(&file->is_mapped, memory_order_acquire) &&
        mmap(map + file->place, (size_t)file->size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) !=
            MAP_FAILED) {
        source->is_untold |= !tells(fd);
        atomic_store_explicit(&file->is_mapped, true, memory_order_release);
    }
    lio_descriptors_unlock(source->files);
    return atomic_load_explicit(&file->is_mapped, memory_order_acquire);
}

/* Whether all of it is cached, by the kernel's word for a mapping: the file need not be open. */
static bool is_resident(const uint8_t *from, uint64_t length)
{
    unsigned char pages[LIO_PIECE_BYTES / 4096];
    if (length > sizeof pages * 4096 ||
        mincore((void *)(uintptr_t)from, (size_t)length, pages) != 0)
        return false;
    for (uint64_t page = 0; page * (uint64_t)sysconf(_SC_PAGESIZE) < length; page++)
        if (!(pages[page] & 1))
            return false;
    return true;
}

static bool is_cached(void *owner, lio_mapped_file *file, uint64_t offset, uint64_t length,
                      uint8_t *map)
{
    lio_source *source = owner;
    size_t number = (size_t)(file - source->places);
    uint64_t cached = 0;
    bool found;
    int fd;
    if (!source->is_untold && atomic_load_explicit(&file->is_mapped, memory_order_acquire))
        return is_resident(map + file->place + offset, length);
    fd = try_take(source, &source->parts[number]);
    if (fd < 0)
        return false;
    found = lio_cached_bytes(fd, offset, length, &cached) && cached >= length &&
            map_file(source, file, fd, map);
    lio_descriptors_give(source->files, number);
    return found;
}

static lio_mapped *map_files(lio_source *source)
{
    const lio_mapped_file *last = &source->places[source->count - 1];
    return lio_mapped_reserve(last->place + lio_round_up(last->size, LIO_PIECE_BYTES),
                              source->known.mapped_bytes_max, is_cached, source);
}

/* By a call it reads from a file that is open, or was. */
static lio_cached try_read(lio_source *source, const lio_read *read, const struct iovec *into,
                           int count)
{
    lio_mapped *mapped = lio_buffered_mapping(&source->known, map_files, source);
    const lio_part *part = part_of(source, read->offset, read->length);
    lio_read there = *read;
    lio_cached found;
    int fd;
    if (part == NULL)
        return LIO_CACHED_NOT;
    if (mapped != NULL && copy_mapped(source, part, mapped, read, into, count))
        return LIO_CACHED_MAPPED;
    fd = try_take(source, part);
    if (fd < 0)
        return LIO_CACHED_NOT;
    there.offset -= part->base;
    found = lio_buffered_try(&source->known, fd, &there, into, count);
    /* A read that waits says why. */
    if (found == LIO_CACHED_BY_CALL && check_state(part, fd, &there, NULL) != LIO_OK)
        found = LIO_CACHED_NOT;
    give(source, part);
    return found;
}

static lio_cached holds(lio_source *source, uint64_t offset, uint64_t length, bool sure)
{
    lio_mapped *mapped = lio_buffered_mapping(&source->known, map_files, source);
    const lio_part *part = part_of(source, offset, length);
    lio_cached found;
    int fd;
    if (part == NULL)
        return LIO_CACHED_NOT;
    if (mapped != NULL &&
        lio_mapped_holds(mapped, place_of(source, part), offset - part->base, length))
        return LIO_CACHED_MAPPED;
    fd = try_take(source, part);
    if (fd < 0)
        return LIO_CACHED_NOT;
    found = lio_buffered_holds(&source->known, fd, offset - part->base, length,
                               mapped != NULL || sure);
    give(source, part);
    return found;
}

static lio_mapped_file *place(lio_source *source, uint64_t *offset, uint64_t length)
{
    const lio_part *part = part_of(source, *offset, length);
    if (part == NULL)
        return NULL;
    *offset -= part->base;
    return place_of(source, part);
}

static int populate(lio_source *source, uint64_t offset, uint64_t length, bool is_stream,
                    lio_error *error)
{
    lio_read rest = {.offset = offset, .length = length};
    int code = LIO_OK;
    while (rest.length > 0 && code == LIO_OK) {
        const lio_part *part;
        lio_read first = cut_first(source, &rest, &part);
        int fd;
        if (part != NULL) {
            code = take(source, part, &fd, error);
            if (code != LIO_OK)
                break;
            code = lio_buffered_populate(&source->known, fd, first.offset - part->base,
                                         first.length, is_stream, error);
            give(source, part);
            if (code != LIO_OK && error != NULL)
                error->offset += part->base;
        }
        rest.offset += first.length;
        rest.length -= first.length;
    }
    return code;
}

/* To ask for all files would open each. */
static bool cached_bytes(lio_source *source, uint64_t offset, uint64_t length, uint64_t *bytes)
{
    const lio_part *part = part_of(source, offset, length);
    int fd = part == NULL ? -1 : try_take(source, part);
    bool is_said;
    if (fd < 0)
        return false;
    is_said = lio_cached_bytes(fd, offset - part->base, length, bytes);
    give(source, part);
    return is_said;
}

static void expect_random(lio_source *source)
{
    lio_descriptors_advise(source->files, POSIX_FADV_RANDOM);
}

/* --- opening and closing ------------------------------------------------------------------- */

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    (void)error;
    *size = source->size;
    return LIO_OK;
}

static lio_source *source_share(lio_source *source)
{
    (void)atomic_fetch_add(&source->owners, 1);
    return source;
}

static void source_close(lio_source *source)
{
    if (atomic_fetch_sub(&source->owners, 1) > 1)
        return;
    lio_mapped_close(source->known.mapped);
    lio_descriptors_close(source->files);
    free(source->places);
    free(source->bases);
    free(source->parts);
    free(source);
}

static const lio_file_kind joined = {
    .name = "pread",
    .alignment = 1,
    .read = read_one,
    .size = source_size,
    .close = source_close,
    .cached = cached_bytes,
    .expect_random = expect_random,
    .share = source_share,
    .try_read = try_read,
    .holds = holds,
    .place = place,
    .populate = populate,
};

/* Each part lies behind the one before, and has its meta page. */
static int check_parts(const lio_part *parts, size_t count, lio_error *error)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].base % LIO_PART_ALIGNMENT != 0 || parts[i].base < end ||
            !lio_fits(parts[i].base, parts[i].size, INT64_MAX) ||
            !lio_fits(parts[i].meta, LIO_META_BODY_BYTES, parts[i].size))
            return lio_fail(error, LIO_ERR_ARGUMENT, parts[i].base, parts[i].size, end,
                            "a file of impossible size or place among others");
        end = parts[i].base + parts[i].size;
    }
    if (count == 0 || parts[0].base != 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, count, "no files, or a gap before them");
    return LIO_OK;
}

/* Opens the first file, and names the others. */
static int open_files(lio_source *source, const char *names, uint32_t open_max, lio_error *error)
{
    lio_file_id *ids = malloc(source->count * sizeof *ids);
    int code;
    if (ids == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for the names of files");
    for (size_t i = 0; i < source->count; i++)
        ids[i] = (lio_file_id){source->parts[i].device, source->parts[i].inode};
    code = lio_descriptors_open(names, ids, source->count, open_max, &source->files, error);
    free(ids);
    return code;
}

/* Looks at the storage, and whether all files can be mapped. */
static void look(lio_source *source)
{
    lio_buffered_probe(&source->known, lio_descriptors_first(source->files));
    for (size_t i = 1; i < source->count && source->known.refusal == NULL; i++)
        if (source->parts[i].device != source->parts[0].device)
            source->known.refusal = "the files lie on several file systems";
    if (source->count > MAPPED_FILES_MAX && source->known.refusal == NULL)
        source->known.refusal = "the files are more than a process may map";
}

/* Gives each file its place in the mapping. */
static void lay_out(lio_source *source)
{
    uint64_t place = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < source->count; i++) {
        uint64_t size = source->parts[i].size;
        source->bases[i] = source->parts[i].base;
        source->places[i].place = place;
        source->places[i].size = size;
        source->places[i].last = lio_round_down(size - 1, page);
        source->places[i].end = size;
        source->places[i].meta = (lio_extent){source->parts[i].meta, LIO_META_BODY_BYTES};
        place += lio_round_up(size, LIO_PIECE_BYTES);
    }
}

int lio_file_joined(const char *names, const lio_part *parts, size_t count, uint32_t open_max,
                    lio_file *out, lio_error *error)
{
    const lio_part *last = parts + count - 1;
    lio_source *source;
    int code = check_parts(parts, count, error);
    if (code != LIO_OK)
        return code;
    source = calloc(1, sizeof *source);
    if (source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory to join files");
    source->count = count;
    source->owners = 1;
    source->size = last->base + last->size;
    source->density = (double)count / (double)source->size;
    source->parts = malloc(count * sizeof *parts);
    source->bases = malloc(count * sizeof *source->bases);
    source->places = calloc(count, sizeof *source->places);
    if (source->parts != NULL && source->bases != NULL && source->places != NULL) {
        memcpy(source->parts, parts, count * sizeof *parts);
        lay_out(source);
        code = open_files(source, names, open_max, error);
    } else {
        code = lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory to join files");
    }
    if (code != LIO_OK) {
        source_close(source);
        return code;
    }
    look(source);
    *out = (lio_file){.kind = &joined,
                      .source = source,
                      .fd = lio_descriptors_first(source->files),
                      .keeps_state = true,
                      .known = &source->known};
    return LIO_OK;
}
