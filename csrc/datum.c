#include "datum.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "extent.h"

enum { CHANNELS = 1, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED };
enum { VARINT = 0, EIGHT_BYTES = 1, COUNTED = 2, FOUR_BYTES = 5 };
enum { VARINT_BYTES_MAX = 10, FIELD_MAX = (1 << 29) - 1 };

static_assert(sizeof(float) == 4, "as float_data has it");

/* A message, and the field that was read last. */
typedef struct {
    const uint8_t *value;
    uint64_t at, length;
    uint32_t field, kind;
    uint64_t number;  /* of a varint */
    lio_extent bytes; /* of other kinds, in the message */
} message;

static bool read_varint(message *m, uint64_t *out)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX && m->at < m->length; i++) {
        uint8_t byte = m->value[m->at++];
        number |= (uint64_t)(byte & 127) << 7 * i; /* of the tenth, one bit has room */
        if (byte < 128) {
            *out = number;
            return true;
        }
    }
    return false;
}

/* False: the message is cut, or is none. */
static bool read_field(message *m)
{
    uint64_t tag, size;
    if (!read_varint(m, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
        return false;
    m->field = (uint32_t)(tag >> 3);
    m->kind = tag & 7;
    switch (m->kind) {
    case VARINT:
        return read_varint(m, &m->number);
    case EIGHT_BYTES:
        size = 8;
        break;
    case FOUR_BYTES:
        size = 4;
        break;
    case COUNTED:
        if (!read_varint(m, &size))
            return false;
        break;
    default: /* groups, which nobody writes any more, and nothing */
        return false;
    }
    if (!lio_fits(m->at, size, m->length))
        return false;
    m->bytes = (lio_extent){m->at, size};
    m->at += size;
    return true;
}

static bool is_of_its_kind(const message *m)
{
    switch (m->field) {
    case DATA:
        return m->kind == COUNTED;
    case FLOAT_DATA:
        return m->kind == FOUR_BYTES || (m->kind == COUNTED && m->bytes.length % 4 == 0);
    case CHANNELS:
    case HEIGHT:
    case WIDTH:
    case LABEL:
    case ENCODED:
        return m->kind == VARINT;
    default:
        return true;
    }
}

static void take(const message *m, lio_datum *out)
{
    int32_t number = (int32_t)(uint32_t)m->number; /* negative ones are written with 64 bits */
    switch (m->field) {
    case CHANNELS:
        out->channels = number;
        break;
    case HEIGHT:
        out->height = number;
        break;
    case WIDTH:
        out->width = number;
        break;
    case LABEL:
        out->label = number;
        break;
    case DATA:
        out->data = m->bytes.offset;
        out->data_bytes = m->bytes.length;
        break;
    case FLOAT_DATA:
        out->floats += m->bytes.length / 4;
        break;
    case ENCODED:
        out->is_encoded = m->number != 0;
        break;
    default:
        break;
    }
}

size_t lio_datums_parse(const uint8_t *memory, const uint64_t *offsets, const uint64_t *lengths,
                        size_t count, lio_datum *out)
{
    size_t whole = 0;
    for (size_t i = 0; i < count; i++) {
        message m = {.value = memory + offsets[i], .length = lengths[i]};
        lio_datum found = {.is_whole = m.length > 0};
        while (found.is_whole && m.at < m.length) {
            found.is_whole = read_field(&m) && is_of_its_kind(&m);
            if (found.is_whole)
                take(&m, &found);
        }
        out[i] = found.is_whole ? found : (lio_datum){0};
        whole += found.is_whole;
    }
    return whole;
}

size_t lio_datums_floats(const uint8_t *memory, const uint64_t *offsets, const uint64_t *lengths,
                         size_t count, uint64_t each, float *out)
{
    for (size_t i = 0; i < count; i++) {
        message m = {.value = memory + offsets[i], .length = lengths[i]};
        uint64_t found = 0;
        while (m.at < m.length && read_field(&m)) {
            uint64_t more = m.bytes.length / 4;
            if (m.field != FLOAT_DATA)
                continue;
            if (!is_of_its_kind(&m) || more > each - found)
                return i;
            memcpy(out + i * each + found, m.value + m.bytes.offset, (size_t)(more * 4));
            found += more;
        }
        if (found != each)
            return i;
    }
    return count;
}
