#include "keys.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 18, NUMBER_BYTES_MAX = 8 };

struct lio_keys {
    uint32_t shortest, longest; /* bytes */
    bool little;                /* numbers are sorted by their last byte first */
    bool hopeless;
    uint64_t last;      /* number of the last key of the run that is being followed */
    uint64_t low, top;  /* PLAIN: the largest number of the run lies within, as far as is known */
    uint32_t next_size; /* DECIMAL: bytes of the key that should come next; 0: not known */
    uint8_t next[LIO_KEY_BYTES_MAX];
    size_t count; /* runs: ended ones, and the one that is being followed */
    lio_key_run runs[LIO_KEY_RUNS_MAX];
};

int lio_keys_open(uint32_t db_flags, lio_keys **out, lio_error *error)
{
    lio_keys *keys = calloc(1, sizeof *keys);
    if (keys == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *keys, 0, "no memory to follow keys");
    keys->little = (db_flags & (LIO_DB_INTEGERKEY | LIO_DB_REVERSEKEY)) != 0;
    *out = keys;
    return LIO_OK;
}

void lio_keys_close(lio_keys *keys)
{
    free(keys);
}

void lio_keys_sizes(const lio_keys *keys, uint32_t *shortest, uint32_t *longest)
{
    *shortest = keys->shortest;
    *longest = keys->longest;
}

/* --- numbers in keys -------------------------------------------------------------------- */

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static bool read_decimal(const uint8_t *text, size_t size, uint64_t *number)
{
    uint64_t value = 0;
    if (size == 0 || size > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!is_digit(text[i]))
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *number = value;
    return true;
}

static uint64_t read_bytes(const uint8_t *text, uint32_t size, bool little)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < size; i++)
        value = value << 8 | text[little ? size - 1 - i : i];
    return value;
}

/* The number of a key, if that is one of the run. */
static bool read_number(const lio_key_run *run, const uint8_t *key, size_t size, uint64_t *number)
{
    const uint8_t *text = key + run->stem;
    size_t width = size - run->stem - run->tail;
    if (size < (size_t)run->stem + run->tail || memcmp(key, run->text, run->stem) != 0 ||
        memcmp(text + width, run->text + run->stem, run->tail) != 0)
        return false;
    if (run->form == LIO_KEY_PLAIN)
        return read_decimal(text, width, number) && (text[0] != '0' || width == 1);
    if (width != run->width)
        return false;
    if (run->form == LIO_KEY_DECIMAL)
        return read_decimal(text, width, number);
    *number = read_bytes(text, run->width, run->form == LIO_KEY_LITTLE);
    return true;
}

/* Whether `next` comes right after `last` among the PLAIN numbers up to some largest one. It does for
 * largest ones from `*low` to `*top`, which are narrowed. */
static bool follows_plain(uint64_t last, uint64_t next, uint64_t *low, uint64_t *top)
{
    if (next > *low)
        *low = next;
    if (last == 0)
        return next == 1;
    if (next == last * 10)
        return true;
    if (last * 10 - 1 < *top)
        *top = last * 10 - 1;
    for (; last > 0; last /= 10) {
        if (last % 10 == 9)
            continue;
        if (next == last + 1)
            return true;
        if (last < *top)
            *top = last;
    }
    return false;
}

/* --- runs ------------------------------------------------------------------------------- */

/* Makes of a DECIMAL key the one after it. False: its digits are used up. */
static bool count_up(const lio_key_run *run, uint8_t *key)
{
    for (uint32_t i = run->stem + run->width; i-- > run->stem;) {
        if (key[i] != '9') {
            key[i]++;
            return true;
        }
        key[i] = '0';
    }
    return false;
}

/* The key after the one that the run has come to; for most keys the whole check is then that
 * they are the same. */
static void foresee(lio_keys *keys, const lio_key_run *run, const uint8_t *key, size_t size)
{
    keys->next_size = 0;
    if (run->form != LIO_KEY_DECIMAL || size > sizeof keys->next)
        return;
    memcpy(keys->next, key, size);
    keys->next_size = count_up(run, keys->next) ? (uint32_t)size : 0;
}

static lio_key_run *current(lio_keys *keys)
{
    return &keys->runs[keys->count - 1];
}

