/* Program: the rooms of csrc/ that threads and processes share, all at once, for ThreadSanitizer.
 *
 *   stress DATABASE SEED SECONDS
 *
 * engine   many threads submit batches of all sizes to one engine, wait for some, give others up
 *          midway and free them, read counters and times, ask for the page cache, and for bytes
 *          to be made ready by others; threads that the reads need start and end with engines that
 *          open and close; a child is forked in between and reads as well
 * cursor   threads share the pages of a snapshot, each with a cursor and a scan of its own, that
 *          goes past the page cache, and one cursor that all of them move
 * window   a root publishes, ranks wait, check what they see and release; in threads, whose
 *          memory the sanitizer watches, and in processes, with the futex between them
 *
 * Bytes read are compared with the file, and a slot's content with the number of its block, so
 * that a mistake shows also where the sanitizer sees no race. Ends with 0, or says what is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lmdbio.h"
#include "threads.h"

enum { THREADS = 4, READS_MAX = 24, PIECE_MAX = 300 << 10, BLOCKS = 400, RANKS = 3, SLOTS = 2 };

static const char *path;
static uint8_t *content;
static uint64_t size;
static atomic_bool stop;

static void give_up(int line, const char *what, const lio_error *error)
{
    (void)fprintf(stderr, "stress.c:%d: %s: %s\n", line, what,
                  error != NULL ? error->reason : "wrong");
    _exit(1);
}

/* --- engine --------------------------------------------------------------------------- */

typedef struct {
    lio_engine *engine;
    uint64_t seed;
} reader;

static bool is_right(const lio_read *read)
{
    uint64_t there = read->offset >= size ? 0 : size - read->offset;
    return memcmp(read->into, content + read->offset,
                  (size_t)(there < read->length ? there : read->length)) == 0;
}

/* Some reads, aligned as the engine wants them, into `memory`. */
static size_t draw_reads(const reader *r, uint64_t *state, uint8_t *memory, lio_read *reads)
{
    uint64_t align = lio_engine_alignment(r->engine);
    size_t count = 1 + (size_t)draw(state, READS_MAX);
    for (size_t i = 0; i < count; i++) {
        uint64_t length = (1 + draw(state, i % 5 == 0 ? PIECE_MAX : 9000) / align) * align;
        uint64_t offset = draw(state, size) / align * align;
        uint64_t there = size - offset;
        reads[i] = (lio_read){offset, length, there < length ? there : length, memory};
        if (align == 1)
            reads[i].length = reads[i].needed;
        memory += PIECE_MAX + 8192;
    }
    return count;
}

static void use_ticket(reader *r, uint64_t *state, const lio_read *reads, size_t count)
{
    uint64_t submitted, ended;
    lio_ticket *ticket = NULL;
    lio_error error;
    int code;
    MUST_BE_OK(lio_engine_submit(r->engine, reads, count, &ticket, &error), &error);
    if (draw(state, 3) == 0) { /* given up, at any moment */
        (void)lio_ticket_wait(ticket, (int)draw(state, 2), NULL);
        lio_ticket_times(ticket, &submitted, &ended);
        lio_ticket_free(ticket);
        return;
    }
    do {
        lio_ticket_times(ticket, &submitted, &ended);
        (void)usleep((useconds_t)draw(state, 300)); /* without a lock, while it may end */
        code = lio_ticket_wait(ticket, 20, &error);
    } while (code == LIO_PENDING);
    MUST_BE_OK(code, &error);
    lio_ticket_times(ticket, &submitted, &ended);
    MUST(ended >= submitted);
    lio_ticket_free(ticket);
    for (size_t i = 0; i < count; i++)
        MUST(is_right(&reads[i]));
}

