/* SPDX-License-Identifier: Apache-2.0 */
/* Communication libraries (NCCL, NVSHMEM, UCX, MPI), and names for the memory that they make: "@nccl.17". */
#ifndef MD_DRIVER_MAKER_H
#define MD_DRIVER_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Other ranks write into what a communication library has made, and its kernels wait there for them. So nobody but the
 * library may change it, and it is known by the library and by its place in the order in which the library made it.
 */

#define MD_MAKER_NAME_BYTES 64

struct md_maker {
	char soname[MD_MAKER_NAME_BYTES]; /* "libnccl.so.2" */
	char name[MD_MAKER_NAME_BYTES];   /* "nccl" */
	uint64_t made, events;            /* how many of each have a name; guarded by the maker's own lock */
};

/*
 * The library that a call comes from; NULL: no communication library. caller: the return address of the call. Calls that
 * came through the CUDA runtime's shared library count as those of whoever called that. No lock of ours may be held. The
 * answer lives as long as the process. MEDUSA_COMMUNICATION_LIBRARIES has more names of shared objects, with wildcards,
 * separated by colons.
 */
struct md_maker *md_maker_find(const void *caller);
/* The name of what it makes next, which nothing else has. */
void md_maker_name_next(struct md_maker *maker, char name[MD_MAKER_NAME_BYTES]);
/* The place of an event that it makes next in the order of its events. */
uint32_t md_maker_next_event(struct md_maker *maker);
/*
 * For memory that ranks share and that no communication library made, "@peers.own.3" or "@peers.other.4": exported by this process, or
 * another one's. Both count in one order, so the names of two starts differ where one exports what the other opens.
 */
void md_maker_name_peers(bool own, char name[MD_MAKER_NAME_BYTES]);
/* Whether a capture names such memory: MEDUSA_RANKS_MEMORY=1 says that each start of the engine shares the same in the same order. */
bool md_maker_names_peers(void);
/* For such memory that is shared once graphs have been captured: it has no place in the order, as what follows has not. */
void md_maker_name_peers_late(char name[MD_MAKER_NAME_BYTES]);
bool md_maker_is_peers(const char *name);
/*
 * For what it makes while a graph is captured: "@nccl.captured". A start that restores the graph does not make it, so it has no
 * place in the order.
 */
void md_maker_name_captured(const struct md_maker *maker, char name[MD_MAKER_NAME_BYTES]);
void md_maker_name_event(const struct md_maker *maker, uint32_t event, char name[MD_MAKER_NAME_BYTES]);
/* Whether a binding has a name of the first kind, or of what was made while a graph was captured. */
bool md_maker_is_name(const char *name);
bool md_maker_is_captured(const char *name);
/* The number in a name of the first kind, which says how many of its library came before; UINT64_MAX: it is none. */
uint64_t md_maker_place_of(const char *name);
/* Whether both names, of whatever kind, are of one library. */
bool md_maker_same_library(const char *one, const char *other);
/* Reads the number from the name of an event. False: it is none. */
bool md_maker_event_of(const char *name, uint32_t *event);
/* Whether a shared object with this name is one. */
bool md_maker_matches(const char *soname);
/* Called in a child: makes the lock anew. */
void md_maker_renew(void);

#endif
