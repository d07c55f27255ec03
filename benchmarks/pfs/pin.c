#include "pin.h"

#include <fcntl.h>
#include <fts.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct pin {
    struct pin *next;
    void *bytes;
    size_t size;
} pin;

struct pfs_pins {
    pin *first;
};

static void add(pfs_pins *pins, const char *path, size_t size)
{
    void *bytes = MAP_FAILED;
    pin *held = malloc(sizeof *held);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (held != NULL && fd >= 0)
        bytes = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (bytes == MAP_FAILED) {
        free(held);
        return;
    }
    /* Where locking is not allowed, being mapped still keeps them when the cache is dropped. */
    (void)mlock(bytes, size);
    held->bytes = bytes;
    held->size = size;
    held->next = pins->first;
    pins->first = held;
}

pfs_pins *pfs_pins_open(const char *folder)
{
    char *path = strdup(folder);
    char *paths[] = {path, NULL};
    pfs_pins *pins = calloc(1, sizeof *pins);
    FTS *walk = path != NULL && pins != NULL
                    ? fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL)
                    : NULL;
    FTSENT *entry;
    while (walk != NULL && (entry = fts_read(walk)) != NULL)
        if (entry->fts_info == FTS_F && S_ISREG(entry->fts_statp->st_mode) &&
            entry->fts_statp->st_size > 0)
            add(pins, entry->fts_accpath, (size_t)entry->fts_statp->st_size);
    if (walk != NULL)
        (void)fts_close(walk);
    free(path);
    return pins;
}

void pfs_pins_close(pfs_pins *pins)
{
    pin *next;
    if (pins == NULL)
        return;
    for (pin *held = pins->first; held != NULL; held = next) {
        next = held->next;
        (void)munmap(held->bytes, held->size);
        free(held);
    }
    free(pins);
}
