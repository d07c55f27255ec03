#include "transfer_heap.h"

#include <stdbool.h>

#include "contract.h"

enum { BELOW = 4 };

static bool is_before(lio_heap_item a, lio_heap_item b)
{
    return a.key < b.key || (a.key <= b.key && a.actor < b.actor);
}

static void set(lio_heap *heap, uint32_t place, lio_heap_item item)
{
    LIO_ASSERT(place < heap->count);
    heap->items[place] = item;
    heap->places[item.actor] = place;
}

static void rise(lio_heap *heap, uint32_t place, lio_heap_item item)
{
    while (place > 0) {
        uint32_t above = (place - 1) / BELOW;
        if (!is_before(item, heap->items[above]))
            break;
        set(heap, place, heap->items[above]);
        place = above;
    }
    set(heap, place, item);
}

static void sink(lio_heap *heap, uint32_t place, lio_heap_item item)
{
    for (;;) {
        uint32_t first = place * BELOW + 1, least = first, end = first + BELOW;
        if (first >= heap->count)
            break;
        end = end < heap->count ? end : heap->count;
        for (uint32_t i = first + 1; i < end; i++)
            least = is_before(heap->items[i], heap->items[least]) ? i : least;
        if (!is_before(heap->items[least], item))
            break;
        set(heap, place, heap->items[least]);
        place = least;
    }
    set(heap, place, item);
}

/* Gives an item its place, from one where it may be wrong either way. */
static void settle(lio_heap *heap, uint32_t place, lio_heap_item item)
{
    if (place > 0 && is_before(item, heap->items[(place - 1) / BELOW]))
        rise(heap, place, item);
    else
        sink(heap, place, item);
}

void lio_heap_put(lio_heap *heap, uint32_t actor, double key)
{
    rise(heap, heap->count++, (lio_heap_item){key, actor});
}

/* Whether an actor stands in it. */
static bool has(const lio_heap *heap, uint32_t actor)
{
    uint32_t place = heap->places[actor];
    return place < heap->count && heap->items[place].actor == actor;
}

void lio_heap_move(lio_heap *heap, uint32_t actor, double key)
{
    LIO_ASSERT(has(heap, actor));
    settle(heap, heap->places[actor], (lio_heap_item){key, actor});
}

void lio_heap_remove(lio_heap *heap, uint32_t actor)
{
    uint32_t place = heap->places[actor];
    LIO_ASSERT(has(heap, actor));
    lio_heap_item last = heap->items[--heap->count];
    if (place < heap->count)
        settle(heap, place, last);
}
