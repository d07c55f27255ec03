/* contract: asserts what a function relies on because another one promised it.
 *
 *   LIO_ASSERT(condition)   ends the process where the condition does not hold, and says where that is
 *
 * Of our own mistakes alone: what a file, a program or the system may do wrong is an error that is
 * returned. Active in builds that define LIO_ASSERTS, which those of tests/fuzz and tests/tsan do;
 * elsewhere the condition is compiled and never evaluated.
 */
#ifndef LIO_CONTRACT_H
#define LIO_CONTRACT_H

/* cdef: skip */
#ifdef LIO_ASSERTS
#include <stdio.h>
#include <stdlib.h>

_Noreturn static inline void lio_contract_broken(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: a promise is broken: %s\n", file, line, condition);
    abort();
}

#define LIO_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : lio_contract_broken(#condition, __FILE__, __LINE__))
#else
#define LIO_ASSERT(condition) ((void)(0 && (condition)))
#endif
/* cdef: resume */

#endif
