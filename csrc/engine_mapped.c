#include "engine_mapped.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buffer.h"
#include "engine_file.h"
#include "engine_pieces.h"
#include "extent.h"
#include "trace.h"

enum { PIECE_BYTES = LIO_PIECE_BYTES, WINDOW_BYTES = LIO_WINDOW_BYTES };

/* The kernel's windows are aligned in memory; so are huge pages, which the page cache may have. */
enum { ALIGNMENT = 2 << 20 };

/* So many pieces in a row that are there make others believed, by long reads and for them: shorter
 * ones are made with Python's GIL in hand (glue/lookup.h), and many of them lie in a piece. Nor are those
 * mapped ahead: they are over as soon as another thread has woken up. */
enum { BELIEVED_FROM = 64, LONG_BYTES = 32 << 10 };

/* Of many files each has pieces of its own, and to ask about 10,000 of them once a second took a seventh
 * of the time of those that read at random: that they are there counts for 8 seconds. */
enum { MANY_FILES_BITS = 3 };

/* So much of a value a core fetches while a program uses the one before. */
enum { APPROACHED_BYTES = 2 << 10, LINE_BYTES = 64 };

/* Of what this process has touched: after fork a child has the mapping, but none of its pages. */
typedef struct {
    _Atomic uint64_t bytes;
    _Atomic uint32_t in_a_row; /* pieces that were there when they were asked for, up to
                                * BELIEVED_FROM */
    _Atomic uint32_t pieces[]; /* facts of each (engine_pieces.h) */
} touches;

struct lio_mapped {
    const uint8_t *map;    /* a multiple of ALIGNMENT */
    uint64_t size;         /* of the mapping */
    lio_mapped_file whole; /* the file, where it is one */
    uint64_t bytes_max, page_bytes;
    lio_mapped_ask ask;
    void *owner;        /* of the files */
    int fd;             /* of the one file */
    uint32_t time_bits; /* what was said of a piece counts for 2 to the power of so many seconds */
    bool has_others;    /* processors, for mapping ahead */
    touches *seen;
    size_t seen_bytes;
};

/* --- the handler ----------------------------------------------------------------------- */

/* A copy under way. */
typedef struct {
    sigjmp_buf back;
    const uint8_t *begin, *end; /* of its mapping */
} copy;

static LIO_THREAD_LOCAL copy *volatile under_way;

/* A process has one handler for a signal, whatever we think of globals. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;
static bool installed;

static void on_bus(int signal_number, siginfo_t *info, void *context)
{
    copy *mine = under_way;
    const uint8_t *at = info->si_addr;
    if (mine != NULL && info->si_code > 0 && at >= mine->begin && at < mine->end) {
        under_way = NULL;
        siglongjmp(mine->back, 1);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal_number, info, context);
    } else if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
        return; /* sent by somebody */
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal_number);
    } else {
        /* As without us: the access is made again when this returns. */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        (void)sigaction(SIGBUS, &usual, NULL);
        if (info->si_code <= 0)
            (void)raise(SIGBUS);
    }
}

static void install(void)
{
    /* Not blocked meanwhile, so that there is no mask to restore after the jump. */
    struct sigaction ours = {.sa_sigaction = on_bus,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    (void)sigemptyset(&ours.sa_mask);
    installed = sigaction(SIGBUS, &ours, &before) == 0;
}

/* Some clock's second, never 0. */
static uint32_t this_second(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t)now.tv_sec % (UINT32_MAX / LIO_SECOND - 1) + 1;
}

/* Whether the handler is in its place, and the signal reaches this thread. */
static bool look_at_handler(void)
{
    struct sigaction now;
    sigset_t blocked;
    return installed && sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
           now.sa_sigaction == on_bus && pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 &&
           sigismember(&blocked, SIGBUS) == 0;
}

/* The same as it was this second. */
static bool is_guarded(uint32_t second)
{
    static LIO_THREAD_LOCAL uint32_t looked;
    static LIO_THREAD_LOCAL bool found;
    if (looked != second) {
        looked = second;
        found = look_at_handler();
    }
    return found;
}

