/* keys: how the keys of a database go on, found out from all of them.
 *
 *   leaves in key order -> runs of keys that count up by one -> key <-> index by arithmetic
 *
 * A run is a number that counts, between the same bytes: b"image-000000001", b"image-000000002",
 * ... A key that begins no run is one of its own. PLAIN numbers stand in the order of their
 * digits, as LMDB sorts them: 0, 1, 10, 100, 101, ..., 11, ...
 *
 * Pure. Every key is held against its run: what comes out is right for all of them, or nothing
 * does.
 */
#ifndef LIO_KEYS_H
#define LIO_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "status.h"

enum {
    LIO_KEY_BYTES_MAX = 511, /* that LMDB was made for, commonly */
    LIO_KEY_RUNS_MAX = 64    /* keys of more runs follow no pattern */
};

enum lio_key_form {
    LIO_KEY_LITERAL = 0, /* one key: the stem                                             */
    LIO_KEY_DECIMAL = 1, /* stem, `width` digits, tail                                    */
    LIO_KEY_PLAIN = 2,   /* stem, digits without leading zeros, tail; from 0 or 1 on      */
    LIO_KEY_BIG = 3,     /* stem, `width` bytes, the highest first                        */
    LIO_KEY_LITTLE = 4   /* `width` bytes, the lowest first, as integer keys are on x86   */
};

typedef struct {
    uint64_t first, count;               /* the smallest number; how many there are, 1 or more */
    uint32_t form;                       /* enum lio_key_form */
    uint32_t width;                      /* of the number, bytes; PLAIN, LITERAL: 0 */
    uint32_t stem, tail;                 /* bytes before and after the number */
    uint8_t text[LIO_KEY_BYTES_MAX + 1]; /* the stem, then the tail */
} lio_key_run;

typedef struct lio_keys lio_keys;

/* `db_flags` tell how keys are sorted. */
int lio_keys_open(uint32_t db_flags, lio_keys **out, lio_error *error);
void lio_keys_close(lio_keys *keys);

/* The keys of `count` checked leaf pages, which follow those before. */
int lio_keys_add(lio_keys *keys, const lio_layout *layout, const uint8_t *pages,
                 const uint64_t *pgnos, uint32_t count, lio_error *error);

/* Bytes of the shortest and of the longest key so far; 0 and 0: there was none. */
void lio_keys_sizes(const lio_keys *keys, uint32_t *shortest, uint32_t *longest);

/* Whether the keys so far may follow a pattern. */
bool lio_keys_may_count(const lio_keys *keys);

/* The runs of all keys that were added, in their order: lent until `keys` is closed. 0: there was no
 * key, or they follow no pattern. Nothing can be added afterwards. */
size_t lio_keys_end(lio_keys *keys, const lio_key_run **runs);

/* --- keys as they were put and deleted, brought into the order of their database --------------------
 *
 *   put b, put c, put a, delete c, put b  ->  a (the third), b (the first)
 */

/* Reduces `count` events to those that last, in key order: `kept` (room for `count`) gets the event in which
 * each of the `*kept_count` keys was put since it was last deleted. Event i is of the key that ends
 * at `ends[i]` of `keys`, and begins where the one before ends; `gone[i]` is 1 where it was deleted,
 * else 0. `*again`: the first event, in key order, that puts a key that is there; UINT64_MAX: none
 * does. LIO_ERR_ARGUMENT: an end is before its beginning, or past `keys_size`. */
int lio_keys_settle(uint32_t db_flags, const uint8_t *keys, size_t keys_size, const uint64_t *ends,
                    const uint8_t *gone, size_t count, uint64_t *kept, size_t *kept_count,
                    uint64_t *again, lio_error *error);

#endif
