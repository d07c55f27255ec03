/* fuzz: mutates small LMDB files and sidecar blocks and makes every parser eat them.
 *
 *   fuzz SEED COUNT FILE...
 *
 * Each file is a database (*.mdb) or a raw sidecar block (*.block, whose first 13 bytes say
 * form u8, records u32, data format u32 and page size u32). Built with AddressSanitizer and
 * UndefinedBehaviorSanitizer, a bad access ends the run; so does a mutation that takes longer
 * than ten seconds (a hang) or asks for more memory than its file justifies (ASAN_OPTIONS set
 * by run.py). The number of the mutation and the random seed are printed then.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lmdbio.h"

enum { SECONDS_MAX = 10, RECORDS_MAX = 1 << 16, VALUES_MAX = 1 << 24 };

static uint64_t state;
static volatile uint64_t current;
static const char *volatile current_file;

static uint64_t next_random(void)
{
    /* splitmix64: any seed will do, also 0 */
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(size_t limit)
{
    return limit == 0 ? 0 : (size_t)(next_random() % limit);
}

static void too_long(int number)
{
    char text[160];
    int length = snprintf(text, sizeof text, "HANG: mutation %" PRIu64 " of %s\n", current,
                          current_file);
    (void)number;
    if (length > 0 && write(2, text, (size_t)length) < 0)
        _exit(98);
    _exit(99);
}

/* --- mutation ------------------------------------------------------------------------ */

static void put(uint8_t *at, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t interesting(void)
{
    static const uint64_t values[] = {0,      1,      2,      3,          7,          15,
                                      16,     23,     24,     25,         4095,       4096,
                                      4097,   0x7fff, 0x8000, 0xfffe,     0xffff,     0x10000,
                                      1 << 20, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff,
                                      UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000),
                                      UINT64_MAX - 1, UINT64_MAX};
    size_t count = sizeof values / sizeof values[0];
    size_t pick = below(count + 2);
    return pick < count ? values[pick] : pick == count ? below(64) : next_random();
}

/* Places that decide: meta fields, page headers, node tables, and anything at all. */
static size_t choose_place(size_t size, size_t page_size)
{
    size_t pages = size / page_size > 0 ? size / page_size : 1;
    size_t page = below(pages) * page_size;
    switch (below(5)) {
    case 0:
        return below(2) * page_size + below(168);
    case 1:
        return page + below(32);
    case 2:
        return page + 16 + below(64);
    case 3:
        return page + page_size - 1 - below(page_size / 4);
    default:
        return below(size);
    }
}

/* A field of one node: sizes, flags, and the page number in its data. Random places seldom
 * hit these, and they are what a parser must not believe. */
static void mutate_node(uint8_t *bytes, size_t size, size_t page_size)
{
    size_t header = lio_load32(bytes + 24) == 0xBEEFC0DEu ? 24 : 16;
    for (int tries = 0; tries < 20; tries++) {
        uint8_t *page = bytes + below(size / page_size) * page_size;
        uint32_t flags = lio_load16(page + header - 6), base = header == 24 ? 24 : 0;
        size_t count = (lio_load16(page + header - 4) + base - header) / 2, at, key;
        if ((flags & (LIO_P_BRANCH | LIO_P_LEAF)) == 0 || count == 0 || count > page_size / 10)
            continue;
        at = lio_load16(page + header + 2 * below(count)) + base;
        if (at > page_size - 24)
            continue;
        key = lio_load16(page + at + 6);
        if (below(3) == 0 && at + 8 + key + 24 <= page_size)
            put(page + at + 8 + key + 8 * below(3), interesting(), 8);
        else
            put(page + at + 2 * below(4), interesting(), 2);
        return;
    }
}

