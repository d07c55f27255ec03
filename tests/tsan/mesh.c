/* Program: ranks of a job that send each other messages, among strangers, for the sanitizers.
 *
 *   mesh SEED SECONDS
 *
 * Round after round a few meshes live in this process, each with a thread that sends and two that take;
 * pairs of them speak by TCP or by a Unix socket. Messages, copied or lent as MPI's are, arrive whole
 * and in order, and in a quiet round all of them. In others ranks close at any moment, and children are
 * forked, which close what they have. All the while strangers connect: they say nothing, or anything,
 * greet with a wrong key, or with the right one, as a rank that nobody else is, and then send random
 * frames, whole, changed, or cut off. Only such ranks may be lost while all others are there.
 *
 * Ends with 0, or says what is wrong.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mesh_part.h"
#include "threads.h"

enum { RANKS_MAX = 5, GHOSTS = 3, TAGS = 4, LENT_MAX = 8, BYTES_MAX = 200000, QUEUED_MAX = 8 << 20 };
enum { ROUND_MS = 250, WHOLE_SECONDS_MAX = 30 };

typedef struct {
    lio_mesh *mesh;
    uint32_t rank;
    uint64_t seed;
    atomic_bool stop, stop_taking;
    pthread_t sender, takers[2];
    uint32_t sent[RANKS_MAX][TAGS];          /* the sender's */
    _Atomic uint32_t taken[RANKS_MAX][TAGS]; /* those that take */
    void *requests[LENT_MAX];
    uint8_t *lent[LENT_MAX];
} node;

static node nodes[RANKS_MAX];
static uint32_t ranks;
static uint64_t round_seed;
static uint64_t messages, frames;

static void give_up(int line, const char *what, const lio_error *error)
{
    (void)fprintf(stderr, "mesh.c:%d: %s: %s (round of seed %" PRIu64 ")\n", line, what,
                  error != NULL ? error->reason : "wrong", round_seed);
    _exit(1);
}

/* --- messages ------------------------------------------------------------------------------ */

static void fill(uint8_t *bytes, uint64_t count, uint32_t number)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(number * 31 + i);
}

static void compare(const lio_mesh_message *message, uint32_t number)
{
    const uint8_t *bytes = message->content;
    for (uint64_t i = 0; i < message->count; i++)
        MUST(bytes[i] == (uint8_t)(number * 31 + i));
}

/* Lends a message until it is sent, as an exchange does. */
static void lend(node *own, uint32_t to, int tag, const uint8_t *bytes, uint64_t count)
{
    int (*isend)(const void *, int, void *, int, int, void *, void *);
    int (*testsome)(int, void *, int *, int *, void *);
    int over, which[LENT_MAX], at = 0;
    lio_mpi mpi;
    lio_mesh_functions(own->mesh, &mpi);
    isend = (int (*)(const void *, int, void *, int, int, void *, void *))(uintptr_t)mpi.isend;
    testsome = (int (*)(int, void *, int *, int *, void *))(uintptr_t)mpi.testsome;
    MUST(testsome(LENT_MAX, own->requests, &over, which, NULL) == 0);
    for (int i = 0; i < over; i++) {
        memset(own->lent[which[i]], 0x5a, 1);
        free(own->lent[which[i]]);
        own->lent[which[i]] = NULL;
    }
    while (at < LENT_MAX && own->requests[at] != NULL)
        at++;
    if (at == LENT_MAX || bytes == NULL)
        return;
    own->lent[at] = malloc((size_t)count + 1);
    MUST(own->lent[at] != NULL);
    memcpy(own->lent[at], bytes, (size_t)count);
    MUST(isend(own->lent[at], (int)count, NULL, (int)to, tag, own->mesh, &own->requests[at]) == 0);
    own->sent[to][tag]++;
}

static void *send_much(void *argument)
{
    node *own = argument;
    uint64_t state = own->seed;
    uint8_t *bytes = malloc(BYTES_MAX);
    lio_error error;
    MUST(bytes != NULL);
    while (!own->stop) {
        uint32_t to = (uint32_t)draw(&state, ranks), tag = (uint32_t)draw(&state, TAGS);
        uint64_t count = draw(&state, draw(&state, 8) == 0 ? BYTES_MAX : 300);
        if (lio_mesh_unsent(own->mesh) > QUEUED_MAX) {
            (void)usleep(200);
            continue;
        }
        fill(bytes, count, own->sent[to][tag]);
        if (draw(&state, 3) == 0) {
            lend(own, to, (int)tag, bytes, count);
        } else {
            MUST_BE_OK(lio_mesh_send(own->mesh, to, (int)tag, bytes, count, &error), &error);
            own->sent[to][tag]++;
        }
        if (draw(&state, 20) == 0)
            (void)usleep((useconds_t)draw(&state, 2000));
    }
    free(bytes);
    return NULL;
}

