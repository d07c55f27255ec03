#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* One thread per read in flight. More reads than that wait for a thread: they are answered
 * late, which is counted. */
enum { THREADS_MAX = 512, STACK_BYTES = 128 * 1024 };

/* An answer's own cost: of each power of two of bytes, averaged over about so many answers. One
 * that was held up by something else counts as the maximum. */
enum { SIZES = 64, AVERAGED = 8, COST_NS_MAX = 1000000 };

typedef struct job {
    struct job *next;
    int fd;
    uint64_t offset;
    size_t length;
    pfs_answer *answer;
    void *context;
    pfs_request request;
    pfs_piece pieces[]; /* of the request */
} job;

/* How well the answers kept to the model. */
typedef struct {
    uint64_t answers;
    int64_t late_ns, late_ns_max; /* below 0: early */
    uint64_t backing; /* due before the folder's own storage had given the bytes */
} punctuality;

typedef struct {
    uint64_t begin, due, end; /* an answer's, begun on waking at `begin`, or */
    bool slept;               /* at once */
} answering;

struct pfs_store {
    pfs_constants constants;
    pthread_mutex_t lock;
    pthread_cond_t work;     /* a job is queued */
    pthread_cond_t stopping; /* nobody else rings it: who waits for a due time sleeps on it */
    bool stopped;
    pfs_model *model;
    job *first, **last;
    uint32_t queued, idle, threads;
    punctuality punctuality;
    uint64_t cost_ns[SIZES];
    pthread_t thread[THREADS_MAX];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- opening and closing ---------------------------------------------------------------- */

pfs_store *pfs_store_open(const pfs_constants *constants)
{
    pthread_condattr_t monotonic;
    pfs_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->model = pfs_model_open(constants);
    if (store->model == NULL) {
        free(store);
        return NULL;
    }
    store->constants = *constants;
    store->last = &store->first;
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->work, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&store->stopping, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return store;
}

void pfs_store_stop(pfs_store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    store->stopped = true;
    (void)pthread_cond_broadcast(&store->work);
    (void)pthread_cond_broadcast(&store->stopping);
    (void)pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < store->threads; i++)
        (void)pthread_join(store->thread[i], NULL);
    store->threads = 0;
}

void pfs_store_close(pfs_store *store)
{
    if (store == NULL)
        return;
    (void)pthread_cond_destroy(&store->stopping);
    (void)pthread_cond_destroy(&store->work);
    (void)pthread_mutex_destroy(&store->lock);
    pfs_model_close(store->model);
    free(store);
}

const pfs_model *pfs_store_model(const pfs_store *store)
{
    return store->model;
}

/* --- threads ---------------------------------------------------------------------------- */

static int fetch(const job *todo, char *bytes)
{
    size_t got = 0;
    while (got < todo->length) {
        ssize_t more =
            pread(todo->fd, bytes + got, todo->length - got, (off_t)(todo->offset + got));
        if (more == 0)
            return EIO; /* the folder must not change, and this file is shorter than it was */
        if (more < 0 && errno != EINTR)
            return errno;
        got += more > 0 ? (size_t)more : 0;
    }
    return 0;
}

static size_t size_class(size_t bytes)
{
    size_t class = 0;
    while (bytes >>= 1)
        class++;
    return class;
}

/* When an answer that ends when it is due has to begin. */
static uint64_t begin_of(const pfs_store *store, pfs_due due, size_t bytes)
{
    uint64_t cost = store->cost_ns[size_class(bytes)];
    uint64_t begin = due.answer > cost ? due.answer - cost : 0;
    return begin > due.known ? begin : due.known;
}

/* Sleeps until the answer is to begin. Called with the lock held. */
static answering wait_until_due(pfs_store *store, const job *todo)
{
    answering when = {0};
    for (;;) {
        uint64_t now = now_ns();
        pfs_due due = pfs_model_due(store->model, now, &todo->request);
        uint64_t begin = begin_of(store, due, todo->length);
        struct timespec until = {(time_t)(begin / 1000000000u), (long)(begin % 1000000000u)};
        when.due = due.answer;
        if (begin <= now || store->stopped)
            return when;
        when.begin = begin;
        when.slept = true;
        (void)pthread_cond_timedwait(&store->stopping, &store->lock, &until);
    }
}

/* Learns from an answer. Called with the lock held. */
static void account(pfs_store *store, const job *todo, const answering *when)
{
    punctuality *kept = &store->punctuality;
    int64_t late = (int64_t)(when->end - when->due);
    kept->answers++;
    kept->late_ns += late;
    if (late > kept->late_ns_max)
        kept->late_ns_max = late;
    kept->backing += !when->slept;
    if (when->slept) {
        uint64_t *cost = &store->cost_ns[size_class(todo->length)];
        uint64_t took = when->end - when->begin;
        took = took < COST_NS_MAX ? took : COST_NS_MAX;
        *cost = (*cost * (AVERAGED - 1) + took) / AVERAGED;
    }
}

