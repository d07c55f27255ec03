#include "readahead.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "engine_stats.h"

enum {
    WINDOW_FIRST = 4,
    LEAF_REQUEST_BYTES = 1 << 20,
    PAST_BYTES_MIN = 4 << 20 /* batches that may go past the page cache */
};

/* Page numbers in key order, pages one after another. */
typedef struct {
    uint64_t *pgnos;
    uint8_t *memory;
    lio_read *reads;
    uint64_t past_bytes; /* 0: through the page cache */
    lio_ticket *ticket;  /* NULL: not begun, or all there */
    uint32_t count, at, capacity, read_count;
} batch;

typedef struct {
    lio_lender lender; /* first: a pointer to it is a pointer to the whole */
    lio_tree leader;
    lio_bypass *past; /* NULL: none */
    batch batches[2];
    uint32_t window, pages_max, current;
    bool started, ended;
    pid_t pid;
} readahead;

/* --- life ----------------------------------------------------------------------------- */

static void batch_drop(batch *b)
{
    lio_ticket_free(b->ticket);
    b->ticket = NULL;
    b->count = b->at = b->read_count = 0;
    b->past_bytes = 0;
}

static void batch_free(batch *b)
{
    batch_drop(b);
    free(b->pgnos);
    free(b->reads);
    lio_buffer_close(b->memory);
    memset(b, 0, sizeof *b);
}

static int batch_reserve(batch *b, uint32_t pages, uint32_t page_size)
{
    if (b->capacity >= pages)
        return LIO_OK;
    batch_free(b);
    b->pgnos = calloc(pages, sizeof *b->pgnos);
    b->reads = calloc(pages, sizeof *b->reads);
    b->memory = lio_buffer_open((uint64_t)pages * page_size);
    if (b->pgnos == NULL || b->reads == NULL || b->memory == NULL) {
        batch_free(b);
        return LIO_ERR_NOMEM;
    }
    b->capacity = pages;
    return LIO_OK;
}

static int find(lio_lender *lender, const lio_tree *tree, uint64_t pgno, const uint8_t **page,
                lio_error *error);

void lio_readahead_open(lio_tree *tree, uint32_t pages_max, lio_bypass *past)
{
    readahead *a = (readahead *)tree->lender;
    if (tree->db.depth < 2 ||
        tree->layout.page_size % lio_engine_alignment(lio_pages_engine(tree->pages)) != 0)
        return;
    if (a == NULL)
        a = calloc(1, sizeof *a);
    if (a == NULL)
        return;
    a->lender.find = find;
    a->pages_max = pages_max;
    a->past = past;
    tree->lender = &a->lender;
}

void lio_readahead_close(lio_tree *tree)
{
    readahead *a = (readahead *)tree->lender;
    if (a == NULL)
        return;
    lio_tree_clear(&a->leader);
    batch_free(&a->batches[0]);
    batch_free(&a->batches[1]);
    free(a);
    tree->lender = NULL;
}

void lio_bypass_note(lio_bypass *past, lio_ticket *ticket, uint64_t bytes)
{
    uint64_t submitted, ended;
    lio_ticket_times(ticket, &submitted, &ended);
    past->bytes += bytes;
    past->duration_ns += ended - submitted;
}

/* --- reading -------------------------------------------------------------------------- */

/* The next leaf in key order along the leader's branch pages. */
static int leader_step(lio_tree *leader, uint64_t *pgno, lio_error *error)
{
    lio_node node;
    int code = LIO_OK;
    if (!lio_tree_is_last(leader))
        lio_tree_leaf(leader)->index++;
    else
        code = lio_tree_sibling(leader, 1, error);
    if (code == LIO_OK)
        code = lio_tree_node(leader, &node, error);
    if (code == LIO_OK)
        code = lio_tree_check_pgno(leader, node.child, error);
    if (code == LIO_OK)
        *pgno = node.child;
    return code;
}

static bool goes_past(const readahead *a, uint64_t bytes)
{
    return a->past != NULL && a->past->engine != NULL && bytes >= PAST_BYTES_MIN &&
           a->leader.layout.page_size % lio_engine_alignment(a->past->engine) == 0;
}

