/* writer: does to a database what it reads on its standard input, with the LMDB it is built from.
 *
 *   writer FILE PAGE_BYTES < operations
 *
 * Built together with mdb.c of any version, which it includes, so that it can lend LMDB another
 * page size than the system's: LMDB has no other way to choose it before 1.0.
 *
 * An operation is four numbers of 32 bits in the machine's order, and the bytes of key and value:
 *
 *   what  | flags of LMDB | bytes of the key | bytes of the value | key | value
 *
 *   OPEN    a database: the key is its name, none for the main one; it is put to from now on
 *   PUT
 *   DELETE  a key, or one value of it where there is one
 *   COMMIT
 *
 * Ends with 1 and a sentence when LMDB refuses.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long page_bytes;

static long system_says(int name)
{
    return name == _SC_PAGE_SIZE ? page_bytes : (sysconf)(name);
}

#define sysconf(name) system_says(name)
#include "mdb.c"
#include "midl.c"
#undef sysconf

enum { OPEN, PUT, DELETE, COMMIT };

#define MAP_BYTES ((size_t)1 << 32)

static void must(int code, const char *what)
{
    if (code == MDB_SUCCESS)
        return;
    fprintf(stderr, "writer: %s: %s\n", what, mdb_strerror(code));
    exit(1);
}

/* `count` bytes of the standard input; NULL: they are not there. */
static void *take(void *to, size_t count)
{
    return fread(to, 1, count, stdin) == count ? to : NULL;
}

int main(int argc, char **argv)
{
    static unsigned char key_bytes[1 << 16], value_bytes[1 << 26];
    MDB_env *env;
    MDB_txn *txn = NULL;
    MDB_dbi db = 0;
    uint32_t head[4];
    if (argc != 3 || (page_bytes = atol(argv[2])) <= 0) {
        fprintf(stderr, "usage: writer FILE PAGE_BYTES < operations\n");
        return 2;
    }
    must(mdb_env_create(&env), "create");
    must(mdb_env_set_mapsize(env, MAP_BYTES), "map");
    must(mdb_env_set_maxdbs(env, 8), "databases");
    must(mdb_env_open(env, argv[1], MDB_NOSUBDIR | MDB_NOSYNC, 0644), "open");
    while (take(head, sizeof head) != NULL) {
        MDB_val key = {head[2], key_bytes}, value = {head[3], value_bytes};
        if (head[2] > sizeof key_bytes || head[3] > sizeof value_bytes ||
            take(key_bytes, head[2]) == NULL || take(value_bytes, head[3]) == NULL)
            must(EINVAL, "operation");
        key_bytes[head[2] < sizeof key_bytes ? head[2] : 0] = 0;
        if (txn == NULL && head[0] != COMMIT)
            must(mdb_txn_begin(env, NULL, 0, &txn), "begin");
        switch (head[0]) {
        case OPEN:
            must(mdb_dbi_open(txn, head[2] > 0 ? (char *)key_bytes : NULL, head[1], &db), "open");
            break;
        case PUT:
            must(mdb_put(txn, db, &key, &value, head[1]), "put");
            break;
        case DELETE:
            must(mdb_del(txn, db, &key, head[3] > 0 ? &value : NULL), "delete");
            break;
        case COMMIT:
            if (txn != NULL)
                must(mdb_txn_commit(txn), "commit");
            txn = NULL;
            break;
        default:
            must(EINVAL, "operation");
        }
    }
    if (txn != NULL)
        must(mdb_txn_commit(txn), "commit");
    mdb_env_close(env);
    return 0;
}
