/* datum: Caffe's Datum, a message of protocol buffers that holds an image and its label. Pure.
 *
 *   tag | value | tag | value | ...      a tag is a varint: number of the field << 3 | kind
 *
 *   1 channels, 2 height, 3 width   varint           5 label      varint
 *   4 data                          length, bytes    7 encoded    varint
 *   6 float_data                    4 bytes each, one by one, or length and all of them
 *
 * As readers of protocol buffers do, the last value of a field counts, and fields of other numbers are
 * passed over. A field of these numbers that is of another kind is an error: it is no Datum.
 *
 * Source: caffe.proto, and the wire format of protocol buffers.
 */
#ifndef LIO_DATUM_H
#define LIO_DATUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t channels, height, width, label;
    uint64_t data,
        data_bytes;    /* of the pixels, or of an encoded image, from the value's first byte */
    uint64_t floats;   /* how many numbers float_data has */
    uint32_t is_whole; /* 0: it is no Datum, or one that is cut; nothing else is said then */
    uint32_t is_encoded;
} lio_datum;

/* Parses `count` values, which begin at memory + offsets[i]. Returns how many are whole. */
size_t lio_datums_parse(const uint8_t *memory, const uint64_t *offsets, const uint64_t *lengths,
                        size_t count, lio_datum *out);

/* Copies float_data of values that are whole, `each` numbers of each, one value after another. Returns
 * how many values, from the first on, have so many. */
size_t lio_datums_floats(const uint8_t *memory, const uint64_t *offsets, const uint64_t *lengths,
                         size_t count, uint64_t each, float *out);

#endif