static size_t mutate(uint8_t *bytes, size_t size, size_t page_size)
{
    size_t times = 1 + below(below(4) == 0 ? 24 : 3);
    if (below(12) == 0)
        size = below(3) == 0 ? below(size + 1) : size - below(page_size < size ? page_size : size);
    for (size_t i = 0; i < times && size > 8; i++) {
        size_t at = choose_place(size, page_size < size ? page_size : size);
        size_t width = (size_t)1 << below(4);
        at = at < size - 8 ? at : size - 8 - below(8 < size - 8 ? 8 : 1);
        switch (page_size == 4096 && size >= 3 * page_size ? below(8) : below(4)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            put(bytes + at, interesting(), width);
            break;
        case 2: { /* one page, or part of it, over another */
            size_t from = below(size - 8), length = 8 + below(below(2) ? page_size : 24);
            size_t room = size - (at > from ? at : from);
            memmove(bytes + at, bytes + from, length < room ? length : room);
            break;
        }
        case 3: /* a small step: off by one, off by a page */
            put(bytes + at, lio_load16(bytes + at) + (below(2) ? 1u : 0xffffu), 2);
            break;
        default:
            mutate_node(bytes, size, page_size);
        }
    }
    return size;
}

/* --- eating -------------------------------------------------------------------------- */

static void read_values(lio_engine *engine, const lio_extent *extents, size_t count)
{
    lio_plan_options options = {below(3) * 4096, (1 + below(4)) * 4096, (size_t)1 << below(13)};
    lio_plan_totals totals;
    lio_plan *plan;
    lio_error error;
    uint8_t *buffer = NULL;
    lio_read *reads = NULL;
    if (options.alignment > 4096 || options.request_bytes_max % options.alignment != 0)
        options.alignment = 4096;
    if (lio_plan_make(extents, count, &options, &plan, &error) != LIO_OK)
        return;
    lio_plan_get_totals(plan, &totals);
    if (totals.buffer_bytes > 0 && totals.buffer_bytes <= VALUES_MAX) {
        buffer = malloc(totals.buffer_bytes);
        reads = calloc(totals.requests, sizeof *reads);
        for (uint64_t i = 0; i < totals.requests; i++) {
            const lio_request *request = &lio_plan_requests(plan)[i];
            reads[i] = (lio_read){request->offset, request->length, request->needed,
                                  buffer + request->buffer_offset};
        }
        if (lio_engine_read(engine, reads, totals.requests, &error) == LIO_OK)
            for (size_t i = 0; i < count; i++) /* every slice must be ours to read */
                for (uint64_t j = 0; j < extents[i].length; j += 61)
                    current += buffer[lio_plan_slices(plan)[i] + j] & 0;
    }
    free(reads);
    free(buffer);
    lio_plan_free(plan);
}

static void walk_database(lio_engine *engine, const lio_meta *meta, const lio_db *db, int named)
{
    lio_walk *walk;
    lio_chunk chunk;
    lio_error error;
    if (lio_walk_open(engine, meta, db, 1, NULL, (uint32_t)below(9), &walk, &error) != LIO_OK)
        return;
    while (lio_walk_next(walk, -1, &chunk, &error) == LIO_OK && chunk.count > 0) {
        size_t entries, made = 0;
        lio_extent *extents;
        uint32_t page = 0, index = 0;
        lio_node node;
        lio_db inner;
        if (chunk.height > 0)
            continue;
        entries = lio_leaves_entries(&meta->layout, chunk.pages, chunk.count);
        extents = calloc(entries + 1, sizeof *extents);
        if (lio_leaves_extents(&meta->layout, chunk.pages, chunk.pgnos, chunk.count, extents, NULL,
                               entries, &made, &error) == LIO_OK &&
            made > 0)
            read_values(engine, extents, made < RECORDS_MAX ? made : RECORDS_MAX);
        free(extents);
        for (int found = 0; named && found < 8; found++) {
            if (lio_leaves_database(&meta->layout, chunk.pages, chunk.pgnos, chunk.count, &page,
                                    &index, &node, &inner, &error) != LIO_OK)
                break;
            walk_database(engine, meta, &inner, 0);
        }
    }
    lio_walk_close(walk);
}