/* --- opening and closing ----------------------------------------------------------------- */

static bool is_bounded(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

static bool has_others(void)
{
    cpu_set_t usable; /* too small where there are a thousand */
    return sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
}

/* Maps the file to a multiple of ALIGNMENT, or for `fd` -1 keeps the addresses; NULL: there is no
 * room. */
static const uint8_t *map_aligned(int fd, size_t size)
{
    size_t reserved = size + ALIGNMENT;
    uint8_t *room = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0),
            *map, *end;
    if (room == MAP_FAILED)
        return NULL;
    map = room + (ALIGNMENT - (uintptr_t)room % ALIGNMENT) % ALIGNMENT;
    if (fd >= 0 && mmap(map, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        (void)munmap(room, reserved);
        return NULL;
    }
    end = map + lio_round_up(size, (uint64_t)sysconf(_SC_PAGESIZE));
    if (map > room)
        (void)munmap(room, (size_t)(map - room));
    if (end < room + reserved)
        (void)munmap(end, (size_t)(room + reserved - end));
    return map;
}

/* Zeros, and zeros in a child (where that is known: since Linux 4.14); NULL: no memory. */
static void *zeros_of_this_process(size_t size)
{
    void *zeros = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeros == MAP_FAILED)
        return NULL;
#ifdef MADV_WIPEONFORK
    (void)madvise(zeros, size, MADV_WIPEONFORK);
#endif
    return zeros;
}

/* A process that is given little room of addresses needs it for other things. */
static lio_mapped *mapped_make(int fd, uint64_t size, uint64_t bytes_max)
{
    lio_mapped *mapped;
    if (bytes_max < PIECE_BYTES || is_bounded() || size > SIZE_MAX / 2)
        return NULL;
    (void)pthread_once(&once, install);
    mapped = look_at_handler() ? calloc(1, sizeof *mapped) : NULL;
    if (mapped == NULL)
        return NULL;
    mapped->size = size;
    mapped->seen_bytes = sizeof *mapped->seen +
                         (size_t)(size / PIECE_BYTES + 1) * sizeof mapped->seen->pieces[0];
    mapped->seen = zeros_of_this_process(mapped->seen_bytes);
    mapped->map = mapped->seen == NULL ? NULL : map_aligned(fd, (size_t)size);
    if (mapped->map == NULL) {
        lio_mapped_close(mapped);
        return NULL;
    }
    mapped->bytes_max = bytes_max;
    mapped->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    mapped->has_others = has_others();
    return mapped;
}

/* Pages that are on their way count as cached. To touch one would wait with Python's GIL in hand, and no
 * iterator would see that it waits: the last page tells. */
static bool ask_one(void *owner, lio_mapped_file *file, uint64_t offset, uint64_t length,
                    uint8_t *map)
{
    const lio_mapped *mapped = owner;
    uint64_t cached = 0, last = lio_round_down(offset + length - 1, mapped->page_bytes);
    unsigned char has_come = 1;
    (void)file;
    return lio_cached_bytes(mapped->fd, offset, length, &cached) && cached >= length &&
           (mincore(map + last, 1, &has_come) != 0 || (has_come & 1));
}

lio_mapped *lio_mapped_open(int fd, uint64_t bytes_max)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size, cached;
    lio_mapped *mapped;
    uint8_t byte;
    if (lio_fd_size(fd, &size, NULL) != LIO_OK || size <= page ||
        !lio_cached_bytes(fd, 0, page, &cached))
        return NULL;
    mapped = mapped_make(fd, size, bytes_max);
    if (mapped == NULL)
        return NULL;
    mapped->whole.size = size;
    mapped->whole.end = mapped->whole.last = lio_round_down(size - 1, page);
    mapped->whole.is_mapped = true;
    /* Each copy looks at the last page. A fault there would wait for all that a stream has asked for. */
    (void)!pread(fd, &byte, 1, (off_t)mapped->whole.last);
    mapped->fd = fd;
    mapped->ask = ask_one;
    mapped->owner = mapped;
    return mapped;
}

