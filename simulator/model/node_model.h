/* SPDX-License-Identifier: Apache-2.0 */
/* A worker node as a discrete-event model: takes the scheduler's actions, and returns the events that follow. */
#ifndef MD_SIMULATOR_MODEL_NODE_MODEL_H
#define MD_SIMULATOR_MODEL_NODE_MODEL_H

#include "simulator/simulator.h"

/*
 * Copies are flows that share links in max-min fair parts. From the host: the GPU's own link and its PCIe switch's;
 * from a peer GPU: the pair's link, one for each direction; cold: the disk first, then, for a GPU, as from the host.
 * Contexts are made in context_ns, after their library is there, and use no link.
 *
 * A batch whose artifacts are there computes at once, T(b) = t0 + alpha (b - 1) to its first token. Otherwise it is
 * pipelined with its copies (Torpor, section 4.3): it begins when its context is made and `head` has passed since the
 * copy of its weights began; the last `tail` x T waits for the end of its copies. Undisturbed that takes
 *
 *	max(copies + tail x T, head + T)
 *
 * and is exactly spec.swap_ns (swap_peer_ns) for a batch of one where that is given, so:
 *	tail given (> 0):  head is what max() lacks, swap - T; were copies + tail x T more than swap, fewer bytes are
 *	                   copied.
 *	tail 0, and copies take longer than T (a heavy model): head 0, tail = (swap - copies) / T, within 0 .. 1, bytes
 *	                   adjusted to it.
 *	tail 0, and copies take less (a light model): head = swap - T; nothing waits for the copies but the end.
 *
 * "Copies" is transfer_bytes at the speed of an undisturbed host link, or of the node's fastest peer link. Sharing
 * links stretches copies alone: head, tail x T and T stay. Torpor's Table 3 (swaps in a loop on two GPUs of one
 * switch) comes out within 5 points of each entry with the public models' float32 weights, 10.6 GB/s for a GPU's own
 * link, 12.4 GB/s for the switch, a tail of 0.02 for vision and 0.3 for Bert-qa (with table 4's latencies; others in
 * test_sim_model.c): what a copy can use alone is less than what the switch carries, so two take 1.7 times as long and
 * not twice.
 *
 * Batches on one GPU slow each other in their first token by 1 + prefill_share (M - 1), and in further tokens by 1 +
 * decode_share (M - 1), where M counts those that compute (one that waits for its copies does not). The requests of a
 * batch end one by one as their tokens end.
 *
 * An engine that batches by itself (spec.continuous): requests that join are a batch of their own to their first token,
 * T(b) for b that join together, which shares the GPU with other first tokens as batches do. In further tokens all
 * sequences of the engine take one step together, token_ns (1 + sequence_share (n - 1)) for n of them, and the engine
 * counts as one batch for decode_share, the slots and the bill.
 *
 * Without block management (Torpor-Block) a swap-in first pays the driver for the blocks that the cache of freed ones
 * lacks, and for each cached block of another model that must be freed to make room; blocks are shared by the functions
 * of one model, whose sizes are equal.
 *
 * Whatever contradicts itself (a batch without its weights, a victim in use, more memory than there is) is noted, for
 * tests of schedulers, and carried out as well as it can be.
 */
struct md_sim_model;

/*
 * KV cache of one sequence: by its number of tokens if the function states bytes per token, else as the function states
 * it.
 */
uint64_t md_sim_model_kv_bytes(const struct md_sim_function *function, const struct md_sim_request *request);

struct md_sim_model_options {
	const struct md_sim_node *node;           /* all of these are borrowed */
	const struct md_sim_functions *functions; /* as the scheduler was told; names are not used */
	const struct md_sim_workload *workload;   /* request numbers are indices in it; NULL: one token each */
	bool no_blocks;
	bool bound; /* early binding: everything is in place, and more batches may run than the GPU has slots */
	/*
	 * What goes wrong, by time (.now). GPU_LOST, GPU_BACK, BACKBONE_FAILED happen; TRANSFER_FAILED and BATCH_FAILED
	 * (.gpu) hit the oldest one there, if any; MEMORY_REPORT sets the lag of reports to .bytes ns; the others are
	 * handed on as they are.
	 */
	const struct medusa_sched_event *faults;
	size_t fault_count;
};