/* Takes the next job; NULL when the store stops. */
static job *take(pfs_store *store)
{
    job *todo;
    (void)pthread_mutex_lock(&store->lock);
    store->idle++;
    while (store->first == NULL && !store->stopped)
        (void)pthread_cond_wait(&store->work, &store->lock);
    store->idle--;
    todo = store->first;
    if (todo != NULL) {
        store->first = todo->next;
        if (store->first == NULL)
            store->last = &store->first;
        store->queued--;
    }
    (void)pthread_mutex_unlock(&store->lock);
    return todo;
}

/* Room for `wanted` bytes; false without memory. */
static bool make_room(char **bytes, size_t *room, size_t wanted)
{
    char *more;
    if (wanted <= *room)
        return true;
    more = realloc(*bytes, wanted);
    if (more == NULL)
        return false;
    *bytes = more;
    *room = wanted;
    return true;
}

static void *thread_main(void *argument)
{
    pfs_store *store = argument;
    char *bytes = NULL;
    size_t room = 0;
    job *todo;
    /* Without it the kernel lets a sleep of an ordinary thread end 50 us late. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while ((todo = take(store)) != NULL) {
        int error = make_room(&bytes, &room, todo->length) ? fetch(todo, bytes) : ENOMEM;
        answering when;
        (void)pthread_mutex_lock(&store->lock);
        when = wait_until_due(store, todo);
        (void)pthread_mutex_unlock(&store->lock);
        todo->answer(todo->context, bytes, todo->length, error);
        when.end = now_ns();
        (void)pthread_mutex_lock(&store->lock);
        if (!store->stopped)
            account(store, todo, &when);
        (void)pthread_mutex_unlock(&store->lock);
        free(todo);
    }
    free(bytes);
    return NULL;
}

/* Called with the lock held. A thread that cannot be made leaves the job to another. */
static bool make_thread(pfs_store *store)
{
    pthread_attr_t small;
    int failed;
    if (store->threads == THREADS_MAX)
        return false;
    (void)pthread_attr_init(&small);
    (void)pthread_attr_setstacksize(&small, STACK_BYTES);
    failed = pthread_create(&store->thread[store->threads], &small, thread_main, store);
    (void)pthread_attr_destroy(&small);
    store->threads += failed == 0;
    return failed == 0;
}

/* --- reads ------------------------------------------------------------------------------ */

void pfs_store_read(pfs_store *store, uint32_t mount, int fd, pfs_layout *layout,
                    uint64_t offset, size_t length, pfs_answer *answer, void *context)
{
    uint64_t pieces = pfs_model_pieces(store->model, offset, length);
    job *todo = calloc(1, sizeof *todo + pieces * sizeof todo->pieces[0]);
    bool accepted;
    if (todo == NULL) {
        answer(context, NULL, 0, ENOMEM);
        return;
    }
    todo->fd = fd;
    todo->offset = offset;
    todo->length = length;
    todo->answer = answer;
    todo->context = context;
    todo->request.piece = todo->pieces;
    (void)pthread_mutex_lock(&store->lock);
    accepted = store->queued < store->idle || make_thread(store) || store->threads > 0;
    if (accepted) {
        pfs_model_submit(store->model, now_ns(), mount, layout, offset, length,
                         &todo->request);
        *store->last = todo;
        store->last = &todo->next;
        store->queued++;
        (void)pthread_cond_signal(&store->work);
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (!accepted) {
        answer(context, NULL, 0, EAGAIN);
        free(todo);
    }
}

/* --- counters --------------------------------------------------------------------------- */

static void print_counts(FILE *out, pfs_counts counts)
{
    (void)fprintf(out,
                  "{\"requests\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seeks\":%" PRIu64
                  ",\"busy_s\":%.9f}",
                  counts.requests, counts.bytes, counts.seeks, (double)counts.busy_ns / 1e9);
}

static void print_mount(FILE *out, const pfs_store *store, uint32_t mount)
{
    (void)fputs("{\"link\":", out);
    print_counts(out, pfs_model_link_counts(store->model, mount));
    (void)fputs(",\"servers\":[", out);
    for (uint32_t i = 0; i < store->constants.servers; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        print_counts(out, pfs_model_server_counts(store->model, mount, i));
    }
    (void)fputs("]}", out);
}

char *pfs_store_counters(pfs_store *store)
{
    const punctuality *kept = &store->punctuality;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    (void)pthread_mutex_lock(&store->lock);
    (void)fputs("{\"mounts\":[", out);
    for (uint32_t i = 0; i < store->constants.mounts; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        print_mount(out, store, i);
    }
    (void)fprintf(out,
                  "],\"answers\":%" PRIu64 ",\"late_s\":%.9f,\"late_s_max\":%.9f"
                  ",\"backing_late\":%" PRIu64 "}",
                  kept->answers, (double)kept->late_ns / 1e9, (double)kept->late_ns_max / 1e9,
                  kept->backing);
    (void)pthread_mutex_unlock(&store->lock);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