lio_mapped *lio_mapped_reserve(uint64_t size, uint64_t bytes_max, lio_mapped_ask ask, void *owner)
{
    lio_mapped *mapped = mapped_make(-1, size, bytes_max);
    if (mapped != NULL) {
        mapped->ask = ask;
        mapped->owner = owner;
        mapped->time_bits = MANY_FILES_BITS;
    }
    return mapped;
}

void lio_mapped_close(lio_mapped *mapped)
{
    if (mapped == NULL)
        return;
    if (mapped->map != NULL)
        (void)munmap((void *)(uintptr_t)mapped->map, (size_t)mapped->size);
    if (mapped->seen != NULL)
        (void)munmap(mapped->seen, mapped->seen_bytes);
    free(mapped);
}

/* --- copying ----------------------------------------------------------------------------- */

/* The bytes of the file in a piece. */
static lio_extent piece_of(const lio_mapped_file *file, uint64_t piece)
{
    uint64_t begin = piece * PIECE_BYTES - file->place, rest = file->size - begin;
    return (lio_extent){begin, rest < PIECE_BYTES ? rest : PIECE_BYTES};
}

/* Whether a piece is counted: those around it are so with it, for of a huge page in the page cache the
 * first touch maps all. */
static bool is_counted(const lio_mapped *m, uint64_t piece)
{
    uint64_t first = lio_round_down(piece, ALIGNMENT / PIECE_BYTES);
    for (uint64_t i = first; i < first + ALIGNMENT / PIECE_BYTES && i * PIECE_BYTES < m->size; i++)
        if (atomic_load_explicit(&m->seen->pieces[i], memory_order_relaxed) & LIO_COUNTED)
            return true;
    return false;
}

/* Makes room for a piece and those around it, which is to be called counted then. Two threads may both
 * count them, which errs on the safe side. */
static bool count_piece(lio_mapped *m, uint64_t piece)
{
    uint64_t begin = lio_round_down(piece * PIECE_BYTES, ALIGNMENT), rest = m->size - begin;
    uint64_t bytes = rest < ALIGNMENT ? rest : ALIGNMENT;
    if (is_counted(m, piece) || atomic_fetch_add(&m->seen->bytes, bytes) + bytes <= m->bytes_max)
        return true;
    (void)atomic_fetch_sub(&m->seen->bytes, bytes);
    return false;
}

/* Asks the kernel about the bytes of a piece. */
static bool ask(lio_mapped *m, lio_mapped_file *file, lio_extent e)
{
    uint32_t in_a_row = atomic_load_explicit(&m->seen->in_a_row, memory_order_relaxed);
    bool there = m->ask(m->owner, file, e.offset, e.length, (uint8_t *)(uintptr_t)m->map);
    if (!there || in_a_row < BELIEVED_FROM)
        atomic_store_explicit(&m->seen->in_a_row, there ? in_a_row + 1 : 0, memory_order_relaxed);
    return there;
}

/* Whether a piece may be touched: it is counted, or the budget is not used up. */
static bool has_room(const lio_mapped *m, uint64_t piece)
{
    return is_counted(m, piece) ||
           (atomic_load_explicit(&m->seen->bytes, memory_order_relaxed) < m->bytes_max);
}

/* Believes that a piece is there. */
static bool believe(lio_mapped *m, uint64_t piece, uint32_t seen)
{
    if (!count_piece(m, piece))
        return false;
    atomic_store_explicit(&m->seen->pieces[piece], lio_piece_believed(seen), memory_order_relaxed);
    return true;
}

