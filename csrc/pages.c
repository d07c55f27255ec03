#include "pages.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "engine_pagecache.h"
#include "engine_stats.h"

/* --- the cache ------------------------------------------------------------------------
 *
 * Hash chains for finding; a ring, in which a hand goes round, for replacing: who was used since
 * the hand last came by stays (CLOCK). A hit thus writes to one page's pin, where a list ordered
 * by age would touch four. A pinned page lies under a cursor and is never evicted; when all are
 * pinned the cache grows past its bound. */
struct lio_pin {
    struct lio_pin *chain;
    uint64_t pgno;
    const uint8_t *page;
    uint32_t pins;
    bool used;            /* since the hand came by */
    uint8_t *memory;      /* part of its slab */
    struct lio_pin *next; /* in the ring, or among the spare ones */
};

/* Pins and their memory are made by the slab: the first ones are small, the others huge pages,
 * since a search at random in a cache of many MiB waits for the translation of addresses as well
 * as for the bytes. */
typedef struct slab {
    struct slab *next;
    uint8_t *memory;
    uint32_t used, count; /* pins */
    lio_pin pins[];
} slab;

/* Where a chain begins. Its first page is prefetched while its pin is on its way. */
typedef struct {
    lio_pin *first;
    const uint8_t *page; /* of `first`, or of one that was: only asked for */
} bucket;

struct lio_pages {
    lio_engine *engine;
    lio_layout layout;
    uint64_t capacity, count; /* pages */
    uint64_t buckets;         /* power of two */
    bucket *table;
    lio_pin *hand;         /* the pin before the one to be judged next; NULL: none */
    lio_pin *spare;        /* with memory, without a page */
    slab *slabs;           /* newest first */
    pthread_mutex_t mutex; /* recursive */
    pid_t pid;
    bool hasty;          /* see lio_pages_try_lock */
    uint64_t file_size;  /* when last asked */
    uint32_t references; /* owners: see lio_pages_share */
};

enum {
    ALIGNMENT_MIN = 64, /* a line of a core's cache */
    CACHE_PAGES_MIN = 2 * LIO_DEPTH_MAX,
    BUCKETS_FIRST = 64,
    SEARCH_LINES = 4, /* of a page, where a search begins: its header, its pointers to nodes */
    SLAB_PAGES_FIRST = 16,
    SLABS_SMALL = 16 /* before those of huge pages */
};

static void mutex_make(lio_pages *pages)
{
    pthread_mutexattr_t recursive;
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&pages->mutex, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
    pages->pid = getpid();
}

int lio_pages_open(lio_engine *engine, const lio_layout *layout, uint64_t cache_bytes,
                   lio_pages **out, lio_error *error)
{
    lio_pages *pages = calloc(1, sizeof *pages);
    if (pages == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *pages, 0, "no memory for a page cache");
    pages->engine = engine;
    pages->layout = *layout;
    pages->capacity = cache_bytes / layout->page_size;
    if (pages->capacity < CACHE_PAGES_MIN)
        pages->capacity = CACHE_PAGES_MIN;
    pages->buckets = BUCKETS_FIRST;
    pages->table = calloc(pages->buckets, sizeof *pages->table);
    if (pages->table == NULL) {
        free(pages);
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for a page cache");
    }
    mutex_make(pages);
    pages->references = 1;
    *out = pages;
    return LIO_OK;
}

static void pages_free(lio_pages *pages)
{
    for (slab *s = pages->slabs, *next; s != NULL; s = next) {
        next = s->next;
        lio_buffer_close(s->memory);
        free(s);
    }
    (void)pthread_mutex_destroy(&pages->mutex);
    free(pages->table);
    free(pages);
}

void lio_pages_lock(lio_pages *pages)
{
    if (pthread_mutex_trylock(&pages->mutex) != 0) {
        /* In a child forked while another thread of the parent held the lock, nobody will
         * ever release it: the one thread of the child takes it anew. */
        if (pages->pid != getpid())
            mutex_make(pages);
        (void)pthread_mutex_lock(&pages->mutex);
    }
}

