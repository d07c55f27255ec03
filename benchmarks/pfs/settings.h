/* settings: the constants, and what else is given on the command line as NAME=VALUE.
 *
 * There are no defaults here: model.conf has them, and whoever starts the program passes all.
 */
#ifndef PFS_SETTINGS_H
#define PFS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

enum { PFS_MOUNTS_MAX = 16, PFS_SERVERS_MAX = 32 };

typedef struct {
    pfs_constants constants; /* `mounts` is the caller's to fill */
    uint32_t readahead_bytes, in_flight;
    bool pin; /* the folder is to be held in memory */
} pfs_settings;

/* Reads `count` texts. False, with a sentence on stderr, if one is wrong or lacks. */
bool pfs_settings_read(char *const *texts, int count, pfs_settings *out);

#endif