/* Looks whether it is. */
static bool look(lio_mapped *m, lio_mapped_file *file, uint64_t piece, uint32_t seen,
                 uint32_t second)
{
    lio_extent e = piece_of(file, piece);
    bool there = has_room(m, piece) && ask(m, file, e) && count_piece(m, piece);
    uint32_t time = there ? (second >> m->time_bits) + 1 : second;
    atomic_store_explicit(&m->seen->pieces[piece], lio_piece_said(seen, there, time),
                          memory_order_relaxed);
    return there;
}

/* `believed`: in, whether it may be; out, whether some of it was. A file that is not mapped has to be
 * asked about. */
static bool is_there(lio_mapped *m, lio_mapped_file *file, lio_extent e, bool *believed)
{
    uint32_t second = this_second(), time = (second >> m->time_bits) + 1;
    bool believes = *believed && atomic_load_explicit(&file->is_mapped, memory_order_acquire) &&
                    atomic_load_explicit(&m->seen->in_a_row, memory_order_relaxed) >=
                        BELIEVED_FROM;
    *believed = false;
    if (!is_guarded(second))
        return false;
    for (uint64_t piece = (file->place + e.offset) / PIECE_BYTES,
                  last = (file->place + e.offset + e.length - 1) / PIECE_BYTES;
         piece <= last; piece++) {
        uint32_t seen = atomic_load_explicit(&m->seen->pieces[piece], memory_order_relaxed);
        bool there = lio_piece_state_of(seen) == LIO_PIECE_HELD,
             is_known = seen / LIO_SECOND == (there ? time : second);
        if (!is_known)
            there = believes ? believe(m, piece, seen) : look(m, file, piece, seen, second);
        if (!there)
            return false;
        *believed |= believes && !is_known;
    }
    return true;
}

/* No storage answers sooner; and no memory that is not busy gives less, bytes each ns. */
enum { WAIT_NS_MIN = 20000, BYTES_NS_MIN = 2 };

bool lio_has_waited(uint64_t elapsed_ns, uint64_t bytes)
{
    static LIO_THREAD_LOCAL long known; /* 0, as a thread's are when it begins */
    struct rusage used;
    long now;
    bool more;
    if (elapsed_ns <= WAIT_NS_MIN + bytes / BYTES_NS_MIN)
        return false;
    if (getrusage(RUSAGE_THREAD, &used) != 0)
        return true;
    now = used.ru_majflt + used.ru_inblock;
    more = now != known;
    known = now;
    return more;
}

