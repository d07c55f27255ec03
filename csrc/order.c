#include "order.h"

/* Each bit of the result depends on all of the value's: the finaliser of SplitMix64. */
static uint64_t mixed(uint64_t value)
{
    value ^= value >> 30;
    value *= UINT64_C(0xBF58476D1CE4E5B9);
    value ^= value >> 27;
    value *= UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

static uint64_t permuted(uint64_t number, uint64_t a, uint64_t b, const uint64_t *keys,
                         size_t rounds)
{
    uint64_t left = number % a, right = number / a;
    for (size_t i = 0; i < rounds; i++) {
        uint64_t modulus = i % 2 == 0 ? a : b;
        /* Reduced before they are added: the sum must not wrap. The two sides differ by little, so
         * to subtract is less than to divide; once, half of the time, for which no branch is to
         * be guessed; hardly ever more often. */
        uint64_t next = left + mixed(right + keys[i]) % modulus;
        next -= modulus & -(uint64_t)(next >= modulus);
        while (next >= modulus)
            next -= modulus;
        left = right;
        right = next;
    }
    return right * a + left;
}

void lio_order_permute(uint64_t *numbers, size_t count, uint64_t below, uint64_t left,
                       uint64_t right, const uint64_t *keys, size_t rounds)
{
    for (size_t i = 0; i < count; i++)
        do
            numbers[i] = permuted(numbers[i], left, right, keys, rounds);
        while (numbers[i] >= below);
}
