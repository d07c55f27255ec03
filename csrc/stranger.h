/* stranger: what a file is that is no LMDB database, by its first bytes. Pure.
 *
 * Names what people hand over by mistake: a pointer that stands for a file, the page of a server that
 * refused, an archive that is yet to be unpacked, a file of another library.
 */
#ifndef LIO_STRANGER_H
#define LIO_STRANGER_H

#include <stdint.h>

/* cdef: skip */
/* Names a file by its first `length` bytes, and says what to do with it; NULL: nobody knows. */
const char *lio_stranger_name(const uint8_t *head, uint64_t length);
/* cdef: resume */

#endif
