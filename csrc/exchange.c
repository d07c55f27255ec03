#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contract.h"
#include "exchange_part.h"
#include "thread.h"
#include "trace.h"

enum { STACK_BYTES = 256 * 1024 };

/* Between two looks the thread sleeps an eighth of the time in which nothing has moved: not long
 * where something is under way or awaited, unless it is so for seconds. MPICH looks first and takes in
 * afterwards. */
enum { NAP_PART = 8, LONG_PART = 64, PROBES = 2 };
static const uint64_t NAP_NS_MIN = 20000, NAP_NS_MAX = 2000000, NAP_NS_IDLE = 20000000;

/* --- control messages ------------------------------------------------------------------ */

static bool send_controls(lio_exchange *x)
{
    bool moved = x->outbox != NULL;
    while (x->outbox != NULL && !x->has_failed) {
        control_message *out = x->outbox;
        peer *p = &x->peer[out->peer];
        if (!lio_exchange_make_place(x))
            break;
        int code = lio_mpi_isend(&x->mpi, out->said, sizeof out->said, p->rank, x->control_tag,
                                 lio_exchange_next_handle(x));
        if (code != 0) {
            lio_exchange_fail(x, LIO_ERR_IO, "MPI_Isend failed", code);
            break;
        }
        x->outbox = out->next;
        p->all_sent++;
        lio_exchange_under_way(
            x, (operation){.kind = SENDS_CONTROL, .peer = out->peer, .memory = out});
    }
    return moved;
}

/* --- what has come ------------------------------------------------------------------------- */

static void hear(lio_exchange *x, uint32_t from, const uint64_t said[2])
{
    peer *p = &x->peer[from];
    if (said[0] == DONE) {
        p->is_done = true;
        lio_exchange_note(p, LIO_PEER_DONE);
        lio_exchange_drop_parts(x, p);
        lio_exchange_send_end(x, from);
    } else if (said[0] == END) {
        p->has_ended = true;
        p->promised = said[1];
        lio_exchange_find_gone(x, p);
    } else if (said[0] == READS) {
        (void)atomic_fetch_add(&p->signs, 1);
    } else {
        control_message *heard = malloc(sizeof *heard);
        if (heard == NULL) {
            lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for a message", 0);
            return;
        }
        *heard = (control_message){.peer = from, .said = {said[0], said[1]}};
        p->heard = said[1] + 1;
        if (p->controls == NULL)
            p->controls = heard;
        else
            p->last_control->next = heard;
        p->last_control = heard;
    }
    x->has_news = true;
}

