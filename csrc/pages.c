#include "pages.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the cache ------------------------------------------------------------------------
 *
 * Hash chains for finding, one list for age (head: newest). A pinned page lies under a
 * cursor and is never evicted; when all are pinned the cache grows past its bound. */
struct lio_pin {
    struct lio_pin *chain, *newer, *older;
    uint64_t pgno;
    uint8_t *memory;
    const uint8_t *page;
    uint32_t pins;
};

struct lio_pages {
    lio_engine *engine;
    lio_layout layout;
    uint64_t capacity, count; /* pages */
    uint64_t buckets;         /* power of two */
    lio_pin **table;
    lio_pin *newest, *oldest;
    pthread_mutex_t mutex; /* recursive */
    pid_t pid;
    uint64_t file_size; /* when last asked */
    uint32_t references; /* owners: see lio_pages_share */
};

enum { ALIGNMENT_MIN = 64, CACHE_PAGES_MIN = 2 * LIO_DEPTH_MAX };

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
    pages->buckets = 64;
    while (pages->buckets < pages->capacity && pages->buckets < (1u << 20))
        pages->buckets *= 2;
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
    lio_pin *next;
    for (lio_pin *s = pages->newest; s != NULL; s = next) {
        next = s->older;
        free(s->memory);
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

static lio_pin **bucket(lio_pages *pages, uint64_t pgno)
{
    return &pages->table[(pgno * 0x9E3779B97F4A7C15u >> 20) & (pages->buckets - 1)];
}

static void unlink_age(lio_pages *pages, lio_pin *s)
{
    *(s->newer ? &s->newer->older : &pages->newest) = s->older;
    *(s->older ? &s->older->newer : &pages->oldest) = s->newer;
}

static void link_newest(lio_pages *pages, lio_pin *s)
{
    s->newer = NULL;
    s->older = pages->newest;
    *(pages->newest ? &pages->newest->newer : &pages->oldest) = s;
    pages->newest = s;
}

static void forget(lio_pages *pages, lio_pin *s)
{
    lio_pin **at = bucket(pages, s->pgno);
    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    unlink_age(pages, s);
    pages->count--;
}

/* Room to read into: the oldest unpinned one when the cache is full, else a new one. */
static lio_pin *pin_take(lio_pages *pages, size_t memory_bytes, size_t alignment)
{
    lio_pin *s = NULL;
    if (pages->count >= pages->capacity)
        for (s = pages->oldest; s != NULL && s->pins != 0; s = s->newer)
            ;
    if (s != NULL) {
        forget(pages, s);
        return s;
    }
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->memory = aligned_alloc(alignment, memory_bytes);
    if (s->memory == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

/* Reads and checks page `pgno`, of type LIO_P_BRANCH or LIO_P_LEAF. */
static int pin_read(lio_pages *pages, uint64_t pgno, int type, lio_pin **out, lio_error *error)
{
    uint32_t size = pages->layout.page_size;
    uint64_t alignment = lio_engine_alignment(pages->engine);
    uint64_t offset = pgno * size; /* pgno < page_limit, whose product was checked */
    uint64_t start = lio_round_down(offset, alignment);
    uint64_t span = lio_round_up(offset + size, alignment) - start;
    size_t memory = alignment < ALIGNMENT_MIN ? ALIGNMENT_MIN : (size_t)alignment;
    lio_pin *s = pin_take(pages, lio_round_up(size + 2 * alignment, memory), memory);
    lio_read read = {start, span, offset + size - start, NULL};
    int code;
    if (s == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, offset, size, 0, "no memory for a page");
    read.into = s->memory;
    s->page = s->memory + (offset - start);
    s->pgno = pgno;
    s->pins = 0;
    code = lio_engine_read(pages->engine, &read, 1, error);
    lio_engine_count(pages->engine, &(lio_tally){.page_requests = 1, .page_bytes = span});
    if (code == LIO_OK)
        code = lio_page_check(&pages->layout, s->page, pgno, type, error);
    if (code != LIO_OK) {
        free(s->memory);
        free(s);
        return code;
    }
    s->chain = *bucket(pages, pgno);
    *bucket(pages, pgno) = s;
    link_newest(pages, s);
    pages->count++;
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
    lio_pin *s;
    int code;
    for (s = *bucket(pages, pgno); s != NULL && s->pgno != pgno; s = s->chain)
        ;
    if (s == NULL) {
        code = pin_read(pages, pgno, type, &s, error);
        if (code != LIO_OK)
            return code;
    } else {
        if ((lio_page_flags(&pages->layout, s->page) & (LIO_P_BRANCH | LIO_P_LEAF)) !=
            (uint32_t)type)
            return wrong_type(&pages->layout, pgno, type, error);
        unlink_age(pages, s);
        link_newest(pages, s);
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
    lio_engine_count(pages->engine, &(lio_tally){.planned_bytes = span,
                                                 .gap_bytes = span - where->length});
    free(memory);
    return code;
}

int lio_value_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error)
{
    uint64_t alignment = lio_engine_alignment(pages->engine);
    uint64_t header = pages->layout.header_size;
    uint8_t head[64];
    lio_read reads[2] = {{where->offset - header, header, header, head},
                         {where->offset, where->length, where->length, into}};
    int code;
    if (alignment > 1 || where->length < 32 * 1024)
        return read_aligned(pages, where, alignment < ALIGNMENT_MIN ? ALIGNMENT_MIN : alignment,
                            into, error);
    lio_engine_count(pages->engine, &(lio_tally){.planned_bytes = header + where->length,
                                                 .gap_bytes = header});
    code = lio_engine_scatter(pages->engine, reads, 2, error);
    if (code == LIO_OK)
        code = lio_overflow_check(&pages->layout, head, reads[0].offset / pages->layout.page_size,
                                  where->length, error);
    return code;
}
