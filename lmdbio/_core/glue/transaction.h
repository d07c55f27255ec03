/* glue_transaction: what programs call for each record, of an environment and of a transaction.
 *
 *   class Environment(Begins):        begin()    makes a transaction on the snapshot of the last
 *                                                one, while the file is as it was, with a reader
 *                                                slot where that one has one; else it calls
 *                                                _begin(), of Python
 *   class Transaction(Transacts):     get(), cursor(): in a database of which it is known how to
 *                                                find there; else they call _get() and _cursor()
 *                                     abort(), with
 *
 *   environment  --first-->  transaction <--> transaction <--> ...   those that have not ended
 *                <----------- each keeps its environment
 *
 * The GIL guards all of it.
 */
#ifndef LIO_GLUE_TRANSACTION_H
#define LIO_GLUE_TRANSACTION_H

/* Put the types into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_begins_type(uintptr_t list);
static int lio_transacts_type(uintptr_t list);

/* Of handles of databases, as far as C looks at them: the environment, and the name of a database in it. */
static int lio_names_type(uintptr_t list);

#endif
