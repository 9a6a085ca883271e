/* SPDX-License-Identifier: Apache-2.0 */
/* The backbones that this process has: what is mapped where, and the lease of each. */
#ifndef MD_BACKBONE_SHARE_LIST_H
#define MD_BACKBONE_SHARE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backbone/share_wire.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "driver/cuda_driver.h"
#include "swap/wire.h"

struct md_share {
	struct md_swap_wire wire;
	struct md_descriptor lease;  /* the wire's; none when the broker has gone, or the common connection has it */
	uint64_t kept_by;            /* which common connection has it, by share_keeper.c; 0: none */
	struct md_descriptor memory; /* the next broker is given it */
	char id[MD_BACKBONE_ID_BYTES];
	CUdeviceptr address;
	uint64_t bytes, asked;
	CUdevice device;
	char device_id[64]; /* GPU-UUID */
	bool fills;
	bool busy, watched; /* a call works on it, or (watched) the thread that looks after leases */
	bool refused;       /* a broker did not want it back */
	bool asks;          /* before the process has memory of its own instead */
	struct md_hash hash;
	char name[MD_BACKBONE_NAME_MOST + 1];
	char *layout;    /* owned */
	uint64_t number; /* rises in the order in which they were made */
	struct md_share *next;
};

/* A new one, busy. NULL: out of memory. */
struct md_share *md_share_begin(const char *name, const char *layout, uint64_t asked);
/* Takes a busy one from the list, closes its descriptors and frees it. */
void md_share_forget(struct md_share *share);
/* What lies at the address (fills: if this process fills it), busy from now on; NULL: nothing, or another call works on it. */
struct md_share *md_share_claim(CUdeviceptr address, bool fills);
/* Not busy any more. */
void md_share_end(struct md_share *share);
/* Takes a connection over; both of a busy one. */
enum md_status md_share_take_lease(struct md_share *share, int fd, struct md_error *err);
void md_share_drop_lease(struct md_share *share);

/* ---- for the thread that looks after leases ---- */

enum { MD_SHARE_WATCHED_MOST = 256 };

/*
 * Forgets leases whose broker has gone, and returns the descriptors of those that are good: of the first
 * MD_SHARE_WATCHED_MOST. *lost: how many have no broker now. *changes can be read when the list has changed since; -1: the
 * engine has closed it.
 */
size_t md_share_leases(int fds[MD_SHARE_WATCHED_MOST], size_t *lost, int *changes);
/* The first without a broker whose number is above *after, which becomes its number; busy from now on. NULL: none. */
struct md_share *md_share_claim_lost(uint64_t *after);

#endif
