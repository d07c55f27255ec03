#include "window.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older C libraries do not name it */
#endif

enum { LINE = 64, MAGIC = 0x4c574e44 };

enum { ABORT_NONE, ABORT_WRITING, ABORT_SET };

typedef struct {
    _Atomic uint32_t magic; /* written last: what is below is there */
    uint32_t ranks, roots;
    _Atomic uint32_t abort_state;
    uint32_t abort_rank;
    _Atomic uint32_t left;   /* ranks that have at least left             */
    _Atomic uint32_t closed; /* ranks that close                          */
    _Atomic uint32_t end;    /* enum lio_window_ending                   */
    _Atomic uint32_t bell;   /* rung when one of the three above changes  */
    uint32_t reserved[7];
    char message[LIO_WINDOW_MESSAGE_MAX];
} header;

typedef struct {
    alignas(LINE) _Atomic uint64_t released;
    _Atomic uint32_t state;
} seat;

/* Two lines: what the root writes and what it waits on. */
typedef struct {
    alignas(LINE) _Atomic uint64_t published;
    _Atomic uint32_t published_bell;
    alignas(LINE) _Atomic uint32_t released_bell;
} desk;

static_assert(sizeof(header) == 8 * LINE, "the header fills whole lines");
static_assert(sizeof(seat) == LINE, "one line per rank");
static_assert(sizeof(desk) == 2 * LINE, "two lines per root");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
              "atomics with locks do not work between processes");

static header *header_of(const void *control)
{
    return (header *)(uintptr_t)control;
}

static seat *seat_of(const void *control, uint32_t rank)
{
    LIO_ASSERT(rank <= header_of(control)->ranks); /* behind the last one desks begin */
    return (seat *)((uintptr_t)control + sizeof(header)) + rank;
}

static desk *desk_of(const void *control, uint32_t root)
{
    LIO_ASSERT(root < header_of(control)->roots);
    return (desk *)(void *)seat_of(control, header_of(control)->ranks) + root;
}

/* --- bells ----------------------------------------------------------------------------- */

static void ring(_Atomic uint32_t *bell)
{
    atomic_fetch_add_explicit(bell, 1, memory_order_seq_cst);
    (void)syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps until the bell is no longer `heard`, a spurious wake, or the deadline. Returns false
 * at the deadline. Where there are no futexes it naps instead. */
static bool listen(_Atomic uint32_t *bell, uint32_t heard, uint64_t deadline)
{
    uint64_t now = now_ns();
    if (now >= deadline)
        return false;
    uint64_t left = deadline - now;
    struct timespec limit = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    if (syscall(SYS_futex, bell, FUTEX_WAIT, heard, &limit, NULL, 0) != 0 && errno != EAGAIN &&
        errno != EINTR && errno != ETIMEDOUT) {
        struct timespec nap = {0, 1000000};
        (void)nanosleep(&nap, NULL);
    }
    return true;
}

static uint64_t deadline_after(int timeout_ms)
{
    return now_ns() + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms) * 1000000u;
}

static bool is_aborted(const header *head)
{
    return atomic_load_explicit(&head->abort_state, memory_order_acquire) == ABORT_SET;
}

/* --- making it ------------------------------------------------------------------------- */

uint64_t lio_window_bytes(uint32_t ranks, uint32_t roots)
{
    return sizeof(header) + (uint64_t)ranks * sizeof(seat) + (uint64_t)roots * sizeof(desk);
}

int lio_window_format(void *control, uint32_t ranks, uint32_t roots, lio_error *error)
{
    if (control == NULL || (uintptr_t)control % LINE != 0 || ranks == 0 || roots == 0 ||
        roots > ranks)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                        "a control area needs aligned memory and 1 <= roots <= ranks "
                        "(%" PRIu32 " roots, %" PRIu32 " ranks)",
                        roots, ranks);
    memset(control, 0, (size_t)lio_window_bytes(ranks, roots));
    header *head = header_of(control);
    head->ranks = ranks;
    head->roots = roots;
    atomic_store_explicit(&head->magic, MAGIC, memory_order_release);
    return LIO_OK;
}

int lio_window_check(const void *control, uint32_t ranks, uint32_t roots, lio_error *error)
{
    const header *head = header_of(control);
    if (atomic_load_explicit(&head->magic, memory_order_acquire) != MAGIC ||
        head->ranks != ranks || head->roots != roots)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, ranks, head->ranks,
                        "this memory holds no control area for %" PRIu32 " ranks and %" PRIu32
                        " roots",
                        ranks, roots);
    return LIO_OK;
}

