/* A mesh as an MPI library: as much of it as an exchange calls. Handles are pointers. */
#include <string.h>

#include "contract.h"
#include "mesh_part.h"

/* Stands for MPI_Status. */
typedef struct {
    int source, bytes;
} status;

/* A request that has ended when it was made. */
static lio_sending ended = {.has_ended = true, .is_request = true};

enum { FAILED = 1, UNDEFINED = -32766 };

static int isend(const void *from, int count, void *byte, int rank, int tag, void *comm,
                 void *request)
{
    lio_mesh *m = comm;
    lio_sending *one = &ended;
    int code;
    (void)byte;
    if (count < 0 || rank < 0 || tag < 0)
        return FAILED;
    if ((uint32_t)rank == m->rank)
        code = lio_mesh_send(m, m->rank, tag, from, (uint64_t)count, NULL);
    else
        code = lio_mesh_begin(m, (uint32_t)rank, tag, from, (uint64_t)count, true, &one, NULL);
    if (code == LIO_OK)
        memcpy(request, &one, sizeof(void *));
    return code == LIO_OK ? 0 : FAILED;
}

static int improbe(int source, int tag, void *comm, int *flag, void *message, void *out)
{
    lio_mesh_message *found = lio_mesh_take(comm, tag);
    LIO_ASSERT(source == -1);
    (void)source;
    *flag = found != NULL;
    if (found != NULL) {
        status said = {(int)found->sender, (int)found->count};
        memcpy(message, &found, sizeof(void *));
        memcpy(out, &said, sizeof said);
    }
    return 0;
}

/* Gives up the message; returns whether it fits. */
static int receive(void *into, int count, void *message)
{
    lio_mesh_message *found;
    memcpy(&found, message, sizeof(void *));
    memset(message, 0, sizeof(void *));
    bool fits = count >= 0 && (uint64_t)count >= found->count;
    if (fits && found->count > 0)
        memcpy(into, found->content, found->count);
    lio_mesh_message_free(found);
    return fits ? 0 : FAILED;
}

static int imrecv(void *into, int count, void *byte, void *message, void *request)
{
    const lio_sending *one = &ended;
    (void)byte;
    memcpy(request, &one, sizeof(void *));
    return receive(into, count, message);
}

static int mrecv(void *into, int count, void *byte, void *message, void *out)
{
    (void)byte;
    (void)out;
    return receive(into, count, message);
}

static int testsome(int count, void *requests, int *outcount, int *indices, void *statuses)
{
    int active = 0, over = 0;
    (void)statuses;
    for (int i = 0; i < count; i++) {
        lio_sending *one;
        uint8_t *at = (uint8_t *)requests + (size_t)i * sizeof(void *);
        memcpy(&one, at, sizeof(void *));
        if (one == NULL)
            continue;
        active++;
        if (!atomic_load(&one->has_ended))
            continue;
        if (one != &ended)
            lio_mesh_sending_free(one);
        memset(at, 0, sizeof(void *));
        indices[over++] = i;
    }
    *outcount = active == 0 ? UNDEFINED : over;
    return 0;
}

static int get_count(const void *of, void *byte, int *bytes)
{
    status said;
    (void)byte;
    memcpy(&said, of, sizeof said);
    *bytes = said.bytes;
    return 0;
}

void lio_mesh_functions(lio_mesh *m, lio_mpi *out)
{
    *out = (lio_mpi){.isend = (uint64_t)(uintptr_t)isend,
                     .improbe = (uint64_t)(uintptr_t)improbe,
                     .imrecv = (uint64_t)(uintptr_t)imrecv,
                     .mrecv = (uint64_t)(uintptr_t)mrecv,
                     .testsome = (uint64_t)(uintptr_t)testsome,
                     .get_count = (uint64_t)(uintptr_t)get_count,
                     .communicator = (uint64_t)(uintptr_t)m,
                     .handle_bytes = sizeof(void *),
                     .status_bytes = sizeof(status),
                     .source_offset = offsetof(status, source),
                     .any_source = -1,
                     .undefined = UNDEFINED};
}