enum md_status md_sim_model_create(const struct md_sim_model_options *options, struct md_sim_model **model,
				   struct md_error *err);
void md_sim_model_destroy(struct md_sim_model *model); /* NULL is fine */

/*
 * The caller has added functions behind those that there were: they are known from now on. Their array may lie elsewhere.
 * False: out of memory.
 */
bool md_sim_model_add_functions(struct md_sim_model *model);

/*
 * Carries out the actions of one step, all at the same time; times never decrease. Rejections and timers do not concern
 * the model.
 */
void md_sim_model_apply(struct md_sim_model *model, uint64_t now, const struct medusa_sched_action *const *actions,
			size_t count);
/* When the next event happens; false: never. Memory reports go on for ever. */
bool md_sim_model_due(struct md_sim_model *model, uint64_t *at);
/*
 * Whether a copy or a batch is under way, which ends by itself; unlike faults and memory reports, which happen while
 * nothing is done.
 */
bool md_sim_model_works(const struct md_sim_model *model);
/*
 * Leaves out memory reports up to `until`, if nothing but them would happen before, and no copy or batch is under way:
 * then each says what the one before it said. What is left out is a multiple of MD_SIM_ROUNDS_LEFT_OUT rounds of them,
 * so that whoever does something at every few reports (up to 12 of them) goes on at the same one.
 */
#define MD_SIM_ROUNDS_LEFT_OUT UINT64_C(55440)
void md_sim_model_leave_out(struct md_sim_model *model, uint64_t until);
/* Stages of copies and batches that have ended so far. */
uint64_t md_sim_model_ended(const struct md_sim_model *model);
/* Moves to that time. Events that follow, if any, are then taken one by one. */
void md_sim_model_advance(struct md_sim_model *model);
bool md_sim_model_event(struct md_sim_model *model, struct medusa_sched_event *event);
bool md_sim_model_failed(const struct md_sim_model *model); /* out of memory: the model stops */

/* The first contradiction, as a sentence, or NULL; *count is the number of contradictions. count may be NULL. */
const char *md_sim_model_complaint(const struct md_sim_model *model, uint64_t *count);
/* What lies on a GPU; a GPU that is lost has nothing, not even free memory. */
void md_sim_model_memory(const struct md_sim_model *model, uint32_t gpu, struct md_sim_memory *memory);
/* Where a function without a backbone is, at best: on its way to a GPU from the disk (loading), or from host memory (returning). */
enum md_sim_where { MD_SIM_ON_GPU, MD_SIM_LOADING, MD_SIM_RETURNING, MD_SIM_IN_HOST, MD_SIM_ON_DISK };
enum md_sim_where md_sim_model_where(const struct md_sim_model *model, uint32_t function);
/* Copies that come from the disk now. */
uint32_t md_sim_model_cold_copies(const struct md_sim_model *model);
/* Requests in batches, on all GPUs. */
uint64_t md_sim_model_running(const struct md_sim_model *model);
/*
 * Adds up, by tenant: requests in batches; and the parts of GPUs that they hold, where the part of each batch is divided
 * among its requests that have not ended.
 */
void md_sim_model_tenants(struct md_sim_model *model, uint64_t *running, double *parts);
uint64_t md_sim_model_used_bytes(const struct md_sim_model *model, uint32_t gpu);
/* Time in which a batch held the GPU, computing or waiting for its copies; up to the last event or action. */
double md_sim_model_busy_s(const struct md_sim_model *model, uint32_t gpu);
/* Time that a function's batches held GPUs, divided equally among batches that ran beside each other. */
double md_sim_model_billed_s(const struct md_sim_model *model, uint32_t function);

#endif
