/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations of the scheduler's policies by name: each is one column of the simulator's tables. */
#include <string.h>

#include "simulator/simulator.h"

#define TORPOR(...)                                                                                                    \
	.queueing = "torpor", .placement = "torpor", .eviction = "torpor", .batching = "none", .preloading = "none",   \
	__VA_ARGS__
#define XLORA(...)                                                                                                     \
	.queueing = "margin", .placement = "xlora", .eviction = "density", .batching = "xlora", .preloading = "xlora", \
	.no_artifacts = true, __VA_ARGS__
#define MEDUSA(...)                                                                                                    \
	.queueing = "medusa", .placement = "medusa", .eviction = "medusa", .batching = "medusa",                       \
	.preloading = "medusa", __VA_ARGS__

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" /* a variant is the full combination with one field changed */
static const struct md_sim_policy policies[] = {
    {TORPOR(.name = "torpor", .summary = "Late binding with required request counts, Algorithm 1 and model heaviness "
					 "(Torpor, ATC'25, section 5).")},
    {TORPOR(.name = "torpor-fifo", .queueing = "fifo",
	    .summary = "Torpor with requests in the order of their arrival (section 7.3, Torpor-FIFO).")},
    {TORPOR(.name = "torpor-random", .placement = "random", .no_peers = true,
	    .summary = "Torpor on any idle GPU, without copies between GPUs (section 7.3, Torpor-Random).")},
    {TORPOR(.name = "torpor-lru", .eviction = "lru",
	    .summary = "Torpor that evicts what was used least recently (section 7.3, Torpor-LRU).")},
    {TORPOR(.name = "torpor-block", .no_blocks = true,
	    .summary = "Torpor with the driver's allocations at each swap (section 7.3, Torpor-Block).")},
    {.name = "native",
     .summary = "A process per function, bound to one GPU for ever; what does not fit never runs (Torpor, section 7, "
		"Native).",
     .queueing = "fifo",
     .placement = "early",
     .eviction = "never",
     .batching = "none",
     .preloading = "none",
     .no_peers = true,
     .early_binding = true},
    {.name = "swapserve",
     .summary = "Engines swapped as wholes; the shortest queue is evicted first, then the least recently used "
		"(SwapServeLLM, SC'25 workshops, section 3.5).",
     .queueing = "fifo",
     .placement = "first",
     .eviction = "swapserve",
     .batching = "none",
     .preloading = "none",
     .no_peers = true},
    {XLORA(.name = "xlora", .summary = "Shared backbones, preloading as a knapsack, batches by deadline margin "
				       "(xLoRA, section 4).")},
    {XLORA(.name = "xlora-nbs", .no_sharing = true,
	   .summary = "xLoRA with a backbone for each function (section 5.8, NBS).")},
    {XLORA(.name = "xlora-npl", .preloading = "none", .summary = "xLoRA without preloading (section 5.8, NPL).")},
    {XLORA(.name = "xlora-ndo", .eviction = "timeout",
	   .summary = "xLoRA that waits for memory instead of offloading (section 5.8, NDO).")},
    {XLORA(.name = "xlora-nab1", .batching = "fixed", .fixed_batch = 1,
	   .summary = "xLoRA without batches (section 5.8, NAB #1).")},
    {XLORA(.name = "xlora-nab2", .batching = "fixed", .fixed_batch = 10, .fixed_delay_ns = 500000000,
	   .summary = "xLoRA with batches of 10 or after 500 ms (section 5.8, NAB #2).")},
    {XLORA(.name = "xlora-nab3", .batching = "fixed", .fixed_batch = 20, .fixed_delay_ns = 1000000000,
	   .summary = "xLoRA with batches of 20 or after 1 s (section 5.8, NAB #3).")},
    {.name = "fifo-lru",
     .summary = "What routers of models ship today (llama-swap, Ollama): first come, first served, batches of what "
		"waits, least recently used out.",
     .queueing = "fifo",
     .placement = "first",
     .eviction = "lru",
     .batching = "fixed",
     .fixed_batch = 256, /* as many as wait; the function's own limit applies */
     .preloading = "none",
     .no_peers = true},
    {MEDUSA(.name = "medusa", .summary = "Ours: windowed effort, margins under contention, value density with a least "
					 "stay, and contexts restored from artifacts (docs/scheduler.md).")},
    {MEDUSA(.name = "medusa-capture", .no_artifacts = true,
	    .summary = "Ours where contexts are captured anew at each cold start (MEDUSA, ASPLOS'25, as the "
		       "baseline).")},
};
#pragma GCC diagnostic pop

const struct md_sim_policy *md_sim_policies(size_t *count)
{
	*count = sizeof(policies) / sizeof(policies[0]);
	return policies;
}

const struct md_sim_policy *md_sim_policy_find(const char *name)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (strcmp(policies[i].name, name) == 0)
			return &policies[i];
	return NULL;
}