static int batch_read(const readahead *a, batch *b, lio_error *error)
{
    uint64_t bytes = (uint64_t)b->count * a->leader.layout.page_size;
    bool past = goes_past(a, bytes);
    int code = lio_engine_submit(past ? a->past->engine : lio_pages_engine(a->leader.pages),
                                 b->reads, b->read_count, &b->ticket, error);
    if (code != LIO_OK)
        b->count = 0;
    b->past_bytes = past && code == LIO_OK ? bytes : 0;
    lio_engine_count(lio_pages_engine(a->leader.pages),
                     &(lio_tally){.page_requests = code == LIO_OK ? b->read_count : 0,
                                  .page_bytes = (uint64_t)b->count * a->leader.layout.page_size});
    return code;
}

/* Begins to read the next `window` leaves. Runs of adjacent pages become one request. */
static int batch_submit(readahead *a, batch *b, lio_error *error)
{
    uint32_t size = a->leader.layout.page_size, reads = 0;
    uint64_t pgno;
    int code = LIO_OK;
    if (batch_reserve(b, a->window, size) != LIO_OK)
        return lio_fail(error, LIO_ERR_NOMEM, 0, (uint64_t)a->window * size, 0,
                        "no memory to read leaf pages ahead");
    while (b->count < a->window && !a->ended) {
        a->ended = leader_step(&a->leader, &pgno, error) != LIO_OK;
        if (a->ended) /* what is wrong ahead is the cursor's to report */
            break;
        if (b->count > 0 && pgno == b->pgnos[b->count - 1] + 1 &&
            b->reads[reads - 1].length < LEAF_REQUEST_BYTES) {
            b->reads[reads - 1].length += size;
            b->reads[reads - 1].needed += size;
        } else {
            b->reads[reads++] = (lio_read){pgno * size, size, size,
                                           b->memory + (size_t)b->count * size};
        }
        b->pgnos[b->count++] = pgno;
    }
    b->read_count = reads;
    if (b->count == 0)
        return LIO_OK;
    code = batch_read(a, b, error);
    a->window = a->window * 2 < a->pages_max ? a->window * 2 : a->pages_max;
    return code;
}

/* Begins after the leaf that the tree is about to enter. */
static int start(readahead *a, const lio_tree *tree, lio_error *error)
{
    lio_tree_clear(&a->leader);
    batch_drop(&a->batches[0]);
    batch_drop(&a->batches[1]);
    lio_tree_copy(&a->leader, tree);
    a->leader.spared = 1;
    a->started = true;
    a->ended = false;
    a->current = 0;
    a->pid = getpid();
    a->window = WINDOW_FIRST < a->pages_max ? WINDOW_FIRST : a->pages_max;
    return batch_submit(a, &a->batches[0], error);
}

static const uint8_t *batch_page(batch *b, uint64_t pgno, uint32_t size)
{
    for (; b->at < b->count; b->at++)
        if (b->pgnos[b->at] == pgno)
            return b->memory + (size_t)b->at * size;
    return NULL;
}

static int batch_wait(readahead *a, batch *b, lio_error *error)
{
    int code = LIO_OK;
    if (b->ticket != NULL)
        code = lio_ticket_wait(b->ticket, -1, error);
    if (code == LIO_OK && b->ticket != NULL && b->past_bytes != 0 && a->past != NULL)
        lio_bypass_note(a->past, b->ticket, b->past_bytes);
    b->past_bytes = 0;
    lio_ticket_free(b->ticket);
    b->ticket = NULL;
    if (code != LIO_OK)
        batch_drop(b);
    return code;
}

static int find(lio_lender *lender, const lio_tree *tree, uint64_t pgno, const uint8_t **page,
                lio_error *error)
{
    readahead *a = (readahead *)lender;
    const uint8_t *found = NULL;
    int code;
    if (a->started && a->pid == getpid())
        for (uint32_t turn = 0; turn < 2 && found == NULL; turn++) {
            if (turn == 1) {
                batch_drop(&a->batches[a->current]);
                a->current ^= 1;
            }
            found = batch_page(&a->batches[a->current], pgno, tree->layout.page_size);
        }
    if (found == NULL)
        return start(a, tree, error);
    code = batch_wait(a, &a->batches[a->current], error);
    if (code == LIO_OK)
        code = lio_page_check(&tree->layout, found, pgno, LIO_P_LEAF, error);
    if (code == LIO_OK && a->batches[a->current ^ 1].count == 0 && !a->ended)
        code = batch_submit(a, &a->batches[a->current ^ 1], error);
    if (code == LIO_OK)
        *page = found;
    return code;
}
