/* Reads in flight in an io_uring, which one thread carries.
 *
 * A thread for each request in flight costs two thread switches a request, which is most of what
 * small requests cost. Through the page cache nothing is gained: there a request that is not
 * waited for (RWF_NOWAIT) starts the reading as well.
 *
 *   push        sqes[tail]     ->  the kernel (wait: io_uring_enter)
 *   pop         cqes[head]     <-
 *
 * A slot is a read on its way: the rest of it, and the bytes it had. A read that the kernel will not
 * take (no memory, a sandbox that was closed later) is made by pread at once, so that none is lost.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "engine_file.h"
#include "engine_ring.h"
#include "extent.h"

/* The kernel's side of it, as in linux/io_uring.h since Linux 5.6; the headers that distributions
 * build with are often older than the kernels that they run on. System call numbers are the same
 * on all machines. */
enum { SYS_SETUP = 425, SYS_ENTER = 426 };
enum { OP_NOP = 0, OP_READ = 22 };
enum { ENTER_GETEVENTS = 1 };
enum { FEAT_SINGLE_MMAP = 1 << 0, FEAT_NODROP = 1 << 1, FEAT_RW_CUR_POS = 1 << 3 };
static const off_t MAP_QUEUES = 0, MAP_ENTRIES = 0x10000000;

typedef struct {
    uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array, resv1;
    uint64_t resv2;
} sq_offsets;

typedef struct {
    uint32_t head, tail, ring_mask, ring_entries, overflow, cqes, flags, resv1;
    uint64_t resv2;
} cq_offsets;

typedef struct {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd;
    uint32_t resv[3];
    sq_offsets sq;
    cq_offsets cq;
} ring_params;

typedef struct {
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t off, addr;
    uint32_t len, op_flags;
    uint64_t user_data;
    uint64_t unused[3];
} submission;

typedef struct {
    uint64_t user_data;
    int32_t res;
    uint32_t flags;
} completion;

_Static_assert(sizeof(ring_params) == 120 && sizeof(submission) == 64 && sizeof(completion) == 16,
               "as the kernel has them");
_Static_assert(offsetof(ring_params, sq) == 40 && offsetof(ring_params, cq) == 80,
               "as the kernel has them");
_Static_assert(offsetof(submission, user_data) == 32, "as the kernel has it");

/* No slot: the request that only wakes. */
#define NUDGE UINT64_MAX
/* The end of a list of slots. */
#define NONE UINT32_MAX

/* One request moves at most this much; a multiple of every page size. */
static const uint64_t REQUEST_LIMIT = 0x7ffff000u & ~UINT64_C(0xffff);

typedef struct {
    lio_read read;
    lio_ring_mark mark;
    uint64_t received, calls;
    lio_error error;
    uint32_t next; /* slot in the same list */
} slot;

struct lio_ring {
    int fd, file;
    uint32_t depth, alignment;
    uint32_t busy;              /* slots in use */
    uint32_t free, left, ended; /* lists of slots: unused, to be read by pread, done by it */
    bool nudged;                /* under the caller's lock */
    bool refused;               /* the kernel did not take all that was pushed */
    uint8_t *queues;            /* both, in one mapping */
    size_t queues_bytes, sqes_bytes;
    submission *sqes;
    _Atomic uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    uint32_t *sq_array;
    const completion *cqes;
    slot slots[];
};

/* --- opening and closing ------------------------------------------------------------- */

static int refused(int problem, lio_error *error)
{
    const char *reason = "the kernel is older than Linux 5.6";
    if (problem == ENOSYS)
        reason = "the kernel has none, or a sandbox hides it";
    else if (problem == EPERM || problem == EACCES)
        reason = "it is forbidden here (kernel.io_uring_disabled, a sandbox)";
    else if (problem == ENOMEM)
        reason = "there is too little memory, or too little that may be locked";
    else if (problem == EMFILE || problem == ENFILE)
        reason = "there are too few file descriptors";
    return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                    "io_uring cannot be used: %s; use engine=\"direct\"", reason);
}

static _Atomic uint32_t *word(const lio_ring *ring, uint32_t offset)
{
    return (_Atomic uint32_t *)(void *)(ring->queues + offset);
}