/* The root of a rank; `peers` if there is none. */
static uint32_t peer_of(const lio_exchange *x, int rank)
{
    uint32_t low = 0, high = x->peers;
    while (low < high) { /* ranks ascend */
        uint32_t middle = low + (high - low) / 2;
        if (x->peer[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->peers && x->peer[low].rank == rank ? low : x->peers;
}

/* Takes one message of either kind, if one has come. */
static bool take_message(lio_exchange *x, int tag)
{
    lio_handle message;
    bool found = false;
    int rank = -1, bytes = 0;
    for (int i = 0; i < PROBES && !found; i++) {
        int code = lio_mpi_improbe(&x->mpi, tag, &found, &rank, &bytes, &message);
        if (code != 0) {
            lio_exchange_fail(x, LIO_ERR_IO, "MPI_Improbe failed", code);
            return false;
        }
    }
    if (!found)
        return false;
    uint32_t from = peer_of(x, rank);
    uint64_t said[2];
    if (from == x->peers || (tag == x->control_tag && bytes != (int)sizeof said) || bytes < 0 ||
        bytes > LIO_MESSAGE_BYTES) {
        lio_exchange_fail(x, LIO_ERR_CORRUPT, "a message of no root has come, from rank", rank);
        return false;
    }
    if (tag != x->control_tag)
        return lio_exchange_take_rows(x, from, bytes, &message);
    int code = lio_mpi_mrecv(&x->mpi, said, bytes, &message);
    if (code != 0) {
        lio_exchange_fail(x, LIO_ERR_IO, "MPI_Mrecv failed", code);
        return false;
    }
    x->peer[from].all_taken++;
    hear(x, from, said);
    return true;
}

static void ended(lio_exchange *x, operation *done)
{
    LIO_ASSERT(done->peer < x->peers); /* it has not ended before */
    if (done->kind == SENDS_ROWS) {
        LIO_ASSERT(x->peer[done->peer].in_flight > 0 && x->send_buffers < x->send_buffers_made);
        x->peer[done->peer].in_flight--;
        x->send_buffer[x->send_buffers++] = done->memory;
    } else if (done->kind == FILLS_BUFFER) {
        lio_exchange_buffer_filled(x, done->buffer);
    } else {
        free(done->memory);
    }
    done->peer = x->peers; /* marks it */
}

static bool end_operations(lio_exchange *x)
{
    int count = 0, kept = 0;
    size_t size = x->mpi.handle_bytes;
    if (x->operations == 0)
        return false;
    int code = lio_mpi_testsome(&x->mpi, x->operations, x->handle, &count, x->index, x->status);
    if (code != 0) {
        lio_exchange_fail(x, LIO_ERR_IO, "MPI_Testsome failed", code);
        return false;
    }
    if (count <= 0)
        return false;
    for (int i = 0; i < count; i++)
        ended(x, &x->operation[x->index[i]]);
    for (int i = 0; i < x->operations; i++) {
        if (x->operation[i].peer == x->peers)
            continue;
        if (kept != i) {
            x->operation[kept] = x->operation[i];
            memcpy(x->handle + (size_t)kept * size, x->handle + (size_t)i * size, size);
        }
        kept++;
    }
    x->operations = kept;
    x->has_news = true;
    return true;
}

/* --- the thread ---------------------------------------------------------------------------- */

/* Lets roots know that what they have asked for, and have not got, is still being read. */
static void tell_of_reading(lio_exchange *x, void *subject)
{
    (void)subject;
    atomic_store(&x->is_sign_posted, false);
    for (uint32_t i = 0; i < x->peers; i++) {
        const peer *p = &x->peer[i];
        if (p->controls != NULL && !p->is_done && !p->is_told_end)
            lio_exchange_say(x, i, READS, 0);
    }
}

static void stop(lio_exchange *x, void *subject)
{
    (void)subject;
    x->is_stopping = true;
}

/* Carries out what callers have posted, in their turn; returns whether there was anything. */
static bool take_requests(lio_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    request *first = x->requests;
    x->requests = NULL;
    (void)pthread_mutex_unlock(&x->lock);
    LIO_ASSERT(first == NULL || lio_exchange_is_carrier(x));
    for (request *one = first, *next; one != NULL; one = next) {
        next = one->next; /* the request may be freed, or posted again */
        one->carry_out(x, one->subject);
    }
    return first != NULL;
}

/* Whether no root takes any more rows from this one, nor this one from others. */
static bool is_over(const lio_exchange *x)
{
    for (uint32_t i = 0; i < x->peers; i++) {
        const peer *p = &x->peer[i];
        if (i != x->own && !(p->is_gone && p->is_told_end && p->is_told_done && p->is_done))
            return false;
    }
    return x->operations == 0 && x->outbox == NULL;
}

/* Does whatever can be done; returns whether anything moved. */
static bool go_on(lio_exchange *x)
{
    bool moved = send_controls(x);
    while (!x->has_failed && take_message(x, x->control_tag))
        moved = true;
    while (!x->has_failed && take_message(x, x->data_tag))
        moved = true;
    for (uint32_t i = 0; i < x->peers; i++)
        if (x->peer[i].parts != NULL)
            moved |= lio_exchange_send_rows(x, i);
    if (!x->has_failed)
        moved |= end_operations(x);
    return moved | send_controls(x);
}

static void tell_callers(lio_exchange *x)
{
    if (!x->has_news)
        return;
    x->has_news = false;
    atomic_store(&x->open, !is_over(x));
    (void)pthread_mutex_lock(&x->lock);
    (void)pthread_cond_broadcast(&x->moved);
    (void)pthread_mutex_unlock(&x->lock);
}

/* Sleeps until a caller posts a request, at most for a part of the time since anything moved;
 * returns whether one has. */
static bool nap(lio_exchange *x, uint64_t moved_ns)
{
    bool is_idle = x->has_failed || (x->operations == 0 && x->awaited == 0 && x->parts == 0);
    uint64_t now = lio_now_ns(), nap_ns = (now - moved_ns) / NAP_PART;
    uint64_t most = (now - moved_ns) / LONG_PART;
    most = most < NAP_NS_MAX ? NAP_NS_MAX : most;
    most = is_idle || most > NAP_NS_IDLE ? NAP_NS_IDLE : most;
    nap_ns = nap_ns < NAP_NS_MIN ? NAP_NS_MIN : nap_ns > most ? most : nap_ns;
    (void)pthread_mutex_lock(&x->lock);
    if (x->requests == NULL)
        (void)lio_wait_until(&x->work, &x->lock, now + nap_ns);
    bool has_requests = x->requests != NULL;
    (void)pthread_mutex_unlock(&x->lock);
    return has_requests;
}

static void *carry(void *argument)
{
    lio_exchange *x = argument;
    uint64_t moved_ns = lio_now_ns();
    x->carrier = pthread_self();
    for (;;) {
        bool moved = take_requests(x);
        if (x->is_stopping)
            break;
        moved |= !x->has_failed && go_on(x);
        tell_callers(x);
        if (moved || nap(x, moved_ns))
            moved_ns = lio_now_ns();
    }
    return NULL;
}

static int start(lio_exchange *x, lio_error *error)
{
    int problem = lio_thread_start(&x->thread, STACK_BYTES, carry, x);
    x->has_thread = problem == 0;
    if (problem != 0)
        return lio_fail_errno(error, problem, 0, 0, "cannot start a thread for messages");
    return LIO_OK;
}

static size_t memory_bytes(const lio_exchange *x)
{
    return (size_t)x->send_buffers_max * LIO_MESSAGE_BYTES;
}

int lio_exchange_open(const lio_mpi *mpi, const int32_t *ranks, uint32_t peers, uint32_t own,
                      int32_t control_tag, int32_t data_tag, uint32_t messages_max,
                      lio_exchange **out, lio_error *error)
{
    lio_exchange *x;
    if (!lio_mpi_is_known(mpi) || own >= peers)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, mpi->handle_bytes,
                        "MPI's handles are of a kind that is not known");
    for (uint32_t i = 1; i < peers; i++)
        if (ranks[i] <= ranks[i - 1])
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, i, "the ranks of roots must ascend");
    x = calloc(1, sizeof *x + peers * sizeof x->peer[0]);
    if (x == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, peers, 0, "no memory for an exchange");
    x->mpi = *mpi;
    x->control_tag = control_tag;
    x->data_tag = data_tag;
    x->peers = peers;
    x->own = own;
    x->send_buffers_max = messages_max < LIO_MESSAGES_MAX ? (int)messages_max : LIO_MESSAGES_MAX;
    x->send_buffers_max = x->send_buffers_max < 1 ? 1 : x->send_buffers_max;
    x->in_flight_max = peers > 1 ? (uint32_t)x->send_buffers_max / (peers - 1) : 1;
    x->in_flight_max = x->in_flight_max < 2 ? 2 : x->in_flight_max;
    x->pid = getpid();
    atomic_init(&x->open, 1);
    x->has_news = true; /* a root alone is over at once */
    for (uint32_t i = 0; i < peers; i++)
        x->peer[i].rank = ranks[i];
    (void)pthread_mutex_init(&x->lock, NULL);
    lio_condition_make(&x->work);
    lio_condition_make(&x->moved);
    x->memory = mmap(NULL, memory_bytes(x), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int code = x->memory == MAP_FAILED ? lio_fail(error, LIO_ERR_NOMEM, 0, memory_bytes(x), 0,
                                                  "no memory for messages")
                                       : start(x, error);
    if (code != LIO_OK) {
        lio_exchange_close(x);
        return code;
    }
    *out = x;
    return LIO_OK;
}

void lio_exchange_stop(lio_exchange *x)
{
    if (!x->has_thread || x->pid != getpid()) /* a forked child has no such thread */
        return;
    lio_exchange_post(x, &x->stops, stop, NULL);
    (void)pthread_join(x->thread, NULL);
    x->has_thread = false;
}

int lio_exchange_step(lio_exchange *x)
{
    (void)take_requests(x);
    if (!x->has_failed) {
        (void)send_controls(x);
        (void)end_operations(x);
    }
    return x->operations == 0 && (x->outbox == NULL || x->has_failed);
}

void lio_exchange_close(lio_exchange *x)
{
    if (x == NULL || x->pid != getpid())
        return;
    lio_exchange_stop(x);
    (void)take_requests(x);
    for (uint32_t i = 0; i < x->peers; i++) {
        peer *p = &x->peer[i];
        lio_exchange_drop_parts(x, p);
        while (p->controls != NULL)
            lio_exchange_drop_control(p);
        while (p->buffers != NULL)
            lio_exchange_leave_queue(x, p);
    }
    while (x->outbox != NULL) {
        control_message *out = x->outbox;
        x->outbox = out->next;
        free(out);
    }
    if (x->memory != MAP_FAILED && x->operations == 0)
        (void)munmap(x->memory, memory_bytes(x));
    (void)pthread_cond_destroy(&x->work);
    (void)pthread_cond_destroy(&x->moved);
    (void)pthread_mutex_destroy(&x->lock);
    free(x->operation);
    free(x);
}

/* --- callers ------------------------------------------------------------------------------ */

void lio_exchange_peers(lio_exchange *x, uint8_t *out)
{
    for (uint32_t i = 0; i < x->peers; i++)
        out[i] = atomic_load(&x->peer[i].known);
}

void lio_exchange_signs(lio_exchange *x, uint32_t *out)
{
    for (uint32_t i = 0; i < x->peers; i++)
        out[i] = atomic_load(&x->peer[i].signs);
}

void lio_exchange_counts(lio_exchange *x, lio_exchanged *out)
{
    *out = (lio_exchanged){0};
    if (x->pid == getpid()) /* a forked child has sent nothing */
        *out = (lio_exchanged){x->sent_bytes, x->received_bytes, x->sent_messages,
                               x->received_messages};
}

void lio_exchange_messages(lio_exchange *x, int64_t *sent, int64_t *received)
{
    for (uint32_t i = 0; i < x->peers; i++) {
        sent[i] = x->peer[i].all_sent;
        received[i] = x->peer[i].all_taken;
    }
}

void lio_exchange_reads_on(lio_exchange *x)
{
    if (!atomic_exchange(&x->is_sign_posted, true))
        lio_exchange_post(x, &x->reads_on, tell_of_reading, NULL);
}

int lio_exchange_wait_over(lio_exchange *x, int timeout_ms, lio_error *error)
{
    return lio_exchange_wait_none(x, &x->open, timeout_ms, error);
}