/* Takes messages of two tags. */
static void *take_all(node *own, int first)
{
    uint64_t seen = 0, state = own->seed + 1;
    while (!own->stop_taking) {
        bool has_taken = false;
        for (int tag = first; tag < first + 2; tag++) {
            const lio_mesh_message *message = lio_mesh_first(own->mesh, tag);
            if (message == NULL)
                continue;
            uint32_t sender = message->sender;
            if (sender < ranks)
                compare(message, own->taken[sender][tag]++);
            if (draw(&state, 2) == 0)
                lio_mesh_drop(own->mesh, message);
            else
                lio_mesh_message_free(lio_mesh_take(own->mesh, tag));
            has_taken = true;
        }
        if (!has_taken)
            (void)lio_mesh_wait(own->mesh, &seen, 5);
    }
    return NULL;
}

static void *take_first(void *own)
{
    return take_all(own, 0);
}

static void *take_second(void *own)
{
    return take_all(own, 2);
}

/* --- strangers ------------------------------------------------------------------------------ */

static void say_all(int fd, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        ssize_t said = send(fd, bytes, count, MSG_NOSIGNAL);
        if (said <= 0)
            return; /* it was cut off */
        bytes += said;
        count -= (size_t)said;
    }
}

static void say_frames(int fd, uint64_t *state)
{
    uint8_t frame[LIO_HEAD_BYTES + 300];
    for (uint64_t left = 1 + draw(state, 30); left > 0; left--) {
        uint32_t count = (uint32_t)draw(state, 300);
        int32_t tag = draw(state, 40) == 0 ? LIO_MESH_FAREWELL : (int32_t)draw(state, TAGS);
        memcpy(frame, LIO_MESH_MAGIC, 4);
        lio_mesh_put_u32(frame + 4, (uint32_t)tag);
        lio_mesh_put_u32(frame + 8, count);
        lio_mesh_put_u32(frame + 12, 0);
        for (uint32_t i = 0; i < count; i++)
            frame[LIO_HEAD_BYTES + i] = (uint8_t)draw(state, 256);
        if (draw(state, 8) == 0)
            frame[draw(state, LIO_HEAD_BYTES)] ^= (uint8_t)(1u << draw(state, 8));
        size_t size = LIO_HEAD_BYTES + count;
        frames++;
        say_all(fd, frame, draw(state, 30) == 0 ? (size_t)draw(state, size) : size);
    }
}

static int call_on(const node *one, uint64_t *state)
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(lio_mesh_port(one->mesh))};
    struct sockaddr_un near;
    bool is_near = draw(state, 2) == 0;
    socklen_t size = is_near ? lio_mesh_name(one->mesh, one->rank, &near) : sizeof far;
    far.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(is_near ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0);
    (void)connect(fd, is_near ? (struct sockaddr *)&near : (struct sockaddr *)&far, size);
    return fd;
}

static void be_strange(const node *one, uint64_t *state)
{
    uint8_t said[LIO_GREETING_BYTES];
    int fd = call_on(one, state);
    memcpy(said, one->mesh->greeting, sizeof said);
    lio_mesh_put_u32(said + 24, ranks + (uint32_t)draw(state, GHOSTS));
    switch (draw(state, 5)) {
    case 0:
        for (size_t i = 0; i < sizeof said; i++)
            said[i] = (uint8_t)draw(state, 256);
        say_all(fd, said, (size_t)draw(state, sizeof said + 1));
        break;
    case 1:
        said[draw(state, sizeof said)] ^= (uint8_t)(1 + draw(state, 255));
        if (lio_mesh_u32(said + 24) >= ranks) /* who has the key may be any rank that is there */
            say_all(fd, said, sizeof said);
        break;
    default:
        say_all(fd, said, sizeof said);
        say_frames(fd, state);
    }
    (void)close(fd);
}

/* --- a round -------------------------------------------------------------------------------- */

