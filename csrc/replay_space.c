#include "replay_space.h"

#include <stdlib.h>
#include <string.h>

enum {
    ID_BYTES = 8,        /* a page number, or a transaction, in the free list */
    FIRST_PAGE = 2,      /* after the meta pages */
    TRIES_PER_PAGE = 60, /* records of the free list that are taken for a page in vain */
    ITEMS_FIRST = 64     /* that there is memory for, doubled as need be */
};

/* Below it no place in the file overflows. */
static const uint64_t PAGES_MAX = (uint64_t)1 << 46;

void *lio_grown(void *items, size_t *room, size_t wanted, size_t first, size_t bytes)
{
    size_t grown = *room > 0 ? *room : first;
    void *moved;
    while (grown < wanted)
        grown *= 2;
    moved = realloc(items, grown * bytes);
    if (moved != NULL)
        *room = grown;
    return moved;
}

void lio_sizes_of(uint32_t version, uint32_t page_size, lio_sizes *out)
{
    bool v3 = version == LIO_FORMAT_V3;
    *out = (lio_sizes){
        .page_size = page_size, .header = v3 ? 24 : 16, .is_v3 = v3, .in_overflow = v3 ? 24 : 8};
    out->node_max = ((page_size - out->header) / 2 & ~UINT64_C(1)) - LIO_POINTER_BYTES;
}

int lio_not_modelled(lio_error *error, const char *what)
{
    return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "cannot be replayed: %s", what);
}

static int no_memory(const lio_space *s)
{
    return lio_fail(s->error, LIO_ERR_NOMEM, 0, 0, 0, "no memory to replay a database");
}

/* --- numbers --------------------------------------------------------------------------- */

static size_t many(const lio_numbers *n)
{
    return n->end - n->first;
}

static bool numbers_need(lio_numbers *n, size_t more)
{
    uint64_t *grown;
    if (n->first > 0 && n->end + more > n->room) {
        memmove(n->at, n->at + n->first, many(n) * sizeof *n->at);
        n->end -= n->first;
        n->first = 0;
    }
    if (n->end + more <= n->room)
        return true;
    grown = lio_grown(n->at, &n->room, n->end + more, ITEMS_FIRST, sizeof *grown);
    if (grown != NULL)
        n->at = grown;
    return grown != NULL;
}

