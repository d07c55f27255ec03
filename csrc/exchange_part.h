/* exchange_part: what the files of the room `exchange` share. All but `callers` is used under the
 * lock. */
#ifndef LIO_EXCHANGE_PART_H
#define LIO_EXCHANGE_PART_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "exchange_mpi.h"

/* The first word of a control message; the second one is the number behind it. */
enum { ASK = 1, SKIP = 2, DONE = 3, END = 4 };

typedef struct word {
    struct word *next;
    uint32_t peer;
    uint64_t said[2]; /* what, and a block, or messages */
} word;

struct lio_shipment {
    lio_exchange *exchange;
    size_t left;
};

typedef struct part {
    struct part *next;
    lio_shipment *shipment;
    uint64_t block;
    bool is_missing, has_begun;
    const uint64_t *from, *lengths; /* of the row that is packed next */
    uint64_t packed;                /* bytes of it, and of what follows up to the alignment */
    uint64_t left;                  /* bytes of the part */
} part;

typedef struct room {
    struct room *next; /* of those that wait for their first, or next, message */
    lio_arrival *arrival;
    uint32_t peer;
    uint8_t answer; /* enum lio_answer */
    bool is_queued;
    uint32_t under_way; /* messages */
    uint8_t *into;
    uint64_t left; /* bytes that no message has begun to bring */
} room;

struct lio_arrival {
    lio_exchange *exchange;
    bool is_closed;
    size_t count;
    room rooms[];
};

typedef struct {
    int rank;
    part *parts, *last_part;
    word *words, *last_word; /* that it has said about blocks */
    room *rooms, *last_room;
    uint32_t in_flight; /* messages to it */
    bool is_done, has_ended, is_gone, is_told_end, is_told_done, is_behind;
    uint64_t asked;    /* one after the last block that it was asked for */
    uint64_t heard;    /* one after the last block that it has said something about */
    uint64_t promised; /* data messages in all, once it has ended */
    uint64_t sent, taken;
    int64_t all_sent, all_taken; /* control messages too */
} peer;

typedef struct {
    enum { SENDS_WORD, SENDS_ROWS, FILLS_ROOM, DRAINS } kind;
    uint32_t peer;
    void *memory; /* to be freed, or given back */
    room *room;
} operation;

struct lio_exchange {
    lio_mpi mpi;
    int control_tag, data_tag;
    uint32_t peers, own, in_flight_max;
    pid_t pid;
    pthread_t thread;
    bool has_thread, is_stopping, is_done;
    pthread_mutex_t lock;
    _Atomic uint32_t callers; /* that wait for the lock */
    pthread_cond_t work, moved;
    lio_error error; /* what ended it */
    word *outbox, *last_out;
    size_t awaited; /* rooms */
    size_t parts;   /* that other roots may ask for */
    int operations, operations_max;
    operation *operation;
    uint8_t *request, *status;
    int *index;
    void *buffer[LIO_MESSAGES_MAX]; /* that are free */
    int buffers, buffers_made, buffers_max;
    uint8_t *memory; /* of all buffers: pages of its own, which go back to the kernel */
    lio_exchanged counts;
    peer peer[];
};

/* Takes the lock soon, though the thread is busy; gives it back. */
void lio_exchange_enter(lio_exchange *x);
void lio_exchange_leave(lio_exchange *x);

/* Ends the exchange: the callers that wait hear of it. */
void lio_exchange_fail(lio_exchange *x, int code, const char *what, int reason);

uint64_t lio_exchange_deadline_after(int timeout_ms);

/* Returns false at the deadline. */
bool lio_exchange_wait_until(pthread_cond_t *what, pthread_mutex_t *lock, uint64_t deadline_ns);

/* Makes sure of room for one more request; false: the exchange has failed. */
bool lio_exchange_make_place(lio_exchange *x);

/* Where the next request goes; once it is there, lio_exchange_under_way() counts it. */
void *lio_exchange_next_request(lio_exchange *x);
void lio_exchange_under_way(lio_exchange *x, operation done);

uint64_t lio_exchange_now_ns(void);

/* Sends a control message. */
void lio_exchange_say(lio_exchange *x, uint32_t to, uint64_t what, uint64_t number);

/* Sends what a root has asked for, as far as buffers allow; returns whether there was any. */
bool lio_exchange_send_rows(lio_exchange *x, uint32_t to);

/* Tells a root once that it gets no more, behind all rows that were sent. */
void lio_exchange_tell_end(lio_exchange *x, uint32_t to);

void lio_exchange_drop_parts(lio_exchange *x, peer *p);
void lio_exchange_drop_word(peer *p);

/* Begins to receive a message into the first room of its sender, or to drop it. */
bool lio_exchange_take_rows(lio_exchange *x, uint32_t from, int bytes, lio_handle *message);

/* After a message has come into a room. */
void lio_exchange_room_filled(lio_exchange *x, room *r);

/* After a root has ended, and all that it has sent has begun to come. */
void lio_exchange_find_gone(lio_exchange *x, peer *p);

/* Says how an answer ended, if it is awaited. */
void lio_exchange_settle(lio_exchange *x, room *r, uint8_t answer);

/* Takes the first room of a root out of its queue. */
void lio_exchange_leave_queue(peer *p);

static inline int message_bytes(uint64_t left)
{
    return (int)(left < LIO_MESSAGE_BYTES ? left : LIO_MESSAGE_BYTES);
}

#endif
