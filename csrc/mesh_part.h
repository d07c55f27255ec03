/* mesh_part: what the files of the room `mesh` share. Private to the mesh.
 *
 *   callers --sendings, under the lock-->  links, which the thread alone connects, writes and ends
 *   callers <--messages, under the lock--  arrived, in the order in which they were complete
 *
 * The thread makes no call of a socket under the lock: nobody waits for a slow one.
 */
#ifndef LIO_MESH_PART_H
#define LIO_MESH_PART_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "mesh.h"

/* On a connection: first a greeting of the one who connected, then messages, each behind its head.
 * Little-endian. A farewell is a head with a tag of its own. The listener says a byte when it hears
 * the other one, for which messages wait, and another as its farewell. */
enum {
    LIO_GREETING_BYTES = 32, /* magic 8, key 16, rank 4, ranks 4 */
    LIO_HEAD_BYTES = 16,     /* magic 4, tag 4, bytes 8 */
    LIO_MESH_FAREWELL = -2,  /* a tag */
    LIO_SAYS_WELCOME = 'W',
    LIO_SAYS_FAREWELL = 'F'
};

enum { LIO_MESH_ANSWER_SECONDS = 30 }; /* of a machine, before it is lost */

/* A message to be sent. */
typedef struct lio_sending {
    struct lio_sending *next;
    atomic_bool has_ended;
    bool is_request; /* its sender frees it, once it has ended; else the thread does */
    uint8_t head[LIO_HEAD_BYTES];
    const uint8_t *from;
    uint64_t count, sent; /* bytes of `from`; bytes of it and of the head */
    uint8_t copy[];
} lio_sending;

/* The kind of a descriptor that epoll reports: the first member of the struct that owns it. */
typedef enum { LIO_WOKEN, LIO_LISTENER, LIO_LINK, LIO_INCOMING } lio_mesh_kind;

/* The connection to a rank, from the first message to it on. */
typedef struct lio_link {
    lio_mesh_kind kind;
    uint32_t rank;
    struct lio_link *next; /* of all that there are */
    uint8_t host[LIO_MESH_HOST_BYTES];
    uint16_t port;
    bool is_placed, is_near;
    bool is_wanted;            /* under the lock: there is something to do */
    lio_sending *first, *last; /* under the lock; the thread alone takes from them */
    int fd;                    /* -1: none */
    bool is_open;              /* connected */
    uint64_t greeted;          /* bytes of the greeting that are sent */
    bool is_welcome;           /* the listener has heard it: messages may follow */
    uint32_t redials;          /* before it was welcome */
    uint64_t not_before_ns;    /* when it is dialled again */
    bool has_unanswered;       /* TCP: the other machine may not have acknowledged all */
    uint32_t silent_checks;    /* in a row, that saw no answer where one was due */
} lio_link;

/* A connection of another rank to this one. */
typedef struct lio_incoming {
    lio_mesh_kind kind;
    struct lio_incoming *next;
    int fd;
    int64_t rank;      /* -1: it has not greeted yet */
    uint64_t since_ns; /* when it was accepted */
    uint8_t head[LIO_GREETING_BYTES];
    uint64_t got; /* bytes of the head, or of the message */
    lio_mesh_message *message;
} lio_incoming;

struct lio_mesh {
    uint32_t rank, ranks;
    uint8_t greeting[LIO_GREETING_BYTES];
    uint16_t port;
    pid_t pid;
    pthread_t thread;
    bool has_thread;
    int epoll, wake, listeners[2];
    lio_mesh_kind woken, listener[2];

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t events, unsent; /* bytes */
    lio_link **links;        /* of each rank; NULL: nobody has asked for it */
    lio_link *all_links;
    uint8_t *state; /* enum lio_mesh_state of each rank */
    lio_mesh_message *arrived, **arrived_end;
    lio_mesh_message *spare;
    uint32_t spares;
    bool has_lost;
    uint32_t lost_rank;
    lio_error lost_why;
    bool is_leaving, has_met;
    uint64_t leave_until_ns;

    /* the thread's own */
    lio_incoming *incoming;
    uint32_t strangers; /* incoming ones that have not greeted */
    bool retries;       /* a listener's queue was full */
    bool has_unanswered;
    uint64_t checked_ns; /* when answers were last looked for */
    bool has_left;
};

/* A greeting begins with it, and each head with its first four bytes. */
static const uint8_t LIO_MESH_MAGIC[8] = {'l', 'm', 'd', 'b', 'i', 'o', 'M', '1'};

/* Numbers of 32 and 64 bits as they lie on a connection. */
static inline uint32_t lio_mesh_u32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline uint64_t lio_mesh_u64(const uint8_t *from)
{
    return lio_mesh_u32(from) | (uint64_t)lio_mesh_u32(from + 4) << 32;
}

static inline void lio_mesh_put_u32(uint8_t *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(number >> 8 * i);
}

/* The thread. */
void *lio_mesh_carry(void *mesh);

/* The name of a rank's Unix socket, in the abstract namespace. */
struct sockaddr_un;
unsigned lio_mesh_name(const lio_mesh *mesh, uint32_t rank, struct sockaddr_un *out);

/* The address at which a rank listens for other machines; returns its bytes. */
struct sockaddr_storage;
unsigned lio_mesh_address(const lio_link *link, struct sockaddr_storage *out);

/* Lets a Unix socket hold a message of rows. */
void lio_mesh_widen(int fd);

/* Has the kernel notice that a machine has died, while nothing is to be acknowledged; and always, where so
 * little is written that the other one is never too full to take it. */
void lio_mesh_keep_alive(int fd, bool writes_little);

/* Whether the other machine owes an answer, and has given none for `since_ms`. A process that is only
 * stopped owes nothing: its kernel acknowledges, or answers the probes of a full receiver. */
bool lio_mesh_is_silent(int fd, uint64_t since_ms);

/* Whether the other end of a Unix socket is this user's: its name is free to all until it is bound. */
bool lio_mesh_is_own_user(int fd);

/* Wakes the thread. */
void lio_mesh_wake(lio_mesh *mesh);

/* A message with room for `count` bytes; NULL: no memory. */
lio_mesh_message *lio_mesh_message_make(lio_mesh *mesh, uint64_t count);

/* Wakes the callers that wait for news. Under the lock. */
void lio_mesh_announce(lio_mesh *mesh);

/* Puts a message behind those that have arrived. */
void lio_mesh_arrive(lio_mesh *mesh, lio_mesh_message *message);

/* Frees a request that has ended. */
void lio_mesh_sending_free(lio_sending *request);

/* Sends bytes that stay the caller's until `out`, a request, has ended. */
int lio_mesh_begin(lio_mesh *mesh, uint32_t rank, int32_t tag, const uint8_t *bytes,
                   uint64_t count, bool is_request, lio_sending **out, lio_error *error);

#endif
