#include "provenance.h"

#include <inttypes.h>
#include <string.h>

/* No file is larger, and below it no sum of two positions wraps. */
static const uint64_t SPACE_MAX = (uint64_t)1 << 62;

/* --- the file that the extents must lie in ------------------------------------------- */

typedef struct {
    uint64_t page_size, header_size, page_limit;
    uint64_t bytes; /* page_limit * page_size */
} space;

static int space_of(const lio_layout *layout, space *out, lio_error *error)
{
    if (!lio_is_power_of_two(layout->page_size) || layout->page_size < LIO_PAGE_SIZE_MIN ||
        layout->page_size > LIO_PAGE_SIZE_MAX || layout->header_size >= layout->page_size ||
        layout->page_limit > SPACE_MAX / layout->page_size)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                        "no database has pages of %" PRIu32 " bytes, headers of %" PRIu32
                        " and %" PRIu64 " pages",
                        layout->page_size, layout->header_size, layout->page_limit);
    out->page_size = layout->page_size;
    out->header_size = layout->header_size;
    out->page_limit = layout->page_limit;
    out->bytes = layout->page_limit * layout->page_size;
    return LIO_OK;
}

/* The pages of a value that begins after a page header. `length` <= SPACE_MAX. */
static uint64_t pages_of(const space *file, uint64_t length)
{
    return (file->header_size + length + file->page_size - 1) / file->page_size;
}

/* True when the value begins right after a page header, as overflow values do. */
static bool is_paged(const space *file, const lio_extent *at)
{
    return (at->offset & (file->page_size - 1)) == file->header_size;
}

static uint64_t page_after(const space *file, const lio_extent *at)
{
    return at->offset / file->page_size + pages_of(file, at->length);
}

/* Where the record after `last` is expected: on the page after it when `last` has pages of
 * its own, else just below it, because LMDB packs leaf pages downward. Wraps at will. */
static uint64_t guess(const space *file, const lio_extent *last, uint64_t length)
{
    if (is_paged(file, last))
        return page_after(file, last) * file->page_size + file->header_size;
    return last->offset - length;
}

/* --- varints ------------------------------------------------------------------------- */

enum { VARINT_BYTES_MAX = 10 };

static uint64_t zigzag(uint64_t difference)
{
    return (difference << 1) ^ (UINT64_C(0) - (difference >> 63));
}

static uint64_t unzigzag(uint64_t value)
{
    return (value >> 1) ^ (UINT64_C(0) - (value & 1));
}

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    while (value >= 0x80) {
        value >>= 7;
        size++;
    }
    return size;
}