/* --- blocks ---------------------------------------------------------------------------- */

void lio_window_publish(void *control, uint32_t root, uint64_t published)
{
    desk *at = desk_of(control, root);
    LIO_ASSERT(published >= atomic_load_explicit(&at->published, memory_order_relaxed));
    atomic_store_explicit(&at->published, published, memory_order_release);
    ring(&at->published_bell);
}

/* LIO_OK, LIO_PENDING or, with all of them gone, LIO_NOTFOUND. */
static int released_by_all(const void *control, uint32_t first, uint32_t count, uint64_t released)
{
    uint32_t gone = 0;
    bool all = true;
    LIO_ASSERT(first <= header_of(control)->ranks && count <= header_of(control)->ranks - first);
    for (uint32_t rank = first; rank < first + count; rank++) {
        seat *at = seat_of(control, rank);
        if (atomic_load_explicit(&at->state, memory_order_acquire) != LIO_WINDOW_USES)
            gone++;
        else if (atomic_load_explicit(&at->released, memory_order_acquire) < released)
            all = false;
    }
    if (gone == count)
        return LIO_NOTFOUND;
    return all ? LIO_OK : LIO_PENDING;
}

int lio_window_wait_released(void *control, uint32_t root, uint32_t first, uint32_t count,
                             uint64_t released, int timeout_ms)
{
    desk *at = desk_of(control, root);
    uint64_t deadline = deadline_after(timeout_ms);
    for (;;) {
        uint32_t heard = atomic_load_explicit(&at->released_bell, memory_order_seq_cst);
        int state = released_by_all(control, first, count, released);
        if (state != LIO_PENDING)
            return state;
        if (is_aborted(header_of(control)) || !listen(&at->released_bell, heard, deadline))
            return LIO_PENDING;
    }
}

int lio_window_is_released(void *control, uint32_t root, uint32_t first, uint32_t count,
                           uint64_t released)
{
    return lio_window_wait_released(control, root, first, count, released, 0);
}

int lio_window_wait_published(void *control, uint32_t root, uint64_t block, int timeout_ms)
{
    desk *at = desk_of(control, root);
    uint64_t deadline = deadline_after(timeout_ms);
    for (;;) {
        uint32_t heard = atomic_load_explicit(&at->published_bell, memory_order_seq_cst);
        if (atomic_load_explicit(&at->published, memory_order_acquire) > block)
            return LIO_OK;
        if (is_aborted(header_of(control)) || !listen(&at->published_bell, heard, deadline))
            return LIO_PENDING;
    }
}

void lio_window_release(void *control, uint32_t root, uint32_t rank, uint64_t released)
{
    seat *at = seat_of(control, rank);
    uint64_t seen = atomic_load_explicit(&at->released, memory_order_relaxed);
    while (seen < released)
        if (atomic_compare_exchange_weak_explicit(&at->released, &seen, released,
                                                  memory_order_release, memory_order_relaxed)) {
            ring(&desk_of(control, root)->released_bell);
            return;
        }
}

/* --- the end --------------------------------------------------------------------------- */

static int settle(header *head, uint32_t wanted)
{
    uint32_t seen = LIO_WINDOW_OPEN;
    if (atomic_compare_exchange_strong(&head->end, &seen, wanted)) {
        ring(&head->bell);
        return (int)wanted;
    }
    return (int)seen;
}

void lio_window_leave(void *control, uint32_t root, uint32_t rank, int state)
{
    header *head = header_of(control);
    seat *at = seat_of(control, rank);
    uint32_t seen = atomic_load_explicit(&at->state, memory_order_relaxed);
    do {
        if (seen >= (uint32_t)state)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&at->state, &seen, (uint32_t)state,
                                                    memory_order_release, memory_order_relaxed));
    if (seen == LIO_WINDOW_USES)
        atomic_fetch_add(&head->left, 1);
    if (state == LIO_WINDOW_CLOSES && atomic_fetch_add(&head->closed, 1) + 1 == head->ranks)
        (void)settle(head, LIO_WINDOW_FREE);
    ring(&head->bell);
    ring(&desk_of(control, root)->released_bell);
}

int lio_window_retain(void *control)
{
    return settle(header_of(control), LIO_WINDOW_KEEP);
}

