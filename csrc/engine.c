/* Opens, reads and closes. Requests in flight together are engine_queue.c's, what the page cache
 * holds is engine_pagecache.c's, and what is counted engine_stats.c's. */
#include "engine.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract.h"
#include "engine_buffered.h"
#include "engine_queue.h"
#include "storage.h"

/* --- opening and closing ------------------------------------------------------------- */

/* Closes `file` when it fails. */
static int engine_make(lio_file file, uint32_t depth, lio_engine **out, lio_error *error)
{
    lio_engine *engine = NULL;
    if (depth < 1 || depth > LIO_ENGINE_DEPTH_MAX) {
        lio_file_close(file);
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, LIO_ENGINE_DEPTH_MAX, depth,
                        "a depth of %" PRIu32 " requests; 1 to 256 can be in flight", depth);
    }
    engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        lio_file_close(file);
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *engine, 0, "no memory for an engine");
    }
    engine->file = file;
    engine->depth = depth;
    *out = engine;
    return LIO_OK;
}

int lio_engine_open(const char *path, const char *kind, uint32_t depth, lio_engine **out,
                    lio_error *error)
{
    static const lio_file_kind *const kinds[] = {
        &lio_file_pread, &lio_file_direct, &lio_file_staged, &lio_file_uring, &lio_file_mmap};
    int code;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        lio_file file = {.kind = kinds[i]};
        if (strcmp(kind, file.kind->name) != 0)
            continue;
        code = lio_open_file(path, &file.fd, error);
        if (code != LIO_OK)
            return code;
        code = file.kind->open(&file, error);
        if (code == LIO_OK)
            return engine_make(file, depth, out, error);
        (void)close(file.fd);
        return code;
    }
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                    "no engine \"%.40s\"; there are pread, direct, uring, staged and mmap", kind);
}

int lio_engine_open_joined(const char *names, const lio_part *parts, size_t count,
                           uint32_t open_max, uint32_t depth, lio_engine **out, lio_error *error)
{
    lio_file file;
    int code = lio_file_joined(names, parts, count, open_max, &file, error);
    return code != LIO_OK ? code : engine_make(file, depth, out, error);
}

int lio_engine_reopen(lio_engine *engine, uint32_t depth, lio_engine **out, lio_error *error)
{
    lio_file file = engine->file;
    char name[sizeof "/proc/self/fd/-2147483648"];
    if (file.kind->share != NULL) {
        file.source = file.kind->share(file.source);
        return engine_make(file, depth, out, error);
    }
    if (file.kind->open == NULL || lio_engine_fd(engine) < 0)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "a %s engine is opened once",
                        file.kind->name);
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", lio_engine_fd(engine));
    return lio_engine_open(name, file.kind->name, depth, out, error);
}

int lio_engine_open_remote(lio_remote *remote, uint32_t depth, lio_engine **out, lio_error *error)
{
    return engine_make(lio_file_remote(remote), depth, out, error);
}

void lio_engine_close(lio_engine *engine)
{
    if (engine == NULL)
        return;
    lio_queue_close(engine->queue);
    lio_file_close(engine->file);
    lio_trace_close(engine->trace);
    free(engine);
}

uint32_t lio_engine_alignment(const lio_engine *engine)
{
    return engine->file.kind->alignment;
}

int lio_engine_size(lio_engine *engine, uint64_t *size, lio_error *error)
{
    return lio_file_size(engine->file, size, error);
}

bool lio_engine_keeps_state(const lio_engine *engine)
{
    return engine->file.keeps_state;
}

int lio_engine_fd(const lio_engine *engine)
{
    return engine->file.fd;
}

bool lio_engine_seeks(const lio_engine *engine)
{
    int fd = lio_engine_fd(engine);
    return fd >= 0 && lio_storage_seeks(fd);
}

uint64_t lio_engine_device(const lio_engine *engine)
{
    const lio_storage *storage = engine->file.known != NULL ? &engine->file.known->storage : NULL;
    return storage != NULL ? (uint64_t)storage->device_major << 32 | storage->device_minor : 0;
}

void lio_engine_expect_random(lio_engine *engine)
{
    if (engine->file.kind->expect_random != NULL)
        engine->file.kind->expect_random(engine->file.source);
}

const uint8_t *lio_engine_map(const lio_engine *engine, uint64_t *size)
{
    *size = 0;
    return engine->file.kind->map != NULL ? engine->file.kind->map(engine->file.source, size)
                                          : NULL;
}