bool lio_pages_try_lock(lio_pages *pages)
{
    if (pthread_mutex_trylock(&pages->mutex) != 0)
        return false;
    pages->hasty = true;
    return true;
}

void lio_pages_unlock_tried(lio_pages *pages)
{
    pages->hasty = false;
    lio_pages_unlock(pages);
}

void lio_pages_forked(lio_pages *pages)
{
    mutex_make(pages);
}

void lio_pages_unlock(lio_pages *pages)
{
    (void)pthread_mutex_unlock(&pages->mutex);
}

void lio_pages_share(lio_pages *pages)
{
    lio_pages_lock(pages);
    pages->references++;
    lio_pages_unlock(pages);
}

void lio_pages_close(lio_pages *pages)
{
    uint32_t left;
    if (pages == NULL)
        return;
    lio_pages_lock(pages);
    left = --pages->references;
    lio_pages_unlock(pages);
    if (left == 0)
        pages_free(pages);
}

lio_engine *lio_pages_engine(const lio_pages *pages)
{
    return pages->engine;
}

const lio_layout *lio_pages_layout(const lio_pages *pages)
{
    return &pages->layout;
}

static bucket *bucket_of(const lio_pages *pages, uint64_t pgno)
{
    return &pages->table[(pgno * 0x9E3779B97F4A7C15u >> 20) & (pages->buckets - 1)];
}

static void chain(lio_pages *pages, lio_pin *s)
{
    bucket *at = bucket_of(pages, s->pgno);
    s->chain = at->first;
    *at = (bucket){s, s->page};
}

/* Twice the buckets for twice the pages; without memory for them, chains grow instead. */
static void table_grow(lio_pages *pages)
{
    uint64_t before = pages->buckets;
    bucket *old = pages->table, *table = calloc(2 * before, sizeof *table);
    if (table == NULL)
        return;
    pages->table = table;
    pages->buckets = 2 * before;
    for (uint64_t i = 0; i < before; i++)
        for (lio_pin *s = old[i].first, *next; s != NULL; s = next) {
            next = s->chain;
            chain(pages, s);
        }
    free(old);
}

/* Into the ring behind the hand, where it is judged last; and to be found. */
static void remember(lio_pages *pages, lio_pin *s)
{
    if (pages->count >= pages->buckets)
        table_grow(pages);
    chain(pages, s);
    s->next = pages->hand != NULL ? pages->hand->next : s;
    if (pages->hand != NULL)
        pages->hand->next = s;
    pages->hand = s;
    pages->count++;
}

/* The pin after `before` in the ring. */
static void forget(lio_pages *pages, lio_pin *before)
{
    lio_pin *s = before->next, **at = &bucket_of(pages, s->pgno)->first;
    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    before->next = s->next;
    pages->hand = s == before ? NULL : before;
    pages->count--;
}

/* Takes one out that is neither pinned nor was used since the hand last came by; NULL: there is
 * none even when all have been looked at twice. */
static lio_pin *evict(lio_pages *pages)
{
    for (uint64_t i = 0; i < 2 * pages->count; i++, pages->hand = pages->hand->next) {
        lio_pin *s = pages->hand->next;
        if (s->pins == 0 && !s->used) {
            forget(pages, pages->hand);
            return s;
        }
        s->used = false;
    }
    return NULL;
}

/* The memory of a page: with an aligned engine also the bytes around it in the file. A line more
 * keeps the heads of pages, where each search begins, out of the same few sets of a core's cache. */
static uint64_t pin_bytes(const lio_pages *pages)
{
    uint64_t size = pages->layout.page_size, alignment = lio_engine_alignment(pages->engine);
    if (alignment == 1)
        return lio_round_up(size, ALIGNMENT_MIN) + ALIGNMENT_MIN;
    return lio_round_up(size % alignment == 0 ? size : size + 2 * alignment, alignment);
}

