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

__attribute__((target("sse4.2"))) static uint32_t by_processor(uint32_t crc, const uint8_t *bytes,
                                                               size_t size)
{
    uint64_t wide = crc, word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; bytes++, size--)
        crc = _mm_crc32_u8(crc, *bytes);
    return crc;
}

__attribute__((target("sse4.2"))) static void lanes_by_processor(uint32_t crcs[LANES],
                                                                 const uint8_t *pages)
{
    uint64_t wide[LANES], word;
    for (size_t lane = 0; lane < LANES; lane++)
        wide[lane] = crcs[lane];
    for (size_t at = 0; at < PAGE; at += sizeof word)
        for (size_t lane = 0; lane < LANES; lane++) {
            memcpy(&word, pages + lane * PAGE + at, sizeof word);
            wide[lane] = _mm_crc32_u64(wide[lane], word);
        }
    for (size_t lane = 0; lane < LANES; lane++)
        crcs[lane] = (uint32_t)wide[lane];
}

static bool processor_can(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

static uint32_t by_processor(uint32_t crc, const uint8_t *bytes, size_t size)
{
    uint64_t word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        crc = __crc32cd(crc, word);
    }
    for (; size > 0; bytes++, size--)
        crc = __crc32cb(crc, *bytes);
    return crc;
}

static void lanes_by_processor(uint32_t crcs[LANES], const uint8_t *pages)
{
    uint64_t word;
    for (size_t at = 0; at < PAGE; at += sizeof word)
        for (size_t lane = 0; lane < LANES; lane++) {
            memcpy(&word, pages + lane * PAGE + at, sizeof word);
            crcs[lane] = __crc32cd(crcs[lane], word);
        }
}

static bool processor_can(void)
{
    return true;
}

#else

static uint32_t by_processor(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return by_tables(crc, bytes, size);
}

static void lanes_by_processor(uint32_t crcs[LANES], const uint8_t *pages)
{
    for (size_t lane = 0; lane < LANES; lane++)
        crcs[lane] = by_tables(crcs[lane], pages + lane * PAGE, PAGE);
}

static bool processor_can(void)
{
    return false;
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
        lanes_by_processor(crcs, memory + i * PAGE);
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