static bool numbers_add(lio_numbers *n, uint64_t first, uint64_t count)
{
    if (!numbers_need(n, (size_t)count))
        return false;
    for (uint64_t i = 0; i < count; i++)
        n->at[n->end++] = first + i;
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void numbers_sort(lio_numbers *n)
{
    if (many(n) > 0)
        qsort(n->at + n->first, many(n), sizeof *n->at, compare_numbers);
}

/* Merges rising numbers into rising numbers. */
static bool numbers_merge(lio_numbers *n, const uint64_t *more, size_t count)
{
    size_t from, to;
    if (!numbers_need(n, count))
        return false;
    from = n->end;
    to = n->end += count;
    while (count > 0)
        n->at[--to] = from > n->first && n->at[from - 1] > more[count - 1] ? n->at[--from]
                                                                           : more[--count];
    return true;
}

/* --- allocating ------------------------------------------------------------------------ */

/* The lowest `count` numbers in a row. */
static bool pool_take(lio_numbers *pool, uint64_t count, uint64_t *pgno)
{
    for (size_t i = pool->first; i + count <= pool->end; i++) {
        if (pool->at[i + count - 1] != pool->at[i] + count - 1)
            continue;
        *pgno = pool->at[i];
        memmove(pool->at + pool->first + count, pool->at + pool->first,
                (i - pool->first) * sizeof *pool->at);
        pool->first += (size_t)count;
        return true;
    }
    return false;
}

/* The first record of the free list after transaction `id`, that no reader of the state before this
 * transaction can need. */
static lio_freed *pool_more(lio_space *s, uint64_t id)
{
    for (size_t i = 0; i < s->record_count; i++)
        if (s->records[i].id > id)
            return s->records[i].id < s->txnid - 1 ? &s->records[i] : NULL;
    return NULL;
}

int lio_space_allocate(lio_space *s, uint64_t count, uint64_t *pgno)
{
    uint64_t tries = count * TRIES_PER_PAGE;
    for (;;) {
        lio_freed *more;
        if (many(&s->pool) >= count) {
            if (pool_take(&s->pool, count, pgno))
                return LIO_OK;
            if (tries-- == 0)
                break;
        }
        more = pool_more(s, s->pool_last);
        if (more == NULL)
            break;
        if (!numbers_merge(&s->pool, more->pages, more->count))
            return no_memory(s);
        s->has_pool = true;
        s->pool_last = more->id;
    }
    *pgno = s->next_pgno;
    s->next_pgno += count;
    return s->next_pgno < PAGES_MAX ? LIO_OK
                                    : lio_not_modelled(s->error, "no file has so many pages");
}

int lio_space_release(lio_space *s, uint64_t pgno, uint64_t count)
{
    return numbers_add(&s->released, pgno, count) ? LIO_OK : no_memory(s);
}

int lio_space_touch(lio_space *s, uint64_t *pgno, uint64_t *txnid)
{
    uint64_t fresh;
    int code;
    if (*txnid == s->txnid)
        return LIO_OK;
    code = lio_space_allocate(s, 1, &fresh);
    if (code == LIO_OK)
        code = lio_space_release(s, *pgno, 1);
    *pgno = fresh;
    *txnid = s->txnid;
    return code;
}

/* --- the free list --------------------------------------------------------------------- */

static int root_touch(lio_space *s)
{
    return s->root == LIO_NO_PAGE ? LIO_OK : lio_space_touch(s, &s->root, &s->root_txnid);
}

/* Bytes that a record takes in the leaf. */
static uint64_t freed_bytes(const lio_space *s, const lio_freed *record)
{
    uint64_t inside = record->overflow > 0 ? s->sizes.in_overflow
                                           : (record->reserved + 1) * ID_BYTES;
    return LIO_NODE_BYTES + ID_BYTES + inside + LIO_POINTER_BYTES;
}

/* Gives back a record's overflow pages: for use at once, if this transaction wrote them. */
static int freed_pages(lio_space *s, lio_freed *record)
{
    uint64_t pgno[1] = {record->pgno};
    uint32_t count = record->overflow;
    record->overflow = 0;
    s->overflow_pages -= count;
    if (count == 0 || !s->has_pool || record->txnid != s->txnid)
        return count == 0 ? LIO_OK : lio_space_release(s, record->pgno, count);
    for (; count > 0; count--, pgno[0]++)
        if (!numbers_merge(&s->pool, pgno, 1))
            return no_memory(s);
    return LIO_OK;
}

/* Takes the first record out. */
static int freed_delete(lio_space *s)
{
    lio_freed *record;
    int code = s->record_count > 0 ? root_touch(s)
                                   : lio_not_modelled(s->error, "its free list is empty");
    if (code != LIO_OK)
        return code;
    record = &s->records[0];
    s->root_left += freed_bytes(s, record);
    code = freed_pages(s, record);
    free(record->pages);
    s->record_count--;
    memmove(record, record + 1, s->record_count * sizeof *record);
    if (code != LIO_OK || s->record_count > 0)
        return code;
    code = lio_space_release(s, s->root, 1);
    s->root = LIO_NO_PAGE;
    return code;
}

static lio_freed *freed_find(lio_space *s, uint64_t id, bool *found)
{
    size_t i = 0;
    while (i < s->record_count && s->records[i].id < id)
        i++;
    *found = i < s->record_count && s->records[i].id == id;
    return s->records != NULL ? &s->records[i] : NULL;
}

static int freed_insert(lio_space *s, uint64_t id, lio_freed **out)
{
    bool found;
    size_t index;
    if (s->record_count == s->record_room) {
        lio_freed *grown = lio_grown(s->records, &s->record_room, s->record_count + 1, ITEMS_FIRST,
                                     sizeof *grown);
        if (grown == NULL)
            return no_memory(s);
        s->records = grown;
    }
    *out = freed_find(s, id, &found);
    index = (size_t)(*out - s->records);
    memmove(*out + 1, *out, (s->record_count - index) * sizeof **out);
    s->record_count++;
    **out = (lio_freed){.id = id};
    return LIO_OK;
}

/* Has room for `reserved` page numbers in the record of a transaction. */
static int freed_reserve(lio_space *s, uint64_t id, size_t reserved)
{
    uint64_t length = (reserved + 1) * ID_BYTES;
    uint32_t needs = (uint32_t)lio_overflow_pages(&s->sizes, length);
    uint32_t pages = lio_overflows(&s->sizes, ID_BYTES, length) ? needs : 0;
    lio_freed *record;
    bool found;
    int code = LIO_OK;
    if (s->root == LIO_NO_PAGE) {
        code = lio_space_allocate(s, 1, &s->root);
        s->root_txnid = s->txnid;
        s->root_left = s->sizes.page_size - s->sizes.header;
    } else {
        code = root_touch(s);
    }
    record = freed_find(s, id, &found);
    if (code == LIO_OK && !found)
        code = freed_insert(s, id, &record);
    if (code != LIO_OK)
        return code;
    if (found) {
        uint32_t has = record->overflow;
        if (has > 0 && has >= needs && record->txnid == s->txnid) {
            record->reserved = reserved;
            return LIO_OK;
        }
        if (has == 0 && record->reserved == reserved)
            return LIO_OK;
        s->root_left += freed_bytes(s, record);
        code = freed_pages(s, record);
    }
    record->reserved = reserved;
    record->txnid = s->txnid;
    record->overflow = pages;
    if (code != LIO_OK)
        return code;
    if (freed_bytes(s, record) > s->root_left)
        return lio_not_modelled(s->error, "its free list needs more than a page");
    s->root_left -= freed_bytes(s, record);
    s->overflow_pages += pages;
    return pages == 0 ? LIO_OK : lio_space_allocate(s, pages, &record->pgno);
}

static bool freed_fill(lio_freed *record, const uint64_t *pages, size_t count)
{
    free(record->pages);
    record->pages = malloc((count > 0 ? count : 1) * sizeof *pages);
    if (record->pages == NULL)
        return false;
    memcpy(record->pages, pages, count * sizeof *pages);
    record->count = count;
    return true;
}

/* The rest of the pool goes back into the records reserved for it. */
static int pool_return(lio_space *s)
{
    lio_numbers *pool = &s->pool;
    for (size_t i = 0; i < s->record_count && many(pool) > 0; i++) {
        lio_freed *record = &s->records[i];
        size_t count = record->reserved < many(pool) ? record->reserved : many(pool);
        if (!freed_fill(record, pool->at + pool->first, count))
            return no_memory(s);
        pool->first += count;
        if (record->overflow == 0)
            s->root_left += (record->reserved - count) * ID_BYTES;
        record->reserved = count;
    }
    return LIO_OK;
}

/* To write takes pages and releases pages, hence the loop. */
int lio_space_save(lio_space *s)
{
    const int64_t most = (int64_t)s->per_page;
    uint64_t last = 0, head = 0;
    size_t saved = 0;
    int64_t head_room = 0, total_room = 0, left;
    int more = 1, code = LIO_OK;
    bool found;
    if (s->has_pool)
        code = root_touch(s);
    while (code == LIO_OK) {
        while (code == LIO_OK && last < s->pool_last) {
            last = head = s->record_count > 0 ? s->records[0].id : s->pool_last;
            total_room = head_room = 0;
            code = freed_delete(s);
        }
        if (code == LIO_OK && saved < many(&s->released)) {
            if (saved == 0)
                code = root_touch(s);
            do {
                saved = many(&s->released);
                if (code == LIO_OK)
                    code = freed_reserve(s, s->txnid, saved);
            } while (code == LIO_OK && saved < many(&s->released));
            numbers_sort(&s->released);
            if (code == LIO_OK && !freed_fill(freed_find(s, s->txnid, &found),
                                              s->released.at + s->released.first, saved))
                code = no_memory(s);
            continue;
        }
        if (code != LIO_OK)
            break;
        left = (int64_t)many(&s->pool);
        if (total_room >= left) {
            if (total_room == left || --more < 0)
                break;
        } else if (head_room >= most && head > 1) {
            head--;
            head_room = 0;
        }
        total_room -= head_room;
        head_room = left - total_room;
        if (head_room > most && head > 1) {
            head_room /= (int64_t)head;
            head_room += most - head_room % (most + 1);
        } else if (head_room < 0) {
            head_room = 0;
        }
        code = freed_reserve(s, head, (size_t)head_room);
        total_room += head_room;
    }
    return code == LIO_OK ? pool_return(s) : code;
}

/* --- from transaction to transaction --------------------------------------------------- */

void lio_space_open(const lio_sizes *sizes, lio_error *error, lio_space *out)
{
    *out = (lio_space){.sizes = *sizes,
                       .error = error,
                       .next_pgno = FIRST_PAGE,
                       .root = LIO_NO_PAGE,
                       .per_page = (sizes->page_size - sizes->header) / ID_BYTES - 1};
}

void lio_space_close(lio_space *s)
{
    for (size_t i = 0; i < s->record_count; i++)
        free(s->records[i].pages);
    free(s->records);
    free(s->pool.at);
    free(s->released.at);
}

void lio_space_begin(lio_space *s)
{
    s->txnid++;
    s->pool.first = s->pool.end = s->released.first = s->released.end = 0;
    s->has_pool = false;
    s->pool_last = 0;
}

void lio_space_record(const lio_space *s, lio_db *out)
{
    bool is_empty = s->root == LIO_NO_PAGE;
    *out = (lio_db){.depth = !is_empty,
                    .leaf_pages = !is_empty,
                    .entries = s->record_count,
                    .overflow_pages = s->overflow_pages,
                    .root = s->root};
}