static void touch(lio_pages *pages, const lio_item *item)
{
    uint8_t value[64];
    lio_error error;
    for (uint64_t j = 0; j < item->key_size; j++)
        current += item->key[j] & 0;
    for (uint64_t j = 0; item->data != NULL && j < item->data_size; j++)
        current += item->data[j] & 0;
    if (item->data == NULL && item->where.length <= sizeof value)
        (void)lio_value_read(pages, &item->where, value, &error);
}

static void move_cursor(lio_engine *engine, const lio_meta *meta, const lio_db *db)
{
    lio_pages *pages;
    lio_cursor *cursor;
    lio_error error;
    uint64_t count;
    if (lio_pages_open(engine, &meta->layout, 1 << 16, &pages, &error) != LIO_OK)
        return;
    if (lio_cursor_open(pages, db, &cursor, &error) == LIO_OK) {
        for (int i = 0; i < 40; i++) {
            uint8_t key[16], data[16];
            put(key, next_random(), 8);
            put(key + 8, below(3) ? 0x3030303030303030 : next_random(), 8);
            put(data, next_random(), 8);
            put(data + 8, next_random(), 8);
            if (lio_cursor_move(cursor, i == 0 ? (uint32_t)LIO_MOVE_FIRST
                                               : (uint32_t)below(LIO_MOVE_BOTH_RANGE + 1),
                                key, below(17), data, below(17), &error) != LIO_OK)
                continue;
            touch(pages, lio_cursor_item(cursor));
            (void)lio_cursor_count(cursor, &count, &error);
        }
        lio_cursor_read_ahead(cursor, 4, NULL);
        for (int i = 0; i < 300; i++) {
            if (lio_cursor_move(cursor, i == 0 ? LIO_MOVE_FIRST : LIO_MOVE_NEXT, NULL, 0, NULL, 0,
                                &error) != LIO_OK)
                break;
            touch(pages, lio_cursor_item(cursor));
        }
        lio_cursor_close(cursor);
    }
    lio_pages_close(pages);
}

typedef struct {
    const uint8_t *bytes;
    uint64_t size;
} content;

static int read_content(void *handle, const lio_remote_call *call, uint64_t offset,
                        uint64_t length, uint8_t *into, uint64_t *requests, lio_error *error)
{
    const content *from = handle;
    (void)call;
    if (!lio_fits(offset, length, from->size))
        return lio_fail(error, LIO_ERR_SHORT, offset, length, 0, "beyond the file");
    memcpy(into, from->bytes + offset, length);
    *requests = 1;
    return LIO_OK;
}

/* Whether the main database names another one "named". */
static bool find_named(lio_engine *engine, const lio_meta *meta, lio_db *out)
{
    lio_pages *pages;
    lio_cursor *cursor;
    const lio_item *item;
    lio_error error;
    bool found = false;
    if (lio_pages_open(engine, &meta->layout, 0, &pages, &error) != LIO_OK)
        return false;
    if (lio_cursor_open(pages, &meta->main_db, &cursor, &error) == LIO_OK) {
        (void)lio_cursor_move(cursor, LIO_MOVE_SET, (const uint8_t *)"named", 5, NULL, 0, &error);
        item = lio_cursor_item(cursor);
        found = item != NULL && item->node_flags == LIO_N_SUBDATA &&
                lio_db_parse(&meta->layout, item->data, item->data_size, 0, out, &error) == LIO_OK;
        lio_cursor_close(cursor);
    }
    lio_pages_close(pages);
    return found;
}

static void eat_database(const uint8_t *bytes, size_t size)
{
    content file = {bytes, size};
    lio_remote *remote;
    lio_engine *engine;
    lio_error error;
    lio_meta meta;
    lio_db named;
    if (lio_remote_open(read_content, &file, size, false, &remote, &error) != LIO_OK)
        return;
    if (lio_engine_open_remote(remote, 2, &engine, &error) != LIO_OK) {
        lio_remote_close(remote);
        return;
    }
    if (lio_meta_read(engine, UINT64_MAX, &meta, &error) == LIO_OK) {
        walk_database(engine, &meta, &meta.main_db, 1);
        walk_database(engine, &meta, &meta.free_db, 0);
        move_cursor(engine, &meta, &meta.main_db);
        if (find_named(engine, &meta, &named)) {
            walk_database(engine, &meta, &named, 0);
            move_cursor(engine, &meta, &named);
        }
    }
    lio_engine_close(engine);
    lio_remote_close(remote);
}