/* No load from here on comes before one that stands above. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan" /* no other thread's memory is ordered by it */
#endif
static inline void loads_before(void)
{
    atomic_thread_fence(memory_order_acquire);
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

/* Copies in one go, and the last page, which is looked at afterwards. */
typedef struct {
    const uint8_t *begin; /* of the file */
    const lio_read *reads;
    size_t count;
    const uint8_t *from;      /* and what lies here, cut into pieces */
    const struct iovec *into; /* of memory */
    int pieces;
    const lio_read *behind; /* NULL, or copied after all of them */
    const uint8_t *last;
} job;

static inline void prefetch(const uint8_t *from, uint64_t length)
{
    for (uint64_t at = 0; at < length && at < APPROACHED_BYTES; at += LINE_BYTES)
        __builtin_prefetch(from + at);
}

/* The bytes are there before the look at the last page, and that before the copy is believed. */
static void copy_and_look(const job *now)
{
    const uint8_t *from = now->from;
    for (size_t i = 0; i < now->count; i++) {
        const lio_read *read = &now->reads[i];
        if (i + 1 < now->count)
            prefetch(now->begin + read[1].offset, read[1].length);
        lio_copy(read->into, now->begin + read->offset, (size_t)read->length);
    }
    for (int i = 0; i < now->pieces; i++) {
        lio_copy(now->into[i].iov_base, from, now->into[i].iov_len);
        from += now->into[i].iov_len;
    }
    loads_before();
    if (now->behind != NULL) {
        memcpy(now->behind->into, now->begin + now->behind->offset, (size_t)now->behind->length);
        loads_before();
    }
    (void)*(const volatile uint8_t *)now->last;
}

static bool copy_guarded(const uint8_t *map, uint64_t size, const job *work)
{
    copy now;
    now.begin = map;
    now.end = map + size;
    if (sigsetjmp(now.back, 0) != 0)
        return false; /* the handler has put `under_way` back */
    under_way = &now;
    atomic_signal_fence(memory_order_seq_cst);
    copy_and_look(work);
    atomic_signal_fence(memory_order_seq_cst);
    under_way = NULL;
    return true;
}

static bool holds(lio_mapped *m, lio_mapped_file *file, uint64_t offset, uint64_t length,
                  bool *believed)
{
    return length > 0 && lio_fits(offset, length, file->end) &&
           is_there(m, file, (lio_extent){offset, length}, believed);
}

bool lio_mapped_holds(lio_mapped *m, lio_mapped_file *file, uint64_t offset, uint64_t length)
{
    bool believed = length > LONG_BYTES;
    return holds(m, file != NULL ? file : &m->whole, offset, length, &believed);
}

void lio_mapped_forget_missing(lio_mapped *m, const lio_mapped_file *file, uint64_t offset,
                               uint64_t length)
{
    uint64_t begin;
    file = file != NULL ? file : &m->whole;
    begin = file->place + offset;
    if (length == 0 || !lio_fits(offset, length, file->size))
        return;
    for (uint64_t piece = begin / PIECE_BYTES; piece <= (begin + length - 1) / PIECE_BYTES;
         piece++) {
        uint32_t seen = atomic_load_explicit(&m->seen->pieces[piece], memory_order_relaxed);
        if (lio_piece_state_of(seen) == LIO_PIECE_MISSING) {
            uint32_t forgotten = lio_piece_forgotten(seen);
            /* Where another thread has looked meanwhile, that is as good. */
            (void)atomic_compare_exchange_strong(&m->seen->pieces[piece], &seen, forgotten);
        }
    }
}

/* Facts about the piece that a window is of. */
static uint32_t seen_around(const lio_mapped *m, uint64_t window)
{
    return atomic_load_explicit(&m->seen->pieces[window / LIO_WINDOWS], memory_order_relaxed);
}

static uint32_t bit_of(uint64_t window)
{
    return (uint32_t)LIO_WINDOW << window % LIO_WINDOWS;
}

static void note_touched(lio_mapped *m, uint64_t place, uint64_t length)
{
    for (uint64_t window = place / WINDOW_BYTES; window <= (place + length - 1) / WINDOW_BYTES;
         window++)
        if (!(seen_around(m, window) & bit_of(window)))
            (void)atomic_fetch_or_explicit(&m->seen->pieces[window / LIO_WINDOWS], bit_of(window),
                                           memory_order_relaxed);
}

/* Where a page begins that shows whether the file was cut in these bytes, or before: the last one, which
 * is at hand where it is looked at for each copy. Of many files it is another one each time, and the
 * page behind the bytes is nearer, if it is known to be there. */
static uint64_t page_behind(const lio_mapped *m, const lio_mapped_file *file, lio_extent e)
{
    uint64_t end = e.offset + e.length, next = lio_round_up(end, m->page_bytes);
    bool is_near = file != &m->whole && next < file->size &&
                   (file->place + next) / PIECE_BYTES == (file->place + end - 1) / PIECE_BYTES;
    return is_near ? next : file->last;
}

/* `believed`: as for is_there. */
static bool copy_held(lio_mapped *m, lio_mapped_file *file, lio_extent e, bool believed,
                      const struct iovec *into, int count, const lio_read *behind)
{
    job work = {.begin = m->map + file->place, .into = into, .pieces = count, .behind = behind};
    bool copied, unused = false;
    uint64_t begun;
    if (!holds(m, file, e.offset, e.length, &believed) ||
        (behind != NULL && !holds(m, file, behind->offset, behind->length, &unused)))
        return false;
    work.from = work.begin + e.offset;
    work.last = work.begin + page_behind(m, file, e);
    begun = believed ? lio_now_ns() : 0;
    copied = copy_guarded(m->map, m->size, &work);
    if (believed && lio_has_waited(lio_now_ns() - begun, e.length))
        atomic_store_explicit(&m->seen->in_a_row, 0, memory_order_relaxed);
    if (copied)
        note_touched(m, file->place + e.offset, e.length);
    return copied;
}

bool lio_mapped_copy(lio_mapped *m, lio_mapped_file *file, uint64_t offset, uint64_t length,
                     const struct iovec *into, int count, const lio_read *behind)
{
    return copy_held(m, file != NULL ? file : &m->whole, (lio_extent){offset, length},
                     length > LONG_BYTES, into, count, behind);
}

size_t lio_mapped_copy_each(lio_mapped *m, const lio_read *reads, size_t count)
{
    job work = {.begin = m->map, .reads = reads, .last = m->map + m->whole.last};
    for (bool believed = false; work.count < count; work.count++)
        if (reads[work.count].length > LONG_BYTES ||
            !holds(m, &m->whole, reads[work.count].offset, reads[work.count].length, &believed))
            break;
    if (work.count == 0 || !copy_guarded(m->map, m->size, &work))
        return 0;
    for (size_t i = 0; i < work.count; i++)
        note_touched(m, reads[i].offset, reads[i].length);
    return work.count;
}

size_t lio_mapped_faults(const lio_mapped *m, const lio_mapped_file *file, uint64_t offset,
                         uint64_t length)
{
    uint64_t begin, end;
    size_t found = 0;
    file = file != NULL ? file : &m->whole;
    begin = file->place + offset;
    end = begin + length;
    if (!m->has_others || length <= LONG_BYTES || !lio_fits(offset, length, file->end))
        return 0;
    for (uint64_t window = begin / WINDOW_BYTES; window <= (end - 1) / WINDOW_BYTES; window++) {
        uint32_t seen = seen_around(m, window);
        /* The others may not be touched. */
        found += (seen & LIO_COUNTED) && !(seen & bit_of(window));
    }
    return found;
}

void lio_mapped_prefault(lio_mapped *m, lio_mapped_file *file, uint64_t offset, uint64_t length)
{
    uint8_t byte;
    struct iovec into = {.iov_base = &byte, .iov_len = 1};
    uint64_t next;
    file = file != NULL ? file : &m->whole;
    if (!lio_fits(offset, length, file->end))
        return;
    for (uint64_t end = offset + length; offset < end; offset = next) {
        uint64_t window = (file->place + offset) / WINDOW_BYTES;
        next = (window + 1) * WINDOW_BYTES - file->place;
        if (!(seen_around(m, window) & bit_of(window)) &&
            !copy_held(m, file, (lio_extent){offset, 1}, true, &into, 1, NULL))
            return;
    }
}

/* Of several files, a copy takes the file's meta page, and a look at the page behind the bytes. */
void lio_mapped_approach(const lio_mapped *m, const lio_mapped_file *file, uint64_t offset,
                         uint64_t length)
{
    const uint8_t *begin = file != NULL ? m->map + file->place : m->map;
    if (!lio_fits(offset, length, file != NULL ? file->size : m->whole.size))
        return;
    prefetch(begin + offset, length);
    if (file == NULL)
        return;
    prefetch(begin + file->meta.offset, file->meta.length);
    prefetch(begin + lio_round_up(offset + length, m->page_bytes), 1);
}

bool lio_copy_guarded(const uint8_t *map, uint64_t size, const lio_read *read)
{
    uint64_t last = size > 0 ? lio_round_down(size - 1, (uint64_t)sysconf(_SC_PAGESIZE)) : 0;
    job work = {.begin = map, .reads = read, .count = 1, .last = map + last};
    (void)pthread_once(&once, install);
    return lio_fits(read->offset, read->length, last) && is_guarded(this_second()) &&
           copy_guarded(map, size, &work);
}
