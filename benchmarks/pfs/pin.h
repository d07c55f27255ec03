/* pin: a folder's bytes, held in memory.
 *
 * Mapped and locked pages stay in the page cache whatever happens around: a benchmark that
 * drops the page cache makes the mounts cold, and not the storage behind the model.
 */
#ifndef PFS_PIN_H
#define PFS_PIN_H

typedef struct pfs_pins pfs_pins;

/* Maps every file below an absolute path, links followed, and reads it all. A file that cannot
 * be held is left out: the counters show when an answer had to wait for it. NULL without
 * memory. */
pfs_pins *pfs_pins_open(const char *folder);
void pfs_pins_close(pfs_pins *pins);

#endif