static bool map_queues(lio_ring *ring, const ring_params *made)
{
    size_t sq = made->sq.array + made->sq_entries * sizeof(uint32_t);
    size_t cq = made->cq.cqes + made->cq_entries * sizeof(completion);
    void *queues, *sqes;
    ring->queues_bytes = sq > cq ? sq : cq;
    ring->sqes_bytes = made->sq_entries * sizeof(submission);
    queues = mmap(NULL, ring->queues_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                  ring->fd, MAP_QUEUES);
    if (queues == MAP_FAILED)
        return false;
    ring->queues = queues;
    sqes = mmap(NULL, ring->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                ring->fd, MAP_ENTRIES);
    if (sqes == MAP_FAILED)
        return false;
    ring->sqes = sqes;
    ring->sq_head = word(ring, made->sq.head);
    ring->sq_tail = word(ring, made->sq.tail);
    ring->cq_head = word(ring, made->cq.head);
    ring->cq_tail = word(ring, made->cq.tail);
    ring->sq_mask = made->sq_entries - 1;
    ring->cq_mask = made->cq_entries - 1;
    ring->sq_array = (uint32_t *)(void *)(ring->queues + made->sq.array);
    ring->cqes = (const completion *)(void *)(ring->queues + made->cq.cqes);
    return true;
}

int lio_ring_open(int fd, uint32_t depth, uint32_t alignment, lio_ring **out, lio_error *error)
{
    /* RW_CUR_POS came with OP_READ. */
    const uint32_t needed = FEAT_SINGLE_MMAP | FEAT_NODROP | FEAT_RW_CUR_POS;
    ring_params made;
    lio_ring *ring = calloc(1, sizeof *ring + depth * sizeof ring->slots[0]);
    int code = LIO_OK;
    if (ring == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *ring, 0, "no memory for an engine");
    memset(&made, 0, sizeof made);
    ring->file = fd;
    ring->depth = depth;
    ring->alignment = alignment;
    for (uint32_t i = 0; i < depth; i++)
        ring->slots[i].next = i + 1 < depth ? i + 1 : NONE;
    ring->left = ring->ended = NONE;
    ring->fd = (int)syscall(SYS_SETUP, depth + 1, &made); /* a nudge beside them */
    if (ring->fd < 0)
        code = refused(errno, error);
    else if ((made.features & needed) != needed)
        code = refused(EINVAL, error);
    else if (!map_queues(ring, &made))
        code = refused(errno, error);
    if (code != LIO_OK) {
        lio_ring_close(ring);
        return code;
    }
    *out = ring;
    return LIO_OK;
}

void lio_ring_close(lio_ring *ring)
{
    if (ring == NULL)
        return;
    if (ring->sqes != NULL)
        (void)munmap(ring->sqes, ring->sqes_bytes);
    if (ring->queues != NULL)
        (void)munmap(ring->queues, ring->queues_bytes);
    if (ring->fd >= 0)
        (void)close(ring->fd);
    free(ring);
}

/* --- pushing ------------------------------------------------------------------------- */

uint32_t lio_ring_room(const lio_ring *ring)
{
    return ring->depth - ring->busy;
}

bool lio_ring_is_empty(const lio_ring *ring)
{
    return ring->busy == 0;
}

/* The queue has room: slots and the one nudge are no more than its entries. */
static void put(lio_ring *ring, const submission *entry)
{
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    ring->sqes[tail & ring->sq_mask] = *entry;
    ring->sq_array[tail & ring->sq_mask] = tail & ring->sq_mask;
    atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
}

static void put_slot(lio_ring *ring, uint32_t index)
{
    const lio_read *read = &ring->slots[index].read;
    submission entry;
    memset(&entry, 0, sizeof entry);
    entry.opcode = OP_READ;
    entry.fd = ring->file;
    entry.off = read->offset;
    entry.addr = (uint64_t)(uintptr_t)read->into;
    entry.len = (uint32_t)(read->length < REQUEST_LIMIT ? read->length : REQUEST_LIMIT);
    entry.user_data = index;
    put(ring, &entry);
}

/* Takes the first slot of a list. */
static uint32_t list_take(lio_ring *ring, uint32_t *list)
{
    uint32_t index = *list;
    *list = ring->slots[index].next;
    return index;
}

static void list_put(lio_ring *ring, uint32_t *list, uint32_t index)
{
    ring->slots[index].next = *list;
    *list = index;
}

void lio_ring_push(lio_ring *ring, const lio_read *read, lio_ring_mark mark)
{
    LIO_ASSERT(lio_ring_room(ring) > 0);
    uint32_t index = list_take(ring, &ring->free);
    ring->slots[index] = (slot){.read = *read, .mark = mark};
    ring->busy++;
    put_slot(ring, index);
}