static void open_all(uint64_t *state)
{
    uint8_t key[LIO_MESH_KEY_BYTES];
    const uint8_t host[LIO_MESH_HOST_BYTES] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    lio_error error;
    ranks = 2 + (uint32_t)draw(state, RANKS_MAX - 1);
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)draw(state, 256);
    for (uint32_t i = 0; i < ranks; i++) {
        memset(&nodes[i], 0, sizeof nodes[i]);
        nodes[i].rank = i;
        nodes[i].seed = draw(state, 1u << 30);
        MUST_BE_OK(lio_mesh_open(i, ranks + GHOSTS, key, &nodes[i].mesh, &error), &error);
    }
    for (uint32_t i = 0; i < ranks; i++)
        for (uint32_t other = 0; other < ranks; other++)
            if (other != i) {
                uint16_t port = lio_mesh_port(nodes[other].mesh);
                lio_mesh_place(nodes[i].mesh, other, host, port, draw(state, 2) == 0);
                if (draw(state, 2) == 0)
                    MUST_BE_OK(lio_mesh_connect(nodes[i].mesh, other, &error), &error);
            }
    for (uint32_t i = 0; i < ranks; i++) {
        start(&nodes[i].sender, send_much, &nodes[i]);
        start(&nodes[i].takers[0], take_first, &nodes[i]);
        start(&nodes[i].takers[1], take_second, &nodes[i]);
    }
}

static void close_one(node *one, uint64_t *state)
{
    one->stop = one->stop_taking = true;
    finish(one->takers[0]);
    finish(one->takers[1]);
    lio_mesh_leave(one->mesh, (int)draw(state, 2) * 100);
    lend(one, 0, 0, NULL, 0);
    for (int i = 0; i < LENT_MAX; i++)
        MUST(one->requests[i] == NULL);
    lio_mesh_close(one->mesh);
    one->mesh = NULL;
}

static bool has_all(void)
{
    for (uint32_t from = 0; from < ranks; from++)
        for (uint32_t to = 0; to < ranks; to++)
            for (int tag = 0; tag < TAGS; tag++)
                if (nodes[to].taken[from][tag] != nodes[from].sent[to][tag])
                    return false;
    return true;
}

/* Nobody leaves: all arrives, and no rank is lost but ghosts. */
static void end_quietly(void)
{
    double began = now();
    while (!has_all()) {
        MUST(now() - began < WHOLE_SECONDS_MAX);
        (void)usleep(1000);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        uint8_t states[RANKS_MAX + GHOSTS];
        lio_mesh_states(nodes[i].mesh, states);
        for (uint32_t other = 0; other < ranks; other++)
            MUST(states[other] <= LIO_MESH_HERE);
    }
}

static void fork_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (uint32_t i = 0; i < ranks; i++)
            lio_mesh_close(nodes[i].mesh);
        _exit(0);
    }
    MUST(child > 0 && waitpid(child, NULL, 0) == child);
}

static void run_round(uint64_t *state)
{
    bool is_quiet = draw(state, 2) == 0;
    double until = now() + ROUND_MS / 1000.0;
    open_all(state);
    uint32_t left = ranks;
    while (now() < until) {
        be_strange(&nodes[draw(state, left)], state);
        if (draw(state, 500) == 0)
            fork_child();
        if (!is_quiet && left > 1 && draw(state, 300) == 0) {
            node *one = &nodes[--left];
            one->stop = true;
            finish(one->sender);
            close_one(one, state);
        }
    }
    for (uint32_t i = 0; i < left; i++)
        nodes[i].stop = true;
    for (uint32_t i = 0; i < left; i++)
        finish(nodes[i].sender);
    if (is_quiet)
        end_quietly();
    for (uint32_t i = 0; i < ranks; i++)
        for (uint32_t to = 0; to < ranks; to++)
            for (int tag = 0; tag < TAGS; tag++)
                messages += nodes[i].sent[to][tag];
    for (uint32_t i = 0; i < left; i++)
        close_one(&nodes[i], state);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t state = strtoull(argv[1], NULL, 10);
    double until = now() + strtod(argv[2], NULL);
    do {
        round_seed = state;
        run_round(&state);
    } while (now() < until);
    (void)printf("%" PRIu64 " messages, %" PRIu64 " frames of strangers: no race\n", messages,
                 frames);
    return 0;
}
