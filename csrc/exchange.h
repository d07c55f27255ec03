/* exchange: rows of blocks sent from one root of a job to another, by a thread of its own.
 *
 * A root holds rows that others need. It knows in which order each of them will, and says so
 * beforehand (lio_exchange_serve). A root that has a buffer for a block asks each holder for its rows
 * of it (lio_exchange_ask), by the number of the block; the holder packs and sends them, straight
 * into that buffer. A root that takes them elsewhere says so as well (lio_exchange_skip).
 *
 *   asks for block b  --control-->  holder: rows of block b, packed
 *   buffer of block b <----data---  in messages of LIO_MESSAGE_BYTES, the last one shorter
 *
 * Both sides know the size of each answer; one of no bytes says that the rows are missing. Rows begin at multiples of LIO_ROW_ALIGNMENT. The
 * thread knows no Python: it goes on while the interpreter runs something else. It calls functions
 * of MPI that it is handed as addresses, and needs neither its headers nor its library.
 *
 * Nothing that was asked for stays unmatched: a root that wants no more rows (DONE) hears from
 * each other how many messages it has been sent (END), takes in the rest and drops it.
 */
#ifndef LIO_EXCHANGE_H
#define LIO_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "rows.h"
#include "status.h"

enum {
    LIO_MESSAGE_BYTES = 1048576, /* of rows, at most; one that is packed takes a buffer as large */
    LIO_MESSAGES_MAX = 32,       /* packed ones at a time */
    LIO_STATUS_BYTES_MAX = 64
};

/* An MPI library, as far as it is called: addresses of its functions, its handles as they lie in
 * memory (zero behind their bytes), and how large its types are. */
typedef struct {
    uint64_t isend, improbe, imrecv, mrecv, testsome, get_count;
    uint64_t communicator, byte;
    uint32_t handle_bytes;  /* 4 or 8 */
    uint32_t status_bytes;  /* of MPI_Status, LIO_STATUS_BYTES_MAX at most */
    uint32_t source_offset; /* of MPI_SOURCE in it, an int */
    int32_t any_source;
    int32_t undefined;
} lio_mpi;

/* Rows of one block that one root needs, in the order in which they are packed. */
typedef struct {
    uint32_t peer;
    uint64_t block;
    uint64_t first, count; /* of the rows handed over with it */
} lio_serving;

/* A receive buffer for the rows of one block that one root holds. */
typedef struct {
    uint32_t peer;
    uint64_t into;  /* address */
    uint64_t bytes; /* of all rows, each rounded up to LIO_ROW_ALIGNMENT; at least 1 */
} lio_asking;

/* How an answer ended. */
enum lio_answer {
    LIO_ANSWER_AWAITED = 0,
    LIO_ANSWER_ARRIVED = 1,
    LIO_ANSWER_LATE = 2, /* it was given up, or the rows were taken back before */
    LIO_ANSWER_GONE = 3  /* the root has ended, and sends no more */
};

/* Facts about another root. */
enum lio_peer {
    LIO_PEER_DONE = 1, /* it takes no more rows */
    LIO_PEER_GONE = 2, /* it sends no more */
    LIO_PEER_OWES = 4  /* answers that were given up are still to come */
};

typedef struct {
    uint64_t sent_bytes, received_bytes; /* of rows, each rounded up; given up ones among them */
    uint64_t sent_messages, received_messages;
} lio_exchanged;

typedef struct lio_exchange lio_exchange;
typedef struct lio_shipment lio_shipment; /* rows handed over, not all packed yet */
typedef struct lio_arrival lio_arrival;   /* answers for one block */

/* Sends messages to this process itself, over a communicator that is its own alone, as an exchange
 * sends them, and compares them. */
int lio_exchange_probe(const lio_mpi *mpi, lio_error *error);

/* Starts the thread. `ranks`: of each of the `peers` roots in the communicator, `own` among them.
 * The tags are this exchange's alone. `messages_max`: that are packed at a time, of at most
 * LIO_MESSAGES_MAX. */
