/* status: the one error type of the C core.
 *
 * A fallible function returns an enum lio_code and takes a lio_error pointer
 * last. On failure it fills the error and leaves its outputs untouched; on
 * success it leaves the error untouched. The caller owns the lio_error.
 * The caller that opened the file adds its name.
 */
#ifndef LIO_STATUS_H
#define LIO_STATUS_H

#include <stdint.h>

enum lio_code {
    LIO_OK = 0,
    LIO_PENDING = 1,     /* not an error: the wait timed out, ask again          */
    LIO_NOTFOUND = 2,    /* not an error: no such key, or no such position       */
    LIO_ERR_IO = 3,      /* the operating system refused: see sys_errno          */
    LIO_ERR_SHORT = 4,   /* the file ends inside an extent: see offset/wanted/got */
    LIO_ERR_INVALID = 5, /* the file is not an LMDB database                     */
    LIO_ERR_VERSION = 6, /* an LMDB file of a kind that is not read here         */
    LIO_ERR_CORRUPT = 7, /* a page, node or count contradicts the format         */
    LIO_ERR_SIDECAR = 8, /* the provenance file is damaged                       */
    LIO_ERR_NOMEM = 9,
    LIO_ERR_ARGUMENT = 10,    /* the caller's mistake                               */
    LIO_ERR_UNSUPPORTED = 11, /* valid LMDB, but not for this operation           */
    LIO_ERR_CHANGED = 12,     /* the file is not in the state that is read any more */
    LIO_ERR_RAISED = 13 /* a function that was handed in failed: `got` says which of its errors */
};

typedef struct {
    int32_t code;      /* enum lio_code                                       */
    int32_t sys_errno; /* errno of the failing call, 0 when none              */
    uint64_t offset;   /* byte offset in the file the error is about          */
    uint64_t wanted;   /* bytes (or the value) expected there                 */
    uint64_t got;      /* bytes (or the value) found there                    */
    char reason[192];  /* one sentence without a full stop, always terminated */
} lio_error;

/* cdef: skip */
#if defined(__GNUC__)
#define LIO_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define LIO_PRINTF(format_at, args_at)
#endif

/* Fills `error` (which may be NULL) and returns `code`, so that a check is one line:
 * `return lio_fail(error, LIO_ERR_CORRUPT, offset, wanted, got, "page %" PRIu64 " ...", pgno);` */
int lio_fail(lio_error *error, int code, uint64_t offset, uint64_t wanted, uint64_t got,
             const char *format, ...) LIO_PRINTF(6, 7);

/* The same for a failed system call; `sys_errno` is kept beside the reason. */
int lio_fail_errno(lio_error *error, int sys_errno, uint64_t offset, uint64_t wanted,
                   const char *what);
/* cdef: resume */

#endif
