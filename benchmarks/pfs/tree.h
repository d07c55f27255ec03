/* tree: the folder that is shown, as nodes.
 *
 * The folder must not change while it is shown: a file's size is what it was when first looked
 * at. Symbolic links are followed, so that a folder of links makes a data set and no read goes
 * past the model. Nodes and descriptors are kept until the tree is closed. Any thread may call.
 */
#ifndef PFS_TREE_H
#define PFS_TREE_H

#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>

#include "model.h"

typedef struct pfs_tree pfs_tree;

/* Belongs to the tree. */
typedef struct pfs_node {
    struct pfs_node *chain; /* the next of all nodes */
    uint64_t hash;          /* of the path */
    pfs_layout *layout;     /* NULL until opened; guarded as the model is */
    int fd;                 /* -1 until opened */
    struct stat stat;
    char path[]; /* below the folder, "." for itself */
} pfs_node;

/* Returns 0, or an errno. The model must outlive the tree. */
int pfs_tree_open(const char *folder, const pfs_model *model, pfs_tree **out);
void pfs_tree_close(pfs_tree *tree);

pfs_node *pfs_tree_root(const pfs_tree *tree);

/* The node NAME in a folder's node. Returns 0, or an errno. */
int pfs_tree_find(pfs_tree *tree, const pfs_node *parent, const char *name, pfs_node **out);

/* Makes `fd` and `layout` of a file's node. Returns 0, or an errno. */
int pfs_tree_open_file(pfs_tree *tree, pfs_node *node);

/* Entries of a folder's node; closedir is the caller's. Returns 0, or an errno. */
int pfs_tree_list(const pfs_tree *tree, const pfs_node *node, DIR **out);

#endif