static slab *slab_add(lio_pages *pages)
{
    uint64_t bytes = pin_bytes(pages), small = 0;
    slab *made, *first = pages->slabs;
    uint32_t count = SLAB_PAGES_FIRST;
    for (slab *s = first; s != NULL && small < SLABS_SMALL; s = s->next)
        small++;
    if (small == SLABS_SMALL && LIO_HUGE_PAGE_BYTES / bytes > count)
        count = (uint32_t)(LIO_HUGE_PAGE_BYTES / bytes);
    made = calloc(1, sizeof *made + count * sizeof made->pins[0]);
    if (made == NULL)
        return NULL;
    made->memory = lio_buffer_open(count == SLAB_PAGES_FIRST ? count * bytes
                                                             : LIO_HUGE_PAGE_BYTES);
    if (made->memory == NULL) {
        free(made);
        return NULL;
    }
    made->count = count;
    made->next = first;
    pages->slabs = made;
    return made;
}

/* Room to read into: what was given back, an old one when the cache is full, else a new one. */
static lio_pin *pin_take(lio_pages *pages)
{
    lio_pin *s = pages->spare;
    slab *from = pages->slabs;
    if (s != NULL)
        pages->spare = s->next;
    else if (pages->count >= pages->capacity)
        s = evict(pages);
    if (s != NULL)
        return s;
    if (from == NULL || from->used == from->count)
        from = slab_add(pages);
    if (from == NULL)
        return NULL;
    s = &from->pins[from->used];
    s->memory = from->memory + from->used * pin_bytes(pages);
    from->used++;
    return s;
}

/* Waits for the bytes, unless the lock was only tried for. */
static int fill(lio_pages *pages, const lio_read *read, lio_error *error)
{
    struct iovec into = {.iov_base = read->into, .iov_len = (size_t)read->length};
    if (!pages->hasty)
        return lio_engine_read(pages->engine, read, 1, error);
    return lio_engine_try_read(pages->engine, read->offset, &into, 1, true) ? LIO_OK : LIO_PENDING;
}

/* Reads and checks page `pgno`, of type LIO_P_BRANCH or LIO_P_LEAF. */
static int pin_read(lio_pages *pages, uint64_t pgno, int type, lio_pin **out, lio_error *error)
{
    uint32_t size = pages->layout.page_size;
    uint64_t alignment = lio_engine_alignment(pages->engine);
    uint64_t offset = pgno * size; /* pgno < page_limit, whose product was checked */
    uint64_t start = lio_round_down(offset, alignment);
    uint64_t span = lio_round_up(offset + size, alignment) - start;
    lio_pin *s = pin_take(pages);
    lio_read read = {start, span, offset + size - start, NULL};
    int code;
    if (s == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, offset, size, 0, "no memory for a page");
    read.into = s->memory;
    s->page = s->memory + (offset - start);
    s->pgno = pgno;
    s->pins = 0;
    code = fill(pages, &read, error);
    if (code != LIO_PENDING)
        lio_engine_count(pages->engine, &(lio_tally){.page_requests = 1, .page_bytes = span});
    if (code == LIO_OK)
        code = lio_page_check(&pages->layout, s->page, pgno, type, error);
    if (code != LIO_OK) {
        s->next = pages->spare;
        pages->spare = s;
        return code;
    }
    s->used = false;
    remember(pages, s);
    *out = s;
    return LIO_OK;
}

static int wrong_type(const lio_layout *layout, uint64_t pgno, int type, lio_error *error)
{
    return lio_fail(error, LIO_ERR_CORRUPT, pgno * layout->page_size, (uint64_t)type, 0,
                    "page %" PRIu64 " is used as a %s page and as something else", pgno,
                    type == LIO_P_BRANCH ? "branch" : "leaf");
}

