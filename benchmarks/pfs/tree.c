#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pfs_tree {
    const pfs_model *model;
    int folder;
    pthread_mutex_t lock; /* of the table, and of opening */
    pfs_node *root;
    pfs_node *nodes; /* a data set has few files */
};

/* FNV-1a: the same path gives the same servers in every run, on every machine. */
static uint64_t path_hash(const char *path)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *path != '\0'; path++)
        hash = (hash ^ (uint8_t)*path) * 0x100000001b3u;
    return hash;
}

/* Adds what lies at the path. Called with the lock held. */
static int add(pfs_tree *tree, const char *path, uint64_t hash, pfs_node **out)
{
    size_t size = strlen(path) + 1;
    pfs_node *node = calloc(1, sizeof *node + size);
    if (node == NULL)
        return ENOMEM;
    if (fstatat(tree->folder, path, &node->stat, 0) != 0) {
        int error = errno;
        free(node);
        return error;
    }
    memcpy(node->path, path, size);
    node->hash = hash;
    node->fd = -1;
    node->chain = tree->nodes;
    tree->nodes = node;
    *out = node;
    return 0;
}

int pfs_tree_open(const char *folder, const pfs_model *model, pfs_tree **out)
{
    int error;
    pfs_tree *tree = calloc(1, sizeof *tree);
    if (tree == NULL)
        return ENOMEM;
    tree->model = model;
    (void)pthread_mutex_init(&tree->lock, NULL);
    tree->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    error = tree->folder < 0 ? errno : add(tree, ".", path_hash("."), &tree->root);
    if (error != 0) {
        pfs_tree_close(tree);
        return error;
    }
    *out = tree;
    return 0;
}

void pfs_tree_close(pfs_tree *tree)
{
    if (tree == NULL)
        return;
    for (pfs_node *node = tree->nodes, *next; node != NULL; node = next) {
        next = node->chain;
        if (node->fd >= 0)
            (void)close(node->fd);
        pfs_layout_close(node->layout);
        free(node);
    }
    if (tree->folder >= 0)
        (void)close(tree->folder);
    (void)pthread_mutex_destroy(&tree->lock);
    free(tree);
}

pfs_node *pfs_tree_root(const pfs_tree *tree)
{
    return tree->root;
}

/* Writes parent/name; false where it does not fit. */
static bool join(const pfs_tree *tree, const pfs_node *parent, const char *name, char *path,
                 size_t room)
{
    size_t name_length = strlen(name), length = 0;
    if (parent != tree->root) {
        length = strlen(parent->path);
        if (length + 1 > room)
            return false;
        memcpy(path, parent->path, length);
        path[length++] = '/';
    }
    if (name_length + 1 > room - length)
        return false;
    memcpy(path + length, name, name_length + 1);
    return true;
}

int pfs_tree_find(pfs_tree *tree, const pfs_node *parent, const char *name, pfs_node **out)
{
    char path[PATH_MAX];
    uint64_t hash;
    pfs_node *node;
    int error = 0;
    if (!join(tree, parent, name, path, sizeof path))
        return ENAMETOOLONG;
    hash = path_hash(path);
    (void)pthread_mutex_lock(&tree->lock);
    node = tree->nodes;
    while (node != NULL && (node->hash != hash || strcmp(node->path, path) != 0))
        node = node->chain;
    if (node == NULL)
        error = add(tree, path, hash, &node);
    (void)pthread_mutex_unlock(&tree->lock);
    if (error == 0)
        *out = node;
    return error;
}

/* Called with the lock held. */
static int open_file(const pfs_tree *tree, pfs_node *node)
{
    int error;
    if (node->fd >= 0)
        return 0;
    node->layout = pfs_layout_open(tree->model, node->hash);
    if (node->layout == NULL)
        return ENOMEM;
    node->fd = openat(tree->folder, node->path, O_RDONLY | O_CLOEXEC);
    if (node->fd >= 0)
        return 0;
    error = errno;
    pfs_layout_close(node->layout);
    node->layout = NULL;
    return error;
}

int pfs_tree_open_file(pfs_tree *tree, pfs_node *node)
{
    int error;
    if (!S_ISREG(node->stat.st_mode))
        return S_ISDIR(node->stat.st_mode) ? EISDIR : EOPNOTSUPP;
    (void)pthread_mutex_lock(&tree->lock);
    error = open_file(tree, node);
    (void)pthread_mutex_unlock(&tree->lock);
    return error;
}

int pfs_tree_list(const pfs_tree *tree, const pfs_node *node, DIR **out)
{
    int error = 0;
    int fd = openat(tree->folder, node->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        error = errno;
        if (fd >= 0)
            (void)close(fd);
        return error;
    }
    *out = list;
    return 0;
}