int lio_window_end(const void *control)
{
    return (int)atomic_load(&header_of(control)->end);
}

int lio_window_wait_end(void *control, int left, int timeout_ms)
{
    header *head = header_of(control);
    uint64_t deadline = deadline_after(timeout_ms);
    for (;;) {
        uint32_t heard = atomic_load(&head->bell);
        if (left ? atomic_load(&head->left) == head->ranks
                 : atomic_load(&head->end) != LIO_WINDOW_OPEN)
            return LIO_OK;
        if (is_aborted(head) || !listen(&head->bell, heard, deadline))
            return LIO_PENDING;
    }
}

/* --- abort ----------------------------------------------------------------------------- */

void lio_window_abort(void *control, uint32_t rank, const char *message)
{
    header *head = header_of(control);
    uint32_t seen = ABORT_NONE;
    if (!atomic_compare_exchange_strong(&head->abort_state, &seen, ABORT_WRITING))
        return;
    size_t length = strnlen(message, LIO_WINDOW_MESSAGE_MAX - 1);
    memcpy(head->message, message, length);
    head->message[length] = '\0';
    head->abort_rank = rank;
    atomic_store_explicit(&head->abort_state, ABORT_SET, memory_order_release);
    ring(&head->bell);
    for (uint32_t root = 0; root < head->roots; root++) {
        ring(&desk_of(control, root)->published_bell);
        ring(&desk_of(control, root)->released_bell);
    }
}

int lio_window_aborted(const void *control, uint32_t *rank, char *message)
{
    const header *head = header_of(control);
    if (!is_aborted(head))
        return 0;
    if (rank != NULL)
        *rank = head->abort_rank;
    if (message != NULL)
        memcpy(message, head->message, LIO_WINDOW_MESSAGE_MAX);
    return 1;
}

/* --- memory ---------------------------------------------------------------------------- */

int lio_window_populate(void *address, uint64_t size, lio_error *error)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)address & ~(page - 1);
    uintptr_t end = ((uintptr_t)address + (uintptr_t)size + page - 1) & ~(page - 1);
    while (madvise((void *)start, end - start, MADV_POPULATE_WRITE) != 0) {
        if (errno == EINTR || errno == EAGAIN)
            continue;
        if (errno == EINVAL)
            return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, size, 0,
                            "this kernel cannot reserve memory ahead of its use");
        /* EFAULT stands for the SIGBUS that a touch would have raised. */
        return lio_fail_errno(error, errno == EFAULT ? ENOSPC : errno, 0, size,
                              "cannot reserve the shared window");
    }
    return LIO_OK;
}

static bool is_whole_pages(const void *address, uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return (uintptr_t)address % page == 0 && size % page == 0 && size != 0;
}

int lio_window_map(void *address, uint64_t size, void **mapping, lio_error *error)
{
    if (!is_whole_pages(address, size))
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, size, 0, "only whole pages can be mapped");
    /* An old size of 0 maps shared pages a second time. */
    void *again = mremap(address, 0, (size_t)size, MREMAP_MAYMOVE);
    if (again == MAP_FAILED &&
        (errno == EINVAL || errno == EFAULT || errno == ENOSYS || errno == ENOMEM))
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, size, 0,
                        "this memory cannot be mapped a second time");
    if (again == MAP_FAILED)
        return lio_fail_errno(error, errno, 0, size, "cannot map the window a second time");
    *mapping = again;
    return LIO_OK;
}

void lio_window_unmap(void *mapping, uint64_t size)
{
    (void)munmap(mapping, (size_t)size);
}

int lio_window_detach(void *address, uint64_t size, lio_error *error)
{
    if (!is_whole_pages(address, size))
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, size, 0, "only whole pages can be detached");
    void *copy = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    if (copy == MAP_FAILED)
        return lio_fail_errno(error, errno, 0, size, "no memory for a copy of views in use");
    memcpy(copy, address, (size_t)size);
    if (mremap(copy, (size_t)size, (size_t)size, MREMAP_MAYMOVE | MREMAP_FIXED, address) ==
        MAP_FAILED) {
        int code = lio_fail_errno(error, errno, 0, size, "cannot keep a copy of views in use");
        (void)munmap(copy, (size_t)size);
        return code;
    }
    return LIO_OK;
}

void lio_window_vacate(void *address, uint64_t size)
{
    if (is_whole_pages(address, size))
        (void)mmap(address, (size_t)size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