static uint8_t *varint_write(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

typedef struct {
    const uint8_t *at, *end;
} cursor;

static bool varint_read(cursor *from, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX && from->at < from->end; i++) {
        uint8_t byte = *from->at++;
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            return false;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* --- lengths ------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *planes;
    size_t count;
    unsigned width;
    uint64_t smallest;
} lengths;

static unsigned width_of(uint64_t range)
{
    unsigned width = 0;
    while (range != 0) {
        range >>= 8;
        width++;
    }
    return width;
}

static bool lengths_read(cursor *from, size_t count, lengths *out)
{
    if (!varint_read(from, &out->smallest) || from->at == from->end)
        return false;
    out->width = *from->at++;
    out->count = count;
    out->planes = from->at;
    if (out->width > 8 || (out->width != 0 && count > (size_t)(from->end - from->at) / out->width))
        return false;
    from->at += count * out->width;
    return true;
}

/* Length `index`, or UINT64_MAX where the sum would wrap: that fits no file. */
static uint64_t length_at(const lengths *of, size_t index)
{
    uint64_t above = 0;
    for (unsigned plane = 0; plane < of->width; plane++)
        above |= (uint64_t)of->planes[plane * of->count + index] << (8 * plane);
    return lio_add_saturated(of->smallest, above);
}

static uint8_t *lengths_write(uint8_t *at, const lio_extent *extents, size_t count,
                              uint64_t smallest, unsigned width)
{
    at = varint_write(at, smallest);
    *at++ = (uint8_t)width;
    for (unsigned plane = 0; plane < width; plane++)
        for (size_t i = 0; i < count; i++)
            *at++ = (uint8_t)((extents[i].length - smallest) >> (8 * plane));
    return at;
}

/* --- measuring ----------------------------------------------------------------------- */

/* The exact sizes of both forms, kept up to date record by record. */
typedef struct {
    size_t count;
    uint64_t length_min, length_max;
    size_t residual_bytes, counts_bytes, jumps_bytes; /* counts: of the runs that have ended */
    uint64_t runs, run_records, misses;
    bool paged; /* every record so far begins after a page header */
    lio_extent last;
} measure;

static void measure_run(measure *m, const space *file, const lio_extent *next)
{
    uint64_t page = next->offset / file->page_size;
    uint64_t expected = m->count == 0 ? 0 : page_after(file, &m->last);
    if (m->count != 0 && page == expected) {
        m->run_records++;
        return;
    }
    if (m->runs != 0)
        m->counts_bytes += varint_size(m->run_records);
    m->jumps_bytes += varint_size(zigzag(page - expected));
    m->run_records = 1;
    m->runs++;
}

static void measure_add(measure *m, const space *file, const lio_extent *next)
{
    uint64_t residual = next->offset - guess(file, &m->last, next->length);

    m->residual_bytes += varint_size(zigzag(residual));
    m->misses += residual != 0;
    m->paged = m->paged && is_paged(file, next);
    if (m->paged)
        measure_run(m, file, next);
    if (next->length < m->length_min)
        m->length_min = next->length;
    if (next->length > m->length_max)
        m->length_max = next->length;
    m->last = *next;
    m->count++;
}

static void measure_size(const measure *m, uint32_t form, lio_block_size *out)
{
    size_t lengths_size = varint_size(m->length_min) + 1 +
                          width_of(m->length_max - m->length_min) * m->count;
    size_t counts = m->counts_bytes + varint_size(m->run_records);
    size_t runs = varint_size(m->runs) + varint_size(counts) + counts + m->jumps_bytes;
    bool as_runs = form == LIO_BLOCK_RUNS || (form == 0 && m->paged && runs <= m->residual_bytes);
    out->count = m->count;
    out->form = as_runs ? LIO_BLOCK_RUNS : LIO_BLOCK_EXPLICIT;
    out->raw_size = lengths_size + (as_runs ? runs : m->residual_bytes);
    out->runs = as_runs ? m->runs : m->misses;
}

/* `smallest`, `largest`: lengths of those that the block takes. */
static int measure_block(const space *file, const lio_extent *extents, size_t count, uint32_t form,
                         lio_block_size *out, uint64_t *smallest, uint64_t *largest,
                         lio_error *error)
{
    measure m = {.length_min = UINT64_MAX, .paged = true};
    lio_block_size fits = {0};
    if (count == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "a block holds at least one record");
    for (size_t i = 0; i < count && i < LIO_BLOCK_RECORDS_MAX; i++) {
        lio_block_size next;
        if (!lio_fits(extents[i].offset, extents[i].length, file->bytes))
            return lio_fail(error, LIO_ERR_ARGUMENT, extents[i].offset, extents[i].length,
                            file->bytes, "record %zu lies outside the file", i);
        measure_add(&m, file, &extents[i]);
        if (form == LIO_BLOCK_RUNS && !m.paged)
            return lio_fail(error, LIO_ERR_UNSUPPORTED, extents[i].offset, 0, 0,
                            "record %zu lies inside a page, where runs cannot say it", i);
        measure_size(&m, form, &next);
        if (next.raw_size > LIO_BLOCK_RAW_MAX)
            break;
        fits = next;
        *smallest = m.length_min;
        *largest = m.length_max;
    }
    *out = fits;
    return LIO_OK;
}

/* --- encoding ------------------------------------------------------------------------ */

static uint8_t *residuals_write(uint8_t *at, const space *file, const lio_extent *extents,
                                size_t count)
{
    lio_extent last = {0, 0};
    for (size_t i = 0; i < count; i++) {
        at = varint_write(at, zigzag(extents[i].offset - guess(file, &last, extents[i].length)));
        last = extents[i];
    }
    return at;
}

/* The index of the first record after the run that begins at `first`. */
static size_t run_end(const space *file, const lio_extent *extents, size_t count, size_t first)
{
    size_t i = first + 1;
    while (i < count && extents[i].offset / file->page_size == page_after(file, &extents[i - 1]))
        i++;
    return i;
}

static uint8_t *runs_write(uint8_t *at, const space *file, const lio_extent *extents, size_t count)
{
    size_t runs = 0, counts_size = 0, end;
    uint64_t expected = 0;
    for (size_t first = 0; first < count; first = end, runs++) {
        end = run_end(file, extents, count, first);
        counts_size += varint_size(end - first);
    }
    at = varint_write(at, runs);
    at = varint_write(at, counts_size);
    for (size_t first = 0; first < count; first = end) {
        end = run_end(file, extents, count, first);
        at = varint_write(at, end - first);
    }
    for (size_t first = 0; first < count; first = end) {
        end = run_end(file, extents, count, first);
        at = varint_write(at, zigzag(extents[first].offset / file->page_size - expected));
        expected = page_after(file, &extents[end - 1]);
    }
    return at;
}

int lio_block_encode(const lio_layout *layout, const lio_extent *extents, size_t count,
                     uint32_t form, lio_block_size *size, uint8_t *out, lio_error *error)
{
    space file;
    uint64_t smallest = 0, largest = 0;
    int code = space_of(layout, &file, error);
    if (code == LIO_OK)
        code = measure_block(&file, extents, count, form, size, &smallest, &largest, error);
    if (code != LIO_OK)
        return code;
    out = lengths_write(out, extents, size->count, smallest, width_of(largest - smallest));
    if (size->form == LIO_BLOCK_RUNS)
        (void)runs_write(out, &file, extents, size->count);
    else
        (void)residuals_write(out, &file, extents, size->count);
    return LIO_OK;
}

/* --- decoding ------------------------------------------------------------------------ */

static int damaged(lio_error *error, const char *what, size_t record)
{
    return lio_fail(error, LIO_ERR_SIDECAR, 0, 0, 0, "a block is damaged: %s (record %zu)", what,
                    record);
}

static int decode_explicit(const space *file, const lengths *of, cursor *from, lio_extent *out,
                           lio_error *error)
{
    lio_extent last = {0, 0};
    for (size_t i = 0; i < of->count; i++) {
        uint64_t residual;
        if (!varint_read(from, &residual))
            return damaged(error, "its offsets are cut", i);
        last = (lio_extent){guess(file, &last, length_at(of, i)) + unzigzag(residual),
                            length_at(of, i)};
        if (!lio_fits(last.offset, last.length, file->bytes))
            return damaged(error, "an extent lies outside the file", i);
        out[i] = last;
    }
    return from->at == from->end ? LIO_OK : damaged(error, "it has bytes left over", of->count);
}

/* One run of `records` values from page `*page`, which is left on the page after it. */
static bool decode_run(const space *file, const lengths *of, size_t first, size_t records,
                       uint64_t *page, lio_extent *out)
{
    for (size_t i = first; i < first + records; i++) {
        uint64_t length = length_at(of, i);
        uint64_t pages;
        if (length > file->bytes)
            return false;
        pages = pages_of(file, length);
        if (!lio_fits(*page, pages, file->page_limit))
            return false;
        out[i] = (lio_extent){*page * file->page_size + file->header_size, length};
        *page += pages;
    }
    return true;
}

static int decode_runs(const space *file, const lengths *of, cursor *from, lio_extent *out,
                       lio_error *error)
{
    uint64_t runs, counts_size, records, jump, page = 0;
    size_t done = 0;
    cursor counts;
    if (!varint_read(from, &runs) || !varint_read(from, &counts_size) ||
        counts_size > (size_t)(from->end - from->at))
        return damaged(error, "its runs are cut", 0);
    counts = (cursor){from->at, from->at + counts_size};
    from->at = counts.end;
    for (uint64_t run = 0; run < runs; run++) {
        if (!varint_read(&counts, &records) || !varint_read(from, &jump))
            return damaged(error, "its runs are cut", done);
        if (records == 0 || records > of->count - done)
            return damaged(error, "its runs hold another number of records", done);
        page += unzigzag(jump);
        if (!decode_run(file, of, done, (size_t)records, &page, out))
            return damaged(error, "an extent lies outside the file", done);
        done += (size_t)records;
    }
    if (done != of->count)
        return damaged(error, "its runs hold another number of records", done);
    if (counts.at != counts.end || from->at != from->end)
        return damaged(error, "it has bytes left over", done);
    return LIO_OK;
}

int lio_block_decode(const lio_layout *layout, uint32_t form, const uint8_t *raw, size_t raw_size,
                     size_t count, lio_extent *out, lio_error *error)
{
    space file;
    lengths of;
    cursor from = {raw, raw + raw_size};
    int code = space_of(layout, &file, error);
    if (code != LIO_OK)
        return code;
    if (count == 0 || count > LIO_BLOCK_RECORDS_MAX)
        return lio_fail(error, LIO_ERR_SIDECAR, 0, LIO_BLOCK_RECORDS_MAX, count,
                        "a block of %zu records is damaged", count);
    if (form != LIO_BLOCK_RUNS && form != LIO_BLOCK_EXPLICIT)
        return lio_fail(error, LIO_ERR_SIDECAR, 0, 0, form,
                        "a block has the unknown form %" PRIu32, form);
    if (!lengths_read(&from, count, &of))
        return damaged(error, "its lengths are cut", 0);
    return form == LIO_BLOCK_RUNS ? decode_runs(&file, &of, &from, out, error)
                                  : decode_explicit(&file, &of, &from, out, error);
}

/* --- leaves -------------------------------------------------------------------------- */

static bool is_leaf(const lio_layout *layout, const lio_leaf *leaf)
{
    return leaf->pgno < layout->page_limit && leaf->records > 0 &&
           leaf->records < layout->page_size;
}

/* Where a leaf is expected: after the one before it. */
static uint64_t leaf_after(const lio_leaf *leaves, size_t index)
{
    return index > 0 ? leaves[index - 1].pgno + 1 : 0;
}

static int measure_leaves(const lio_layout *layout, const lio_leaf *leaves, size_t count,
                          lio_block_size *out, lio_error *error)
{
    space file;
    size_t bytes = 0;
    int code = space_of(layout, &file, error);
    if (code != LIO_OK)
        return code;
    if (count == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "a block holds at least one leaf");
    *out = (lio_block_size){.form = LIO_BLOCK_LEAVES};
    for (size_t i = 0; i < count && i < LIO_BLOCK_LEAVES_MAX; i++) {
        uint64_t jump = leaves[i].pgno - leaf_after(leaves, i);
        size_t all;
        if (!is_leaf(layout, &leaves[i]))
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, layout->page_limit, leaves[i].pgno,
                            "leaf %zu lies outside the file, or has an impossible number of "
                            "records",
                            i);
        bytes += varint_size(zigzag(jump)) + varint_size(leaves[i].records);
        all = varint_size(i + 1) + bytes;
        if (all > LIO_BLOCK_RAW_MAX)
            break;
        out->count = i + 1;
        out->raw_size = all;
        out->runs += jump != 0;
    }
    return LIO_OK;
}

