#include "checksum.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#define REFLECTED_POLYNOMIAL 0x82f63b78u

enum { PAGE = LIO_CHECKSUM_PAGE_BYTES, SLICES = 8 };

/* A processor begins a step of a sum each cycle, and has its result three later: so many pages are summed
 * side by side. */
enum { LANES = 4 };

/* --- by tables, eight bytes at a time ---------------------------------------------------------- */

static uint32_t tables[SLICES][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ REFLECTED_POLYNOMIAL : crc >> 1;
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int slice = 1; slice < SLICES; slice++)
            tables[slice][i] = tables[slice - 1][i] >> 8 ^ tables[0][tables[slice - 1][i] & 255];
}

static uint32_t by_tables(uint32_t crc, const uint8_t *bytes, size_t size)
{
    pthread_once(&tables_once, make_tables);
    for (; size >= SLICES; bytes += SLICES, size -= SLICES) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                              (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][bytes[4]] ^ tables[2][bytes[5]] ^
              tables[1][bytes[6]] ^ tables[0][bytes[7]];
    }
    for (; size > 0; bytes++, size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes) & 255];
    return crc;
}

/* --- by the processor -------------------------------------------------------------------------- */

#if defined(__x86_64__)

#define BY_PROCESSOR __attribute__((target("sse4.2,crc32")))

static bool processor_can(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

BY_PROCESSOR static inline uint64_t step(uint64_t crc, const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return _mm_crc32_u64(crc, word);
}

BY_PROCESSOR static inline uint32_t step_byte(uint32_t crc, uint8_t byte)
{
    return _mm_crc32_u8(crc, byte);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

#define BY_PROCESSOR

static bool processor_can(void)
{
    return true;
}

static inline uint64_t step(uint64_t crc, const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return __crc32cd((uint32_t)crc, word);
}

static inline uint32_t step_byte(uint32_t crc, uint8_t byte)
{
    return __crc32cb(crc, byte);
}

#else

static bool processor_can(void)
{
    return false;
}

#endif

#ifdef BY_PROCESSOR

BY_PROCESSOR static uint32_t by_processor(uint32_t crc, const uint8_t *bytes, size_t size)
{
    uint64_t wide = crc;
    for (; size >= sizeof wide; bytes += sizeof wide, size -= sizeof wide)
        wide = step(wide, bytes);
    crc = (uint32_t)wide;
    for (; size > 0; bytes++, size--)
        crc = step_byte(crc, *bytes);
    return crc;
}

/* Each lane is a variable of its own: an array the compiler would store after each step. */
BY_PROCESSOR static void sum_lanes(uint32_t crcs[LANES], const uint8_t *pages)
{
    uint64_t a = crcs[0], b = crcs[1], c = crcs[2], d = crcs[3];
    for (const uint8_t *at = pages; at < pages + PAGE; at += sizeof a) {
        a = step(a, at);
        b = step(b, at + PAGE);
        c = step(c, at + 2 * PAGE);
        d = step(d, at + 3 * PAGE);
    }
    crcs[0] = (uint32_t)a, crcs[1] = (uint32_t)b, crcs[2] = (uint32_t)c, crcs[3] = (uint32_t)d;
}

#else

static uint32_t by_processor(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return by_tables(crc, bytes, size);
}

static void sum_lanes(uint32_t crcs[LANES], const uint8_t *pages)
{
    for (size_t lane = 0; lane < LANES; lane++)
        crcs[lane] = by_tables(crcs[lane], pages + lane * PAGE, PAGE);
}

#endif

uint32_t lio_crc32c(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = processor_can() ? by_processor(~crc, bytes, size) : by_tables(~crc, bytes, size);
    return ~crc;
}

uint32_t lio_crc32c_by_tables(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return ~by_tables(~crc, bytes, size);
}

/* --- pages ------------------------------------------------------------------------------------- */

/* Pages that are summed before their sums are compared. */
enum { SUMMED = 4 * LANES };

/* The sums of `count` pages from `first` on. */
typedef struct {
    uint32_t seed;
    const uint32_t *sums;
    uint64_t first, count;
} noted;

/* Pages that differ: the first `room` of them. */
typedef struct {
    uint64_t *pages;
    size_t count, room;
} differing;

/* The sum of what comes before a page. */
static uint32_t begin_page(uint32_t seed, uint64_t number)
{
    uint8_t begin[12];
    for (int i = 0; i < 4; i++)
        begin[i] = (uint8_t)(seed >> 8 * i);
    for (int i = 0; i < 8; i++)
        begin[4 + i] = (uint8_t)(number >> 8 * i);
    return lio_crc32c(0, begin, sizeof begin);
}

/* 0 stands for no sum. */
static uint32_t end_page(uint32_t sum)
{
    return sum == 0 ? 1 : sum;
}

void lio_checksum_pages(uint32_t seed, const uint8_t *memory, uint64_t first, size_t count,
                        uint32_t *sums)
{
    size_t i = 0;
    for (; processor_can() && count - i >= LANES; i += LANES) {
        uint32_t crcs[LANES];
        for (size_t lane = 0; lane < LANES; lane++)
            crcs[lane] = ~begin_page(seed, first + i + lane);
        sum_lanes(crcs, memory + i * PAGE);
        for (size_t lane = 0; lane < LANES; lane++)
            sums[i + lane] = end_page(~crcs[lane]);
    }
    for (; i < count; i++)
        sums[i] = end_page(lio_crc32c(begin_page(seed, first + i), memory + i * PAGE, PAGE));
}

/* Compares pages that lie one after another; adds those that differ to `found` ones. Returns whether one
 * does, and `*last`: whether the last one does. */
static bool compare_pages(const noted *sums, const uint8_t *memory, uint64_t page, uint64_t count,
                          differing *out, bool *last)
{
    bool any = false;
    for (uint64_t done = 0, step; done < count; done += step) {
        uint32_t now[SUMMED];
        step = count - done < SUMMED ? count - done : SUMMED;
        lio_checksum_pages(sums->seed, memory + done * PAGE, page + done, (size_t)step, now);
        for (uint64_t i = 0; i < step; i++) {
            uint64_t at = page + done + i - sums->first;
            *last = page + done + i < sums->first || at >= sums->count || sums->sums[at] != now[i];
            if (*last && out->count < out->room)
                out->pages[out->count] = page + done + i;
            out->count += *last;
            any |= *last;
        }
    }
    return any;
}

size_t lio_checksum_compare(uint32_t seed, const lio_extent *extents, const uint64_t *slices,
                            size_t extent_count, uint64_t base, const uint32_t *sums,
                            uint64_t first, uint64_t count, uint8_t *wrong, uint64_t *differ,
                            size_t room)
{
    const noted known = {seed, sums, first, count};
    differing out = {differ, 0, room};
    uint64_t looked_at = UINT64_MAX; /* page */
    bool differs = false;            /* that one */
    for (size_t i = 0; i < extent_count; i++) {
        uint64_t offset = extents[i].offset, length = extents[i].length;
        uint64_t begin = offset / PAGE;
        uint64_t end = begin + lio_round_up(offset % PAGE + length, PAGE) / PAGE;
        uint64_t address = base + slices[i] - offset % PAGE;
        wrong[i] = 0;
        if (length == 0)
            continue;
        if (begin == looked_at) {
            wrong[i] = differs;
            begin++;
            address += PAGE;
        }
        if (begin < end) {
            wrong[i] |= compare_pages(&known, (const uint8_t *)(uintptr_t)address, begin,
                                      end - begin, &out, &differs);
            looked_at = end - 1;
        }
    }
    return out.count;
}