static void *read_much(void *argument)
{
    reader *r = argument;
    uint64_t state = r->seed;
    size_t bytes = (size_t)READS_MAX * (PIECE_MAX + 8192);
    uint8_t *memory = lio_buffer_open(bytes);
    lio_read reads[READS_MAX];
    MUST(memory != NULL);
    while (!stop) {
        lio_tally counts;
        lio_error error;
        uint64_t cached;
        size_t count = draw_reads(r, &state, memory, reads);
        switch (draw(&state, 5)) {
        case 0:
            MUST_BE_OK(lio_engine_read(r->engine, reads, count, &error), &error);
            break;
        case 1: {
            lio_extent range = {reads[0].offset, reads[0].length};
            lio_ticket *ticket = NULL;
            if (lio_engine_populate(r->engine, &range, 1, 65536, false, &ticket, &error) == LIO_OK)
                lio_ticket_free(ticket);
            (void)lio_engine_cached(r->engine, 0, 0, &cached, NULL);
            break;
        }
        case 2: {
            lio_extent wanted[READS_MAX];
            for (size_t i = 0; i < count; i++)
                wanted[i] = (lio_extent){reads[i].offset, reads[i].length};
            lio_engine_prefault(r->engine, wanted, count);
            break;
        }
        default:
            use_ticket(r, &state, reads, count);
        }
        lio_engine_tally(r->engine, &counts);
    }
    lio_buffer_close(memory);
    return NULL;
}

