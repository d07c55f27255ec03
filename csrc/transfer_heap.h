/* transfer_heap: which of many actors comes next. Private to transfer.
 *
 * Each actor stands in one heap at most, so that all heaps share one table of places. Of equal keys
 * the lower actor comes first: what follows is the same in each run.
 */
#ifndef LIO_TRANSFER_HEAP_H
#define LIO_TRANSFER_HEAP_H

#include <stdint.h>

typedef struct {
    double key;
    uint32_t actor;
} lio_heap_item;

typedef struct {
    lio_heap_item *items; /* room for all actors; each has four below it */
    uint32_t count;
    uint32_t *places; /* by actor: where it stands in its heap */
} lio_heap;

void lio_heap_put(lio_heap *heap, uint32_t actor, double key);
void lio_heap_move(lio_heap *heap, uint32_t actor, double key);
void lio_heap_remove(lio_heap *heap, uint32_t actor);

#endif
