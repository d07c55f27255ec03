/* mesh: messages between the processes of a job, over sockets of their own.
 *
 *   send  --> [to a rank, in order] --socket--> [arrived, by tag] --> take
 *
 * A thread carries them: it sleeps until a socket or a caller has something for it, knows no Python,
 * and goes on while the interpreter runs something else. A message goes to one rank under one tag;
 * messages of one rank and tag arrive in the order in which they were sent. Whole ones alone are there
 * to be taken.
 *
 * Each process listens, by TCP and by a Unix socket in the abstract namespace, which leaves nothing
 * behind. The first message to a rank connects to it, and so do lio_mesh_connect's; each connection
 * carries messages one way, and begins with the job's key, without which a listener hears
 * nobody. Over a Unix socket both ends must be processes of the same user, too. The listener welcomes a rank
 * that it hears. A rank ends its connections by a farewell. One that ends without is lost, as is one
 * whose machine does not answer any more, while one that is only stopped is not: messages to it are
 * dropped, and callers are told which rank it is, and why.
 *
 * lio_mesh_functions makes it an MPI library, as far as an exchange needs one (exchange.h).
 */
#ifndef LIO_MESH_H
#define LIO_MESH_H

#include <stddef.h>
#include <stdint.h>

#include "exchange.h"
#include "status.h"

enum {
    LIO_MESH_KEY_BYTES = 16,
    LIO_MESH_RANKS_MAX = 1 << 20,
    LIO_MESH_BYTES_MAX = 1 << 30, /* of a message */
    LIO_MESH_HOST_BYTES = 16,     /* of an address: IPv6, or IPv4 mapped into it */
    LIO_MESH_ANY_TAG = -1
};

/* A rank, as far as this one knows. */
enum lio_mesh_state {
    LIO_MESH_AWAY = 0, /* nothing yet */
    LIO_MESH_HERE = 1, /* it has welcomed this one */
    LIO_MESH_LEFT = 2, /* it has said farewell */
    LIO_MESH_LOST = 3  /* it ended without, or cannot be reached */
};

typedef struct lio_mesh lio_mesh;

/* A message that has arrived. Its taker owns it. */
typedef struct lio_mesh_message {
    uint32_t sender;
    int32_t tag;
    uint64_t count; /* bytes of the content */
    uint64_t room;  /* there is memory for; the mesh's own, as what follows */
    struct lio_mesh_message *next;
    lio_mesh *mesh;
    uint8_t content[];
} lio_mesh_message;

/* Listens, and starts the thread. `key`: the job's secret, LIO_MESH_KEY_BYTES. */
int lio_mesh_open(uint32_t rank, uint32_t ranks, const uint8_t *key, lio_mesh **out,
                  lio_error *error);

/* The port of TCP at which this process listens. */
uint16_t lio_mesh_port(const lio_mesh *mesh);

/* Says where a rank listens; to be called before the first message to it. `is_near`: on this machine, by
 * its Unix socket if that can be reached. */
void lio_mesh_place(lio_mesh *mesh, uint32_t rank, const uint8_t *host, uint16_t port,
                    uint32_t is_near);

/* Says that all ranks have begun to listen, and that those to which this one is to be connected have welcomed
 * it. One that cannot be reached for the first time, or ends before it has heard this one, had left
 * before: those that are connected to a rank hear of its death. */
void lio_mesh_met(lio_mesh *mesh);

/* Connects to a rank, so that each of the two hears when the other one ends. */
int lio_mesh_connect(lio_mesh *mesh, uint32_t rank, lio_error *error);

/* Sends a copy of some bytes; returns at once. Dropped where the rank has left, or is lost. */
int lio_mesh_send(lio_mesh *mesh, uint32_t rank, int32_t tag, const uint8_t *bytes, uint64_t count,
                  lio_error *error);

/* Finds the oldest message with a tag, which stays where it is; NULL: none has arrived. One caller at
 * a time reads and drops the messages of a tag. */
const lio_mesh_message *lio_mesh_first(lio_mesh *mesh, int32_t tag);

/* Drops a message that lio_mesh_first has found. */
void lio_mesh_drop(lio_mesh *mesh, const lio_mesh_message *message);

/* cdef: skip */
/* Takes the oldest message with a tag; NULL: none has arrived. */
lio_mesh_message *lio_mesh_take(lio_mesh *mesh, int32_t tag);
void lio_mesh_message_free(lio_mesh_message *message);
/* cdef: resume */

/* Waits until something has happened since `seen`, a count that begins at 0, and sets it: a message has
 * arrived, a rank has left or is lost, or all that was to be sent is sent. LIO_PENDING: time is up. */
int lio_mesh_wait(lio_mesh *mesh, uint64_t *seen, int timeout_ms);

/* enum lio_mesh_state of each rank. */
void lio_mesh_states(lio_mesh *mesh, uint8_t *out);

/* The first rank that was lost, and why; false: none is. */
int lio_mesh_lost(lio_mesh *mesh, uint32_t *rank, lio_error *why);

/* Bytes that are still to be sent to ranks that are there. */
uint64_t lio_mesh_unsent(lio_mesh *mesh);

/* The mesh as an MPI library; it is the communicator. */
void lio_mesh_functions(lio_mesh *mesh, lio_mpi *out);

/* Sends what is still to be sent, for at most `timeout_ms`, and farewells; ends the thread. A caller
 * can still take messages that have arrived. */
void lio_mesh_leave(lio_mesh *mesh, int timeout_ms);

/* Leaves at once, if that was not done, and frees it with all messages that nobody took. In a forked
 * child: nothing but the descriptors, which are the child's own. NULL is fine. */
void lio_mesh_close(lio_mesh *mesh);

#endif
