/* SPDX-License-Identifier: Apache-2.0 */
/* What the thread of control.c says to medusa-swap run, and what it knows for that. */
#ifndef MD_SWAP_CONTROL_TELL_H
#define MD_SWAP_CONTROL_TELL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/descriptor.h"
#include "base/status.h"
#include "driver/process_checkpoint.h"
#include "swap/exchange.h"
#include "swap/lending.h"
#include "swap/pool.h"
#include "swap/wire.h"

/* Of the thread alone. */
struct md_swap_control {
	char path[PATH_MAX];
	struct md_swap_wire wire;
	struct md_descriptor kept; /* the wire's, which the engine may have closed */
	struct md_swap_pool *pool;
	struct md_swap_exchange *exchange;
	struct md_swap_lending lending;
	uint64_t told; /* bytes that medusa-swap run knows of, and of these some */
	uint64_t told_spilled, told_constant, told_shared;
	unsigned ticks; /* steps of an arrival */
	bool released, troubled;
	bool stays_out; /* when medusa-swap run is killed or told to end */
	bool merges;    /* constant memory may be one that other engines have */
	bool placed;    /* the pool's pages have been told where they should lie, as far as there is a choice */
	bool full;      /* the driver has a checkpoint of this process, or may have one: its calls wait */
	char gpu[MD_CHECKPOINT_UUID_BYTES]; /* the only one that it uses */
	unsigned gpus;
};

/* What has become of the command with this id; why: if it has failed. */
enum md_status md_swap_control_answer(struct md_swap_control *c, uint64_t id, enum md_status status,
				      const struct md_swap_report *report, const struct md_error *why,
				      struct md_error *err);
/* How much memory it has, and where. */
enum md_status md_swap_control_tell(struct md_swap_control *c, struct md_error *err);

#endif