/* Makes the only key of a run the first of two, with the number at `from` to `end`. */
static bool try_run(lio_keys *keys, enum lio_key_form form, uint32_t from, uint32_t end,
                    const uint8_t *key, size_t size)
{
    lio_key_run *run = current(keys), tried = *run;
    uint64_t first, next;
    tried.form = form;
    tried.width = form == LIO_KEY_PLAIN ? 0 : end - from;
    tried.stem = from;
    tried.tail = run->stem - end;
    memmove(tried.text + from, run->text + end, tried.tail);
    if (!read_number(&tried, run->text, run->stem, &first) ||
        !read_number(&tried, key, size, &next))
        return false;
    keys->low = first;
    keys->top = UINT64_MAX;
    if (form == LIO_KEY_PLAIN ? first > 1 || !follows_plain(first, next, &keys->low, &keys->top)
                              : next - first != 1 || next < first)
        return false;
    tried.first = first;
    tried.count = 2;
    *run = tried;
    keys->last = next;
    foresee(keys, run, key, size);
    return true;
}

/* The same, with the number wherever it is. */
static bool begin_run(lio_keys *keys, const uint8_t *key, size_t size)
{
    const lio_key_run *run = current(keys);
    const uint8_t *text = run->text;
    uint32_t stem = run->stem, width = stem < NUMBER_BYTES_MAX ? stem : NUMBER_BYTES_MAX;
    if (keys->little)
        return stem == width && try_run(keys, LIO_KEY_LITTLE, 0, width, key, size);
    for (uint32_t end = stem, from; end > 0;
         end = from > 0 ? from - 1 : 0) { /* groups of digits */
        while (end > 0 && !is_digit(text[end - 1]))
            end--;
        for (from = end; from > 0 && is_digit(text[from - 1]); from--)
            ;
        if (end > 0 && (try_run(keys, LIO_KEY_PLAIN, from, end, key, size) ||
                        try_run(keys, LIO_KEY_DECIMAL, from, end, key, size)))
            return true;
    }
    return try_run(keys, LIO_KEY_BIG, stem - width, stem, key, size);
}

static bool goes_on(lio_keys *keys, const uint8_t *key, size_t size)
{
    lio_key_run *run = current(keys);
    uint64_t number;
    if (keys->next_size != 0 && size == keys->next_size && memcmp(key, keys->next, size) == 0) {
        keys->next_size = count_up(run, keys->next) ? keys->next_size : 0;
        keys->last++;
        run->count++;
        return true;
    }
    if (run->form == LIO_KEY_LITERAL)
        return begin_run(keys, key, size);
    if (!read_number(run, key, size, &number))
        return false;
    if (run->form == LIO_KEY_PLAIN ? !follows_plain(keys->last, number, &keys->low, &keys->top)
                                   : number - keys->last != 1 || number == 0)
        return false;
    keys->last = number;
    run->count++;
    return true;
}

/* Whether the run that is being followed may end here: PLAIN numbers are all there. */
static bool may_end(lio_keys *keys)
{
    const lio_key_run *run;
    uint64_t largest;
    if (keys->count == 0)
        return true;
    run = current(keys);
    largest = run->first + (run->count - 1);
    return run->form != LIO_KEY_PLAIN || (largest >= keys->low && largest <= keys->top);
}

static void add_literal(lio_keys *keys, const uint8_t *key, size_t size)
{
    lio_key_run *run = &keys->runs[keys->count++];
    keys->next_size = 0;
    *run = (lio_key_run){.count = 1, .form = LIO_KEY_LITERAL, .stem = (uint32_t)size};
    memcpy(run->text, key, size);
}

static void add_key(lio_keys *keys, const uint8_t *key, size_t size)
{
    if (keys->count > 0 && goes_on(keys, key, size))
        return;
    keys->hopeless = size == 0 || size > LIO_KEY_BYTES_MAX || keys->count == LIO_KEY_RUNS_MAX ||
                     !may_end(keys);
    if (!keys->hopeless)
        add_literal(keys, key, size);
}

int lio_keys_add(lio_keys *keys, const lio_layout *layout, const uint8_t *pages,
                 const uint64_t *pgnos, uint32_t count, lio_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *page = pages + (size_t)i * layout->page_size;
        uint32_t nodes = lio_page_count(layout, page);
        for (uint32_t j = 0; j < nodes; j++) {
            lio_node node;
            int code = lio_page_node(layout, page, pgnos[i], j, &node, error);
            if (code != LIO_OK)
                return code;
            if (!keys->hopeless)
                add_key(keys, node.key, node.key_size);
            if (keys->longest == 0 || node.key_size < keys->shortest)
                keys->shortest = node.key_size;
            if (node.key_size > keys->longest)
                keys->longest = node.key_size;
        }
    }
    return LIO_OK;
}