/* The child has one thread, and makes a pool of its own. */
static void fork_and_read(lio_engine *engine, uint64_t seed)
{
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        static uint8_t memory[2][8192] __attribute__((aligned(4096)));
        lio_read reads[2] = {{0, 8192, 4096, memory[0]},
                             {draw(&seed, size) / 4096 * 4096, 8192, 1, memory[1]}};
        lio_error error;
        (void)alarm(60);
        MUST_BE_OK(lio_engine_read(engine, reads, 2, &error), &error);
        MUST(is_right(&reads[0]) && is_right(&reads[1]));
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void engines(const char *kind, uint64_t seed, bool forks, double seconds)
{
    double until = now() + seconds;
    while (now() < until) {
        pthread_t threads[THREADS];
        reader readers[THREADS];
        lio_engine *engine;
        lio_error error;
        int code = lio_engine_open(path, kind, 1 + (uint32_t)draw(&seed, 8), &engine, &error);
        if (code == LIO_ERR_UNSUPPORTED)
            return; /* no O_DIRECT here, or no io_uring */
        MUST_BE_OK(code, &error);
        lio_engine_map_cached(engine, UINT64_C(1) << 30);
        stop = false;
        for (int i = 0; i < THREADS; i++) {
            readers[i] = (reader){engine, seed + (uint64_t)i};
            start(&threads[i], read_much, &readers[i]);
        }
        for (int i = 0; forks && i < 3; i++) {
            (void)usleep(20000);
            fork_and_read(engine, seed + (uint64_t)i);
        }
        (void)usleep(100000);
        stop = true;
        for (int i = 0; i < THREADS; i++)
            finish(threads[i]);
        lio_engine_close(engine);
        seed += 17;
    }
}

/* --- pages, cursors, scans ------------------------------------------------------------ */

typedef struct {
    lio_pages *pages;
    lio_engine *past;
    lio_cursor *shared; /* a cursor that all threads move */
    const lio_meta *meta;
    uint64_t seed;
    uint64_t records;
} walker;

static bool is_value(const uint8_t *value, const lio_extent *where)
{
    return memcmp(value, content + where->offset, (size_t)where->length) == 0;
}

static void scan_all(walker *w, uint64_t *state)
{
    lio_scan_options options = {.move = LIO_MOVE_NEXT,
                                .want_values = 1,
                                .advised = draw(state, 2) != 0,
                                .dense = draw(state, 2) != 0,
                                .sweep_bytes_max = draw(state, 2) ? UINT64_C(1) << 40 : 0,
                                .block_bytes_max = 8 << 20};
    lio_cursor *cursor;
    lio_scan *scan;
    lio_error error;
    uint64_t seen = 0, bytes, spent;
    size_t count;
    int code;
    MUST_BE_OK(lio_cursor_open(w->pages, &w->meta->main_db, &cursor, &error), &error);
    MUST_BE_OK(lio_scan_open(cursor, &options, &scan, &error), &error);
    for (uint32_t block = 0;; block++) {
        do
            code = lio_scan_next(scan, 20, &count, &error);
        while (code == LIO_PENDING);
        if (code == LIO_NOTFOUND || stop)
            break;
        MUST_BE_OK(code, &error);
        if (block == 3)
            lio_scan_bypass(scan, w->past);
        for (size_t at = 0, loaded; at < count; at += loaded) {
            loaded = count - at;
            MUST_BE_OK(lio_scan_load(scan, at, &loaded, &error), &error);
            lio_pages_lock(w->pages);
            for (size_t i = at; i < at + loaded; i++) {
                lio_record record;
                MUST_BE_OK(lio_scan_record(scan, i, &record, &error), &error);
                if (record.value != NULL && record.where.length != 0)
                    MUST(is_value(record.value, &record.where));
            }
            lio_pages_unlock(w->pages);
        }
        seen += count;
        lio_scan_bypassed(scan, &bytes, &spent);
    }
    MUST(stop || seen == w->records);
    lio_scan_close(scan);
    lio_cursor_close(cursor);
}

static void move_about(walker *w, uint64_t *state)
{
    uint8_t *value = malloc(PIECE_MAX);
    MUST(value != NULL);
    for (int i = 0; i < 200 && !stop; i++) {
        static const uint32_t moves[] = {LIO_MOVE_FIRST, LIO_MOVE_NEXT, LIO_MOVE_NEXT,
                                         LIO_MOVE_PREV, LIO_MOVE_LAST};
        const lio_item *item;
        lio_error error;
        int code;
        lio_pages_lock(w->pages); /* across the move and the use of what it found */
        code = lio_cursor_move(w->shared, moves[draw(state, 5)], NULL, 0, NULL, 0, &error);
        MUST(code == LIO_OK || code == LIO_NOTFOUND);
        item = lio_cursor_item(w->shared);
        if (item != NULL && item->data == NULL && item->data_size <= PIECE_MAX) {
            MUST_BE_OK(lio_value_read(w->pages, &item->where, value, &error), &error);
            MUST(is_value(value, &item->where));
        }
        lio_pages_unlock(w->pages);
    }
    free(value);
}

static void *walk_much(void *argument)
{
    walker *w = argument;
    uint64_t state = w->seed;
    while (!stop) {
        if (draw(&state, 3) == 0)
            move_about(w, &state);
        else
            scan_all(w, &state);
    }
    return NULL;
}

static void cursors(uint64_t seed, double seconds)
{
    pthread_t threads[THREADS];
    walker walkers[THREADS];
    lio_engine *engine, *past = NULL;
    lio_pages *pages;
    lio_cursor *shared;
    lio_meta meta;
    lio_error error;
    MUST_BE_OK(lio_engine_open(path, "pread", 4, &engine, &error), &error);
    lio_engine_map_cached(engine, UINT64_C(1) << 30);
    if (lio_engine_open(path, "direct", 4, &past, &error) != LIO_OK)
        past = NULL;
    MUST_BE_OK(lio_meta_read(engine, UINT64_MAX, &meta, &error), &error);
    MUST_BE_OK(lio_pages_open(engine, &meta.layout, 0, &pages, &error), &error);
    MUST_BE_OK(lio_cursor_open(pages, &meta.main_db, &shared, &error), &error);
    stop = false;
    for (int i = 0; i < THREADS; i++) {
        walkers[i] = (walker){
            pages, past, shared, &meta, seed + (uint64_t)i, meta.main_db.entries};
        start(&threads[i], walk_much, &walkers[i]);
    }
    (void)usleep((useconds_t)(seconds * 1e6));
    stop = true;
    for (int i = 0; i < THREADS; i++)
        finish(threads[i]);
    lio_cursor_close(shared);
    lio_pages_close(pages);
    lio_engine_close(past);
    lio_engine_close(engine);
}

/* --- window --------------------------------------------------------------------------- */

/* Memory that ranks and their root share: the control area, and slots of plain words. */
typedef struct {
    uint64_t words[SLOTS][512];
    _Alignas(64) uint8_t control[4096];
} shared_memory;

typedef struct {
    shared_memory *memory;
    uint32_t rank; /* 0 is the root too */
    bool aborts;
} seat;

static void fill(shared_memory *m)
{
    for (uint64_t block = 0; block < BLOCKS; block++) {
        uint64_t needed = block < SLOTS ? 0 : block - SLOTS + 1;
        int code;
        do {
            if (lio_window_aborted(m->control, NULL, NULL))
                return;
            code = lio_window_wait_released(m->control, 0, 0, RANKS, needed, 20);
        } while (code == LIO_PENDING);
        if (code == LIO_NOTFOUND)
            return; /* all have left */
        for (size_t i = 0; i < 512; i++)
            m->words[block % SLOTS][i] = block + i;
        lio_window_publish(m->control, 0, block + 1);
    }
}

static void use(const seat *s)
{
    shared_memory *m = s->memory;
    for (uint64_t block = 0; block < BLOCKS; block++) {
        char message[LIO_WINDOW_MESSAGE_MAX];
        uint32_t who;
        while (lio_window_wait_published(m->control, 0, block, 20) == LIO_PENDING)
            if (lio_window_aborted(m->control, &who, message)) {
                MUST(who == 1 && strcmp(message, "enough") == 0);
                return;
            }
        for (size_t i = 0; i < 512; i++)
            MUST(m->words[block % SLOTS][i] == block + i);
        lio_window_release(m->control, 0, s->rank, block + 1);
        if (s->aborts && s->rank == 1 && block == BLOCKS / 2) {
            lio_window_abort(m->control, s->rank, "enough");
            return;
        }
        if (s->rank == 2 && block == BLOCKS - 20) {
            lio_window_leave(m->control, 0, s->rank, LIO_WINDOW_LEFT);
            break;
        }
    }
    lio_window_leave(m->control, 0, s->rank, LIO_WINDOW_CLOSES);
    while (!s->aborts && lio_window_wait_end(m->control, 0, 20) == LIO_PENDING)
        ;
    MUST(s->aborts || lio_window_end(m->control) == LIO_WINDOW_FREE);
}

static void *fill_thread(void *argument)
{
    fill(argument);
    return NULL;
}

static void *use_thread(void *argument)
{
    use(argument);
    return NULL;
}

static shared_memory *window_make(void)
{
    lio_error error;
    shared_memory *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                            -1, 0);
    MUST(m != MAP_FAILED && lio_window_bytes(RANKS, 1) <= sizeof m->control);
    MUST_BE_OK(lio_window_format(m->control, RANKS, 1, &error), &error);
    MUST_BE_OK(lio_window_check(m->control, RANKS, 1, &error), &error);
    return m;
}

