#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int lio_fail(lio_error *error, int code, uint64_t offset, uint64_t wanted, uint64_t got,
             const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->code = code;
        error->sys_errno = 0;
        error->offset = offset;
        error->wanted = wanted;
        error->got = got;
        va_start(arguments, format);
        (void)vsnprintf(error->reason, sizeof error->reason, format, arguments);
        va_end(arguments);
    }
    return code;
}

int lio_fail_errno(lio_error *error, int sys_errno, uint64_t offset, uint64_t wanted,
                   const char *what)
{
    (void)lio_fail(error, LIO_ERR_IO, offset, wanted, 0, "%s", what);
    if (error != NULL)
        error->sys_errno = sys_errno;
    return LIO_ERR_IO;
}
