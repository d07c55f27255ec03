/* exchange_part: what the files of the room `exchange` share. Private to the exchange.
 *
 *   callers  --requests, in their turn-->  the thread, which alone changes what is sent and taken
 *   callers  <--counters and answers---  read without waiting for it
 *
 * So no caller waits while the thread calls MPI or copies rows: it holds the lock for moments, and a
 * caller may keep Python's lock meanwhile. After the thread has ended, the exchange's owner carries
 * its requests out (lio_exchange_step, lio_exchange_close).
 */
#ifndef LIO_EXCHANGE_PART_H
#define LIO_EXCHANGE_PART_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "exchange.h"

/* --- calls of MPI by address, whatever its handles are: an int (MPICH) or a pointer (Open MPI, the
 * standard's binary interface). Each returns MPI's own code, 0 for success. */

/* One handle, with room for either kind. */
typedef union {
    int number;
    void *pointer;
    uint64_t bits;
} lio_handle;

/* Whether its types can be dealt with. */
bool lio_mpi_is_known(const lio_mpi *mpi);

int lio_mpi_isend(const lio_mpi *mpi, const void *from, int bytes, int rank, int tag,
                  void *handle);

/* Looks for a message from any rank, and takes it out of the queue. */
int lio_mpi_improbe(const lio_mpi *mpi, int tag, bool *found, int *source, int *bytes,
                    lio_handle *message);

int lio_mpi_imrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message, void *handle);

int lio_mpi_mrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message);

/* `requests` are `count` handles of mpi->handle_bytes each; `statuses` has room for as many. */
int lio_mpi_testsome(const lio_mpi *mpi, int count, void *requests, int *ended, int *indices,
                     void *statuses);

/* --- the thread -------------------------------------------------------------------------- */

/* A caller asks the thread to do something with a subject. It lies in what it is about, or in memory of
 * its own. */
typedef struct request {
    struct request *next;
    void (*carry_out)(lio_exchange *x, void *subject);
    void *subject;
} request;

/* The first word of a control message; the second one is the number behind it. */
enum { ASK = 1, SKIP = 2, DONE = 3, END = 4, READS = 5 };

typedef struct control_message {
    struct control_message *next;
    uint32_t peer;
    uint64_t said[2]; /* what, and a block, or messages */
} control_message;

struct lio_shipment {
    lio_exchange *exchange;
    _Atomic size_t left;       /* parts */
    atomic_bool is_asked_back; /* `takes_back` is a request that has been posted */
    request serves, takes_back, ends;
    struct part *made; /* by the caller, in the order given; the thread takes them over */
    uint64_t *rows;    /* their addresses, and behind these their lengths */
};

typedef struct part {
    struct part *next;
    lio_shipment *shipment;
    uint32_t peer;
    uint64_t block;
    bool is_missing;
    const uint64_t *from, *lengths; /* of the row that is packed next */
    uint64_t packed;                /* bytes of it, and of what follows up to the alignment */
    uint64_t left;                  /* bytes of the part */
} part;

typedef struct receive_buffer {
    struct receive_buffer *next; /* of those that wait for their first, or next, message */
    lio_arrival *arrival;
    uint32_t peer;
    _Atomic uint8_t answer;  /* enum lio_answer */
    bool is_queued, is_open; /* it counts among the arrival's open buffers */
    uint32_t under_way;      /* messages */
    uint8_t *into;
    uint64_t left; /* bytes that no message has begun to bring */
} receive_buffer;

struct lio_arrival {
    lio_exchange *exchange;
    uint64_t block;
    _Atomic size_t open; /* buffers that are awaited, or written to */
    bool is_given_up;    /* the caller has said so */
    bool is_closed;
    request asks, gives_up, ends;
    size_t count;
    receive_buffer buffers[];
};

/* Roots whose rows of a block are not needed. */
typedef struct {
    request request;
    uint64_t block;
    size_t count;
    uint32_t peers[];
} skipping;

typedef struct {
    int rank;
    part *parts, *last_part;
    control_message *controls, *last_control; /* that it has said about blocks */
    receive_buffer *buffers, *last_buffer;
    uint32_t in_flight; /* messages to it */
    bool is_done, has_ended, is_gone, is_told_end, is_told_done, is_behind;
    uint64_t asked;    /* one after the last block that it was asked for */
    uint64_t heard;    /* one after the last block that it has said something about */
    uint64_t promised; /* data messages in all, once it has ended */
    uint64_t sent, taken;
    int64_t all_sent, all_taken; /* control messages too */
    uint32_t late;               /* buffers in its queue that were given up */
    _Atomic uint8_t known;       /* enum lio_peer, for callers */
    _Atomic uint32_t signs;      /* READS that have come, for callers */
} peer;

