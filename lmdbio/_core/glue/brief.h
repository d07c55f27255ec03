/* glue_brief: calls that keep Python's lock.
 *
 * A thread that lets go of the lock beside one that computes in Python gets it back 5 ms later: a
 * root that let go of it thirty times a block would read a few MB a second. So calls that take
 * microseconds, and wait for no thread that may want the lock itself, keep it. Where a call takes the
 * longer the more it is given, lmdbio/_core/brief.py keeps the lock for small ones alone.
 */

/* cdef: skip */
#ifndef LIO_GLUE_BRIEF_H
#define LIO_GLUE_BRIEF_H
#include <string.h>

static const char *const lio_brief[] = {
    "lio_arrival_answers",     "lio_cell_arrival_drop",  "lio_arrival_give_up",
    "lio_arrival_wait",        "lio_cell_buffer_open",   "lio_copier_start",
    "lio_cell_copying_close",  "lio_copying_wait",       "lio_engine_alignment",
    "lio_engine_keeps_state",  "lio_remote_is_given_up", "lio_engine_submit",
    "lio_exchange_ask",        "lio_exchange_counts",    "lio_exchange_peers",
    "lio_exchange_signs",      "lio_exchange_reads_on",  "lio_exchange_serve",
    "lio_exchange_skip",       "lio_extents_take",       "lio_glue_untrack",
    "lio_extents_find",        "lio_values_of_memory",   "lio_values_of_file",
    "lio_values_left",         "lio_meta_mark",          "lio_meta_txnid",
    "lio_places_count",        "lio_cell_plan_free",     "lio_plan_get_totals",
    "lio_plan_make",           "lio_plan_requests",      "lio_plan_slices",
    "lio_rows_lay_out",        "lio_rows_room",          "lio_rows_write_table",
    "lio_cell_shipment_close", "lio_shipment_expire",    "lio_shipment_left",
    "lio_sources_block",       "lio_sources_slice",      "lio_sources_uses",
    "lio_sources_records",     "lio_sources_at_home",    "lio_sources_home_uses",
    "lio_sources_teams",       "lio_sources_owners",     "lio_extents_place",
    "lio_extents_beyond",      "lio_checksum_compare",   "lio_ticket_left",
    "lio_ticket_wait",         "lio_ticket_times",       "lio_window_aborted",
    "lio_window_is_released",  "lio_window_publish",
};

/* Of a function that cffi has made for one of C's, by the name that the compiler gives it. */
static int lio_is_brief(const char *made)
{
    static const char prefix[] = "_cffi_f_";
    if (strncmp(made, prefix, sizeof prefix - 1) != 0)
        return 0;
    for (size_t i = 0; i < sizeof lio_brief / sizeof lio_brief[0]; i++)
        if (strcmp(made + sizeof prefix - 1, lio_brief[i]) == 0)
            return 1;
    return 0;
}

/* The functions that cffi makes let go of the lock by these. */
#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS                                                                    \
    {                                                                                             \
        static signed char lio_holds_lock = -1;                                                   \
        PyThreadState *lio_let_go;                                                                \
        if (lio_holds_lock < 0)                                                                   \
            lio_holds_lock = (signed char)lio_is_brief(__func__);                                 \
        lio_let_go = lio_holds_lock ? NULL : PyEval_SaveThread();
#define Py_END_ALLOW_THREADS                                                                      \
    if (lio_let_go != NULL)                                                                       \
        PyEval_RestoreThread(lio_let_go);                                                         \
    }
#endif
/* cdef: resume */