static void eat_block(const uint8_t *bytes, size_t size)
{
    lio_layout layout = {0};
    lio_extent *extents;
    lio_error error;
    uint32_t records;
    uint8_t *raw;
    if (size < 13)
        return;
    records = lio_load32(bytes + 1) % (LIO_BLOCK_RECORDS_MAX + 1);
    layout.version = LIO_FORMAT_V1;
    layout.header_size = lio_load32(bytes + 5) == LIO_FORMAT_V3 ? 24 : 16;
    layout.page_size = 4096;
    layout.page_limit = 1 + next_random() % (1u << 20);
    raw = malloc(size - 13 + 1); /* exact, so that reading past the end is seen */
    extents = malloc((records + 1) * sizeof *extents);
    memcpy(raw, bytes + 13, size - 13);
    if (records > 0 && lio_block_decode(&layout, bytes[0], raw, size - 13, records, extents,
                                        &error) == LIO_OK)
        for (uint32_t i = 0; i < records; i++)
            if (!lio_fits(extents[i].offset, extents[i].length,
                          layout.page_limit * layout.page_size))
                abort();
    free(extents);
    free(raw);
}

/* --- files --------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    uint8_t *bytes;
    size_t size;
    int block;
} seed_file;

static seed_file load(const char *name)
{
    seed_file file = {.name = name};
    FILE *stream = fopen(name, "rb");
    long size;
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0 || (size = ftell(stream)) < 16) {
        fprintf(stderr, "fuzz: cannot read %s\n", name);
        exit(2);
    }
    rewind(stream);
    file.size = (size_t)size;
    file.bytes = malloc(file.size);
    if (file.bytes == NULL || fread(file.bytes, 1, file.size, stream) != file.size)
        exit(2);
    (void)fclose(stream);
    file.block = strlen(name) > 6 && strcmp(name + strlen(name) - 6, ".block") == 0;
    return file;
}

int main(int count, char **arguments)
{
    uint64_t seed, mutations, unharmed = 0;
    size_t files = count > 3 ? (size_t)count - 3 : 0;
    seed_file *seeds = calloc(files + 1, sizeof *seeds);
    if (files == 0 || seeds == NULL) {
        fprintf(stderr, "usage: fuzz SEED COUNT FILE...\n");
        return 2;
    }
    seed = strtoull(arguments[1], NULL, 10);
    mutations = strtoull(arguments[2], NULL, 10);
    for (size_t i = 0; i < files; i++)
        seeds[i] = load(arguments[i + 3]);
    (void)signal(SIGALRM, too_long);
    for (uint64_t i = 0; i < mutations + files; i++) {
        /* First every file as it is: a harness that refuses all would prove nothing. */
        const seed_file *file = &seeds[i < files ? i : i % files];
        uint8_t *bytes = malloc(file->size);
        size_t size = file->size;
        state = seed * UINT64_C(1000003) + i;
        current = i;
        current_file = file->name;
        memcpy(bytes, file->bytes, size);
        if (i >= files)
            size = mutate(bytes, size, file->block ? 64 : 4096);
        (void)alarm(SECONDS_MAX);
        if (file->block)
            eat_block(bytes, size);
        else
            eat_database(bytes, size);
        (void)alarm(0);
        unharmed++;
        free(bytes);
    }
    for (size_t i = 0; i < files; i++)
        free(seeds[i].bytes);
    free(seeds);
    printf("fuzz: %" PRIu64 " mutations of %zu files, seed %" PRIu64 ": no fault\n", mutations,
           files, seed);
    return unharmed == mutations + files ? 0 : 1;
}