bool lio_keys_may_count(const lio_keys *keys)
{
    return !keys->hopeless;
}

size_t lio_keys_end(lio_keys *keys, const lio_key_run **runs)
{
    uint64_t all = 0;
    for (size_t i = 0; i < keys->count; i++)
        all += keys->runs[i].count;
    /* Of a few keys each may be a run of its own, which is no pattern. */
    keys->hopeless = keys->hopeless || !may_end(keys) || all < 2 * (uint64_t)keys->count;
    *runs = keys->runs;
    return keys->hopeless ? 0 : keys->count;
}

/* --- as they were put ------------------------------------------------------------------- */

typedef struct {
    uint32_t db_flags;
    const uint8_t *keys;
    const uint64_t *ends;
} events;

static int compare(const events *all, uint64_t a, uint64_t b)
{
    uint64_t a_at = a > 0 ? all->ends[a - 1] : 0, b_at = b > 0 ? all->ends[b - 1] : 0;
    return lio_key_compare(all->db_flags, all->keys + a_at, (size_t)(all->ends[a] - a_at),
                           all->keys + b_at, (size_t)(all->ends[b] - b_at));
}

/* Merges two sorted neighbours; of equal keys the earlier event stays first. */
static void merge(const events *all, const uint64_t *from, size_t first, size_t middle, size_t end,
                  uint64_t *to)
{
    size_t left = first, right = middle;
    /* Keys were mostly put in order. */
    if (middle >= end || compare(all, from[middle - 1], from[middle]) <= 0) {
        memcpy(to + first, from + first, (end - first) * sizeof *to);
        return;
    }
    for (size_t i = first; i < end; i++) {
        bool of_left = right >= end ||
                       (left < middle && compare(all, from[left], from[right]) <= 0);
        to[i] = of_left ? from[left++] : from[right++];
    }
}

/* `*sorted` is one of the two, which are as long. */
static void sort(const events *all, uint64_t *one, uint64_t *other, size_t count,
                 uint64_t **sorted)
{
    for (size_t i = 0; i < count; i++)
        one[i] = i;
    for (size_t width = 1; width < count; width *= 2) {
        uint64_t *swapped = one;
        for (size_t first = 0; first < count; first += 2 * width) {
            size_t middle = first + width < count ? first + width : count;
            size_t end = middle + width < count ? middle + width : count;
            merge(all, one, first, middle, end, other);
        }
        one = other;
        other = swapped;
    }
    *sorted = one;
}

/* The events of one key, in the order in which they came. */
static void settle_key(const uint64_t *of, size_t count, const uint8_t *gone, uint64_t *kept,
                       size_t *kept_count, uint64_t *again)
{
    uint64_t put = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (gone[of[i]])
            put = UINT64_MAX;
        else if (put == UINT64_MAX)
            put = of[i];
        else if (*again == UINT64_MAX)
            *again = of[i];
    }
    if (put != UINT64_MAX)
        kept[(*kept_count)++] = put;
}

int lio_keys_settle(uint32_t db_flags, const uint8_t *keys, size_t keys_size, const uint64_t *ends,
                    const uint8_t *gone, size_t count, uint64_t *kept, size_t *kept_count,
                    uint64_t *again, lio_error *error)
{
    const events all = {db_flags, keys, ends};
    uint64_t *room, *sorted;
    *kept_count = 0;
    *again = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (ends[i] > keys_size || (i > 0 && ends[i] < ends[i - 1]))
            return lio_fail(error, LIO_ERR_ARGUMENT, i, keys_size, ends[i],
                            "a key ends where it cannot");
    room = count <= SIZE_MAX / 2 / sizeof *room ? malloc((2 * count + 1) * sizeof *room) : NULL;
    if (room == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory to sort keys");
    sort(&all, room, room + count, count, &sorted);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count; next++)
            if (compare(&all, sorted[first], sorted[next]) != 0)
                break;
        settle_key(sorted + first, next - first, gone, kept, kept_count, again);
    }
    free(room);
    return LIO_OK;
}