/* --- reading ---------------------------------------------------------------------------- */

static int check_reads(const lio_read *reads, size_t count, lio_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (reads[i].needed > reads[i].length || reads[i].length > INT64_MAX ||
            reads[i].offset > INT64_MAX - reads[i].length)
            return lio_fail(error, LIO_ERR_ARGUMENT, reads[i].offset, reads[i].length,
                            reads[i].needed, "a read of impossible size or place");
        if (reads[i].into == NULL && reads[i].length > 0)
            return lio_fail(error, LIO_ERR_ARGUMENT, reads[i].offset, reads[i].length, 0,
                            "a read without memory to fill");
    }
    return LIO_OK;
}

static uint64_t bytes_of(const lio_read *reads, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += reads[i].length;
    return bytes;
}

int lio_engine_submit(lio_engine *engine, const lio_read *reads, size_t count, lio_ticket **out,
                      lio_error *error)
{
    lio_ticket *ticket;
    lio_queue *queue;
    uint64_t begun_ns = lio_engine_traced_ns(engine);
    bool by_call = false;
    int code = check_reads(reads, count, error);
    if (code == LIO_OK)
        code = lio_queue_of(engine, &queue, error);
    if (code == LIO_OK)
        code = lio_ticket_make(queue, count, &ticket, error);
    if (code != LIO_OK)
        return code;
    for (size_t i = 0; i < count; i++) {
        lio_cached found = lio_pagecache_serve(engine, &reads[i]);
        by_call = by_call || found == LIO_CACHED_BY_CALL;
        if (found >= LIO_CACHED_BY_CALL)
            continue;
        LIO_ASSERT(ticket->count < count);
        ticket->reads[ticket->count++] = reads[i];
        ticket->hands += found == LIO_CACHED_NOT;
    }
    if (by_call &&
        lio_file_check_size(engine->file, reads, count, NULL) != LIO_OK) { /* all of it again */
        memcpy(ticket->reads, reads, count * sizeof *reads);
        ticket->hands = ticket->count = count;
    }
    /* A read that the kernel has begun already only needs to be copied as it arrives. */
    if (ticket->hands == 0)
        ticket->hands = 1;
    if (ticket->count < count && begun_ns != 0) /* all that was served at once is one span */
        lio_engine_note_since(
            engine, begun_ns,
            (lio_span){.kind = LIO_SPAN_CACHED,
                       .amount = bytes_of(reads, count) - bytes_of(ticket->reads, ticket->count),
                       .count = (uint32_t)(count - ticket->count)});
    lio_ticket_start(ticket);
    *out = ticket;
    return LIO_OK;
}

int lio_engine_read(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error)
{
    lio_ticket *ticket;
    int code;
    if (count == 0)
        return LIO_OK;
    if (count == 1) { /* nothing to overlap with: spare two thread switches */
        code = check_reads(reads, count, error);
        if (code == LIO_OK)
            code = lio_engine_perform(engine, reads, 0, error);
        return code != LIO_OK ? code : lio_file_check_size(engine->file, reads, 1, error);
    }
    code = lio_engine_submit(engine, reads, count, &ticket, error);
    if (code != LIO_OK)
        return code;
    code = lio_ticket_wait(ticket, -1, error);
    lio_ticket_free(ticket);
    return code;
}

int lio_engine_scatter(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error)
{
    const lio_file_kind *kind = engine->file.kind;
    uint64_t received = 0, calls = 0, begun_ns;
    int code = check_reads(reads, count, error);
    LIO_ASSERT(count > 0 && count <= LIO_SCATTER_MAX);
    for (size_t i = 0; kind->scatter == NULL && i < count && code == LIO_OK; i++)
        code = lio_engine_perform(engine, &reads[i], 0, error);
    if (code != LIO_OK || kind->scatter == NULL)
        return code != LIO_OK ? code : lio_file_check_size(engine->file, reads, count, error);
    begun_ns = lio_engine_traced_ns(engine);
    code = kind->scatter(engine->file.source, reads, count, &received, &calls, error);
    if (code == LIO_OK)
        code = lio_file_check_size(engine->file, reads, count, error);
    lio_engine_add(engine, calls, received);
    lio_engine_note_since(engine, begun_ns,
                          (lio_span){.kind = LIO_SPAN_REQUEST,
                                     .offset = reads[0].offset,
                                     .amount = received,
                                     .count = (uint32_t)calls,
                                     .depth = 1,
                                     .failed = (uint32_t)code});
    return code;
}