int lio_exchange_open(const lio_mpi *mpi, const int32_t *ranks, uint32_t peers, uint32_t own,
                      int32_t control_tag, int32_t data_tag, uint32_t messages_max,
                      lio_exchange **out, lio_error *error);

/* Hands over rows that other roots will ask for, of each root in the order of its blocks, and behind
 * those handed over before. They are records that are loaded, `rows` of them, whose places are in
 * `order`; `extents` says how long each is. They stay where they are until lio_shipment_left() is 0,
 * or the thread has ended. */
int lio_exchange_serve(lio_exchange *exchange, const lio_serving *parts, size_t count,
                       const lio_loaded *loaded, const lio_extent *extents, const int64_t *order,
                       size_t rows, lio_shipment **out, lio_error *error);

/* Rows that are not packed yet, in parts; 0 as well where nobody wants them any more. */
size_t lio_shipment_left(const lio_shipment *shipment);

/* Waits until none is left. LIO_PENDING: time is up. */
int lio_shipment_wait(lio_shipment *shipment, int timeout_ms, lio_error *error);

/* Takes back parts that nobody has asked for yet: roots that are so far behind hear that these are
 * missing, when they ask, and so do they of later ones until they have caught up. */
void lio_shipment_expire(lio_shipment *shipment);

/* Takes back what is not packed. NULL is fine. */
void lio_shipment_close(lio_shipment *shipment);

/* Asks for rows of a block; several buffers of one root are filled in their order. Blocks ascend. */
int lio_exchange_ask(lio_exchange *exchange, uint64_t block, const lio_asking *buffers,
                     size_t count, lio_arrival **out, lio_error *error);

/* Lets roots know that their rows of a block are not needed. */
int lio_exchange_skip(lio_exchange *exchange, uint64_t block, const uint32_t *peers, size_t count,
                      lio_error *error);

/* Waits until no answer is awaited. LIO_PENDING: time is up. */
int lio_arrival_wait(lio_arrival *arrival, int timeout_ms, lio_error *error);

/* Gives up what is awaited, soon; messages that have begun to come still do. */
void lio_arrival_give_up(lio_arrival *arrival);

/* enum lio_answer of each buffer. */
void lio_arrival_answers(const lio_arrival *arrival, uint8_t *out);

/* Gives up what is awaited, and waits for what has begun to come. LIO_PENDING: it has not ended
 * in time, and may still be written. The arrival is freed all the same. */
int lio_arrival_close(lio_arrival *arrival, int timeout_ms);

/* Gives it up, and waits for nothing. */
void lio_arrival_drop(lio_arrival *arrival);

/* enum lio_peer of each root. */
void lio_exchange_peers(lio_exchange *exchange, uint8_t *out);

/* How often each root has told this one that it still reads what this one has asked for. */
void lio_exchange_signs(lio_exchange *exchange, uint32_t *out);

/* In a forked child: nothing. */
void lio_exchange_counts(lio_exchange *exchange, lio_exchanged *out);

/* Messages of all kinds sent to each root, and taken from it; after lio_exchange_stop(). */
void lio_exchange_messages(lio_exchange *exchange, int64_t *sent, int64_t *received);

/* This root still reads rows: roots that have asked for some, and have not got them, hear so. */
void lio_exchange_reads_on(lio_exchange *exchange);

/* This root takes no more rows. */
void lio_exchange_done(lio_exchange *exchange);

/* This root sends no more rows: those that were handed over are dropped. */
void lio_exchange_end(lio_exchange *exchange);

/* Waits until no root takes any more rows from this one, nor this one from others, and no message
 * is under way. LIO_PENDING: time is up. */
int lio_exchange_wait_over(lio_exchange *exchange, int timeout_ms, lio_error *error);

/* Ends the thread. Messages that are under way stay so: lio_exchange_step() carries them on. */
void lio_exchange_stop(lio_exchange *exchange);

/* After the thread has ended: goes on once. Returns whether nothing is under way any more. */
int lio_exchange_step(lio_exchange *exchange);

/* Frees it, after lio_exchange_stop(). Buffers of messages that are under way are kept for ever. */
void lio_exchange_close(lio_exchange *exchange);

#endif