typedef struct {
    enum { SENDS_CONTROL, SENDS_ROWS, FILLS_BUFFER, DRAINS } kind;
    uint32_t peer;
    void *memory; /* to be freed, or given back */
    receive_buffer *buffer;
} operation;

struct lio_exchange {
    lio_mpi mpi;
    int control_tag, data_tag;
    uint32_t peers, own, in_flight_max;
    pid_t pid;
    pthread_t thread;
    atomic_bool has_thread;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work, moved;
    request *requests, *last_request;

    /* of callers, and for them */
    atomic_bool is_done_posted, is_end_posted; /* the requests `done` and `ends` were posted */
    atomic_bool is_sign_posted;                /* `reads_on` is a request that has been posted */
    atomic_bool has_failed;
    _Atomic size_t open; /* 1 until nobody takes or sends any more */
    lio_error error;     /* what ended it, once it has failed */
    _Atomic uint64_t sent_bytes, received_bytes, sent_messages, received_messages;

    /* the thread's own */
    pthread_t carrier; /* itself */
    request done, ends, reads_on, stops;
    bool is_stopping, is_done;
    bool has_news; /* callers may wait for what has changed in this round */
    control_message *outbox, *last_out;
    size_t awaited; /* buffers */
    size_t parts;   /* that other roots may ask for */
    int operations, operations_max;
    operation *operation; /* begins the memory of these four */
    uint8_t *handle, *status;
    int *index;
    void *send_buffer[LIO_MESSAGES_MAX]; /* that are free */
    int send_buffers, send_buffers_made, send_buffers_max;
    uint8_t *memory; /* of all buffers: pages of its own, which go back to the kernel */
    peer peer[];
};

/* Posts a request to the thread. */
void lio_exchange_post(lio_exchange *x, request *one,
                       void (*carry_out)(lio_exchange *x, void *subject), void *subject);

/* Ends the exchange: the callers that wait hear of it. */
void lio_exchange_fail(lio_exchange *x, int code, const char *what, int reason);

/* Whether the calling thread may change what is sent and taken: the exchange's own, or, when that has
 * ended, any. */
bool lio_exchange_is_carrier(lio_exchange *x);

/* Waits until `counter` is 0, for callers. LIO_PENDING: time is up. Else how the exchange has failed; a
 * caller without `error` does not heed that. */
int lio_exchange_wait_none(lio_exchange *x, _Atomic size_t *counter, int timeout_ms,
                           lio_error *error);

/* Makes sure of room for one more operation; false: the exchange has failed. */
bool lio_exchange_make_place(lio_exchange *x);

/* Where the handle of the next operation goes; lio_exchange_under_way() counts it afterwards. */
void *lio_exchange_next_handle(lio_exchange *x);
void lio_exchange_under_way(lio_exchange *x, operation done);

/* Notes a fact about a root. */
void lio_exchange_note(peer *p, uint8_t fact);

/* Sends a control message. */
void lio_exchange_say(lio_exchange *x, uint32_t to, uint64_t what, uint64_t number);

/* Sends what a root has asked for, as far as buffers allow; returns whether there was any. */
bool lio_exchange_send_rows(lio_exchange *x, uint32_t to);

/* Tells a root once that it gets no more, behind all rows that were sent. */
void lio_exchange_send_end(lio_exchange *x, uint32_t to);

void lio_exchange_drop_parts(lio_exchange *x, peer *p);
void lio_exchange_drop_control(peer *p);

/* Begins to receive a message into the first receive buffer of its sender, or to drop it. */
bool lio_exchange_take_rows(lio_exchange *x, uint32_t from, int bytes, lio_handle *message);

/* After a message has come into a receive buffer. */
void lio_exchange_buffer_filled(lio_exchange *x, receive_buffer *r);

/* After a root has ended, and all that it has sent has begun to come. */
void lio_exchange_find_gone(lio_exchange *x, peer *p);

/* Takes the first receive buffer of a root out of its queue. */
void lio_exchange_leave_queue(lio_exchange *x, peer *p);

static inline int message_bytes(uint64_t left)
{
    return (int)(left < LIO_MESSAGE_BYTES ? left : LIO_MESSAGE_BYTES);
}

#endif