static int enter(const lio_ring *ring, uint32_t wanted)
{
    uint32_t queued = atomic_load_explicit(ring->sq_tail, memory_order_relaxed) -
                      atomic_load_explicit(ring->sq_head, memory_order_acquire);
    return (int)syscall(SYS_ENTER, ring->fd, queued, wanted, wanted > 0 ? ENTER_GETEVENTS : 0,
                        NULL, 0);
}

void lio_ring_nudge(lio_ring *ring)
{
    submission entry;
    if (ring->nudged)
        return;
    memset(&entry, 0, sizeof entry);
    entry.opcode = OP_NOP;
    entry.user_data = NUDGE;
    ring->nudged = true;
    put(ring, &entry);
    (void)enter(ring, 0); /* else the ring's thread finds it when it comes round */
}

/* --- waiting and popping ------------------------------------------------------------- */

/* The bytes still to be read. */
static lio_read rest_of(const slot *under_way)
{
    const lio_read *read = &under_way->read;
    uint64_t got = under_way->received;
    return (lio_read){read->offset + got, read->length - got,
                      read->needed > got ? read->needed - got : 0, read->into + got};
}

static void read_left(lio_ring *ring)
{
    while (ring->left != NONE) {
        uint32_t index = list_take(ring, &ring->left);
        slot *under_way = &ring->slots[index];
        const lio_read rest = rest_of(under_way);
        int code = lio_pread_all(ring->file, &rest, ring->alignment, &under_way->received,
                                 &under_way->calls, &under_way->error);
        if (code == LIO_ERR_SHORT) /* told with the numbers of the whole */
            (void)lio_short_read(&under_way->read, under_way->received, &under_way->error);
        list_put(ring, &ring->ended, index);
    }
}

void lio_ring_wait(lio_ring *ring)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (ring->left != NONE) {
        read_left(ring);
        return;
    }
    if (enter(ring, 1) >= 0 || errno == EINTR)
        return;
    ring->refused = true;
    (void)nanosleep(&pause, NULL); /* what the kernel took before ends also without a call */
}

/* Takes back what the kernel has not. */
static void take_back(lio_ring *ring)
{
    uint32_t head = atomic_load_explicit(ring->sq_head, memory_order_acquire);
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    for (; tail != head; tail--) {
        uint64_t index = ring->sqes[(tail - 1) & ring->sq_mask].user_data;
        if (index == NUDGE)
            ring->nudged = false;
        else
            list_put(ring, &ring->left, (uint32_t)index);
    }
    atomic_store_explicit(ring->sq_tail, tail, memory_order_release);
    ring->refused = false;
}

/* Takes the result of a request; true when its read has ended. A part is left to pread, which knows
 * the end of the file from a read that was cut short. */
static bool account(lio_ring *ring, uint32_t index, int32_t result)
{
    slot *under_way = &ring->slots[index];
    const lio_read *read = &under_way->read;
    uint32_t got = result > 0 ? (uint32_t)result : 0;
    under_way->calls++;
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -ECANCELED) {
        (void)lio_fail_errno(&under_way->error, -result, read->offset, read->length,
                             "cannot read");
        return true;
    }
    if (result >= 0 && got >= read->needed) {
        under_way->received = got;
        return true;
    }
    under_way->received = lio_round_down(got, ring->alignment);
    list_put(ring, &ring->left, index);
    return false;
}

static void hand_out(lio_ring *ring, uint32_t index, lio_ring_done *out)
{
    const slot *over = &ring->slots[index];
    *out = (lio_ring_done){over->mark,     over->read.offset, over->read.length,
                           over->received, over->calls,       over->error};
    list_put(ring, &ring->free, index);
    ring->busy--;
}

bool lio_ring_pop(lio_ring *ring, lio_ring_done *out)
{
    uint32_t head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
    if (ring->ended != NONE) {
        hand_out(ring, list_take(ring, &ring->ended), out);
        return true;
    }
    if (ring->refused)
        take_back(ring);
    while (head != atomic_load_explicit(ring->cq_tail, memory_order_acquire)) {
        const completion *entry = &ring->cqes[head++ & ring->cq_mask];
        uint64_t index = entry->user_data;
        int32_t result = entry->res;
        atomic_store_explicit(ring->cq_head, head, memory_order_release);
        if (index == NUDGE) {
            ring->nudged = false;
        } else if (account(ring, (uint32_t)index, result)) {
            hand_out(ring, (uint32_t)index, out);
            return true;
        }
    }
    return false;
}