static void window_of_threads(bool aborts)
{
    shared_memory *m = window_make();
    pthread_t root, ranks[RANKS];
    seat seats[RANKS];
    start(&root, fill_thread, m);
    for (uint32_t i = 0; i < RANKS; i++) {
        seats[i] = (seat){m, i, aborts};
        start(&ranks[i], use_thread, &seats[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        finish(ranks[i]);
    finish(root);
    MUST(munmap(m, sizeof *m) == 0);
}

/* Each rank in a process of its own; the root is a thread beside rank 0. */
static void window_of_processes(bool aborts)
{
    shared_memory *m = window_make();
    pid_t children[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        children[i] = fork();
        MUST(children[i] >= 0);
        if (children[i] == 0) {
            seat own = {m, i, aborts};
            pthread_t root;
            (void)alarm(60);
            if (i == 0)
                start(&root, fill_thread, m);
            use(&own);
            if (i == 0)
                finish(root);
            exit(0); /* with the sanitizer's verdict */
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        int status;
        MUST(waitpid(children[i], &status, 0) == children[i]);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    MUST(munmap(m, sizeof *m) == 0);
}

static void windows(double seconds)
{
    double until = now() + seconds;
    for (uint32_t turn = 0; turn < 2 || now() < until; turn++) {
        window_of_processes(turn % 2 != 0); /* while this process has one thread */
        window_of_threads(turn % 2 != 0);
    }
}

/* --- all of it ------------------------------------------------------------------------ */

static void load_content(void)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && fstat(fd, &status) == 0);
    size = (uint64_t)status.st_size;
    content = malloc((size_t)size);
    MUST(content != NULL);
    for (uint64_t at = 0; at < size;) {
        ssize_t got = pread(fd, content + at, (size_t)(size - at), (off_t)at);
        MUST(got > 0);
        at += (uint64_t)got;
    }
    (void)close(fd);
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"pread", "direct", "uring", "staged", "mmap"};
    double began = now(), each;
    uint64_t seed;
    MUST(argc == 4);
    path = argv[1];
    seed = strtoull(argv[2], NULL, 10);
    each = strtod(argv[3], NULL) / 8;
    load_content();
    windows(each);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        engines(kinds[i], seed + i, false, each);
    cursors(seed, each);
    engines("pread", seed, true, each);
    (void)printf("no race, %.1f s\n", now() - began);
    free(content);
    return 0;
}