int lio_leaves_encode(const lio_layout *layout, const lio_leaf *leaves, size_t count,
                      lio_block_size *size, uint8_t *out, lio_error *error)
{
    int code = measure_leaves(layout, leaves, count, size, error);
    if (code != LIO_OK)
        return code;
    out = varint_write(out, size->count);
    for (size_t i = 0; i < size->count; i++)
        out = varint_write(out, zigzag(leaves[i].pgno - leaf_after(leaves, i)));
    for (size_t i = 0; i < size->count; i++)
        out = varint_write(out, leaves[i].records);
    return LIO_OK;
}

int lio_leaves_decode(const lio_layout *layout, const uint8_t *raw, size_t raw_size,
                      uint64_t records, lio_leaf *out, size_t *count, lio_error *error)
{
    cursor from = {raw, raw + raw_size};
    uint64_t leaves, jump;
    space file;
    int code = space_of(layout, &file, error);
    if (code != LIO_OK)
        return code;
    if (!varint_read(&from, &leaves) || leaves > LIO_BLOCK_LEAVES_MAX)
        return damaged(error, "its leaves are cut", 0);
    for (size_t i = 0; i < leaves; i++) {
        if (!varint_read(&from, &jump))
            return damaged(error, "its leaves are cut", i);
        out[i].pgno = leaf_after(out, i) + unzigzag(jump);
    }
    for (size_t i = 0; i < leaves; i++) {
        if (!varint_read(&from, &out[i].records))
            return damaged(error, "its leaves are cut", i);
        if (!is_leaf(layout, &out[i]))
            return damaged(error, "a leaf lies outside the file", i);
        if (out[i].records > records)
            return damaged(error, "its leaves hold another number of records", i);
        records -= out[i].records;
    }
    if (records != 0)
        return damaged(error, "its leaves hold another number of records", (size_t)leaves);
    if (from.at != from.end)
        return damaged(error, "it has bytes left over", (size_t)leaves);
    *count = (size_t)leaves;
    return LIO_OK;
}

void lio_leaves_of(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                   size_t count, lio_leaf *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (lio_leaf){pgnos[i], lio_page_count(layout, pages + i * layout->page_size)};
}

int lio_leaves_check(const lio_layout *layout, const uint8_t *pages, const lio_leaf *leaves,
                     size_t count, lio_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t *page = pages + i * layout->page_size;
        uint64_t pgno = leaves[i].pgno;
        uint32_t records;
        int code = lio_page_check(layout, page, pgno, LIO_P_LEAF, error);
        if (code != LIO_OK)
            return code;
        records = lio_page_count(layout, page);
        if (records != leaves[i].records)
            return lio_fail(error, LIO_ERR_CORRUPT, pgno * layout->page_size, leaves[i].records,
                            records, "leaf page %" PRIu64 " holds another number of records",
                            pgno);
    }
    return LIO_OK;
}