int lio_pages_pin(lio_pages *pages, uint64_t pgno, int type, lio_pin **out, lio_error *error)
{
    const bucket *at = bucket_of(pages, pgno);
    lio_pin *s;
    int code;
    for (uint32_t line = 0; at->page != NULL && line < SEARCH_LINES; line++)
        __builtin_prefetch(at->page + (size_t)line * ALIGNMENT_MIN);
    for (s = at->first; s != NULL && s->pgno != pgno; s = s->chain)
        ;
    if (s == NULL) {
        code = pin_read(pages, pgno, type, &s, error);
        if (code != LIO_OK)
            return code;
    } else {
        if ((lio_page_flags(&pages->layout, s->page) & (LIO_P_BRANCH | LIO_P_LEAF)) !=
            (uint32_t)type)
            return wrong_type(&pages->layout, pgno, type, error);
        s->used = true;
    }
    s->pins++;
    *out = s;
    return LIO_OK;
}

const uint8_t *lio_pin_page(const lio_pin *pin)
{
    return pin->page;
}

void lio_pin_add(lio_pin *pin)
{
    pin->pins++;
}

void lio_pin_drop(lio_pin *pin)
{
    pin->pins--;
}

static int copy_key(lio_pages *pages, const lio_pin *pin, uint32_t index, uint8_t *into,
                    uint32_t *size, lio_error *error)
{
    uint32_t count = lio_page_count(&pages->layout, pin->page);
    lio_node node;
    int code;
    if (index >= count)
        return lio_fail(error, LIO_ERR_CORRUPT, pin->pgno * pages->layout.page_size, index, count,
                        "page %" PRIu64 " has %" PRIu32 " records, not one of number %" PRIu32,
                        pin->pgno, count, index);
    code = lio_page_node(&pages->layout, pin->page, pin->pgno, index, &node, error);
    if (code != LIO_OK)
        return code;
    memcpy(into, node.key, node.key_size);
    *size = node.key_size;
    return LIO_OK;
}

int lio_pages_key(lio_pages *pages, uint64_t pgno, uint32_t index, uint8_t *into, uint32_t *size,
                  lio_error *error)
{
    lio_pin *pin;
    int code;
    if (pgno < 2 || pgno >= pages->layout.page_limit)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, pages->layout.page_limit, pgno,
                        "page %" PRIu64 " is not one of the %" PRIu64 " in use", pgno,
                        pages->layout.page_limit);
    lio_pages_lock(pages);
    code = lio_pages_pin(pages, pgno, LIO_P_LEAF, &pin, error);
    if (code == LIO_OK) {
        code = copy_key(pages, pin, index, into, size, error);
        lio_pin_drop(pin);
    }
    lio_pages_unlock(pages);
    return code;
}

/* --- values --------------------------------------------------------------------------- */

/* Values are as long as the file says: a damaged length must not become an allocation. */
int lio_value_check(lio_pages *pages, const lio_extent *where, lio_error *error)
{
    int code;
    if (lio_fits(where->offset, where->length, pages->file_size))
        return LIO_OK;
    code = lio_engine_size(pages->engine, &pages->file_size, error);
    if (code != LIO_OK)
        return code;
    if (lio_fits(where->offset, where->length, pages->file_size))
        return LIO_OK;
    return lio_fail(error, LIO_ERR_SHORT, where->offset, where->length,
                    pages->file_size > where->offset ? pages->file_size - where->offset : 0,
                    "the file ends inside a value");
}

enum { HEADER_BYTES_MAX = 64 };

/* With an aligned engine, through memory of its own. */
static int read_aligned(lio_pages *pages, const lio_extent *where, uint64_t alignment,
                        uint8_t *into, lio_error *error)
{
    uint64_t header = pages->layout.header_size, from = where->offset - header;
    uint64_t start = lio_round_down(from, alignment);
    uint64_t end = where->offset + where->length;
    uint64_t span = lio_round_up(end, alignment) - start;
    uint8_t *memory = aligned_alloc((size_t)alignment, (size_t)span);
    lio_read read = {start, span, end - start, memory};
    int code;
    if (memory == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, start, span, 0, "no memory for a value");
    code = lio_engine_read(pages->engine, &read, 1, error);
    if (code == LIO_OK)
        code = lio_overflow_check(&pages->layout, memory + (from - start),
                                  from / pages->layout.page_size, where->length, error);
    if (code == LIO_OK)
        memcpy(into, memory + (where->offset - start), (size_t)where->length);
    lio_engine_count_planned(pages->engine, span, span - where->length);
    free(memory);
    return code;
}

static int check_head(const lio_pages *pages, const lio_extent *where, const uint8_t *head,
                      lio_error *error)
{
    return lio_overflow_check(&pages->layout, head, where->offset / pages->layout.page_size,
                              where->length, error);
}

int lio_value_try_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error)
{
    uint8_t head[HEADER_BYTES_MAX];
    uint32_t header = pages->layout.header_size;
    struct iovec parts[2] = {{.iov_base = head, .iov_len = header},
                             {.iov_base = into, .iov_len = (size_t)where->length}};
    if (!lio_engine_try_read(pages->engine, where->offset - header, parts, 2, true))
        return LIO_PENDING;
    lio_engine_count_planned(pages->engine, header + where->length, header);
    return check_head(pages, where, head, error);
}

int lio_value_lend(lio_pages *pages, const lio_extent *where, const uint8_t **out,
                   lio_error *error)
{
    uint64_t size;
    const uint8_t *map = lio_engine_map(pages->engine, &size);
    int code;
    *out = NULL;
    if (map == NULL || !lio_fits(where->offset, where->length, size))
        return LIO_OK;
    code = check_head(pages, where, map + where->offset - pages->layout.header_size, error);
    if (code == LIO_OK)
        *out = map + where->offset;
    return code;
}

int lio_value_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error)
{
    uint64_t alignment = lio_engine_alignment(pages->engine);
    uint64_t header = pages->layout.header_size;
    uint8_t head[HEADER_BYTES_MAX];
    lio_read reads[2] = {{where->offset - header, header, header, head},
                         {where->offset, where->length, where->length, into}};
    int code = lio_value_try_read(pages, where, into, error);
    if (code != LIO_PENDING)
        return code;
    if (alignment > 1 || where->length < 32 * 1024)
        return read_aligned(pages, where, alignment < ALIGNMENT_MIN ? ALIGNMENT_MIN : alignment,
                            into, error);
    lio_engine_count_planned(pages->engine, header + where->length, header);
    code = lio_engine_scatter(pages->engine, reads, 2, error);
    if (code == LIO_OK)
        code = check_head(pages, where, head, error);
    return code;
}

/* --- the snapshot ---------------------------------------------------------------------- */

void lio_snapshot_doubt(lio_snapshot *snapshot)
{
    __atomic_store_n(&snapshot->seen, UINT64_MAX, __ATOMIC_RELAXED);
}

/* Transaction T writes its meta page into slot T & 1, and pages of snapshot S are reused only once
 * S + 2 stands in the slot that was that of S. So as long as S stands there, one short read tells
 * what both meta pages would. A read of another thread's after the look must not pass
 * for seen: hence the requests from before it, and the look itself. */
bool lio_snapshot_intact(lio_snapshot *snapshot, lio_pages *pages, bool anew, bool wait)
{
    uint64_t offset = (snapshot->txnid & 1) * pages->layout.page_size + pages->layout.header_size;
    uint64_t requests;
    uint8_t now[LIO_META_BODY_BYTES];
    struct iovec into = {.iov_base = now, .iov_len = sizeof now};
    lio_read read = {offset, sizeof now, sizeof now, now};
    if (__atomic_load_n(&snapshot->is_held, __ATOMIC_RELAXED) ||
        lio_engine_keeps_state(pages->engine))
        return true;
    requests = lio_engine_requests(pages->engine);
    if (!anew && __atomic_load_n(&snapshot->seen, __ATOMIC_RELAXED) == requests)
        return true;
    if (!lio_engine_try_read(pages->engine, offset, &into, 1, false) &&
        !(wait && lio_engine_read(pages->engine, &read, 1, NULL) == LIO_OK))
        return false;
    if (!lio_meta_is(&pages->layout, now, snapshot->txnid) || lio_meta_mark(now) != snapshot->mark)
        return false;
    if (!anew)
        __atomic_store_n(&snapshot->seen, requests + 1, __ATOMIC_RELAXED);
    return true;
}
