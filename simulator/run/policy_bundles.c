/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations of the scheduler's policies by name: each is one row of the simulator's tables. */
#include <string.h>

#include "simulator/simulator.h"

/*
 * Every combination stands in two tables: with contexts that are restored from artifacts, and with contexts that are
 * captured at each cold start, its name then ending in -capture. So that policies can be compared on equal terms,
 * whichever of the two their papers had. Backbones are shared in all of them, except where a combination says no.
 */

#define TORPOR(...)                                                                                                    \
	.queueing = "torpor", .placement = "torpor", .eviction = "torpor", .batching = "none", .preloading = "none",   \
	.slots = 1, __VA_ARGS__
#define XLORA(...)                                                                                                     \
	.queueing = "margin", .placement = "xlora", .eviction = "density", .batching = "xlora", .preloading = "xlora", \
	.no_peers = true, __VA_ARGS__
#define MEDUSA(...)                                                                                                    \
	.queueing = "medusa", .placement = "medusa", .eviction = "medusa", .batching = "medusa",                       \
	.preloading = "medusa", __VA_ARGS__

/* As many as wait; the function's own limit applies. */
#define WHAT_WAITS .batching = "fixed", .fixed_batch = 256

#define BUNDLES(BUNDLE)                                                                                                \
	BUNDLE("torpor",                                                                                               \
	       "Late binding with required request counts, Algorithm 1 and model heaviness; one function at a time "   \
	       "on a GPU (Torpor, ATC'25, sections 4.5 and 5).",                                                       \
	       TORPOR())                                                                                               \
	BUNDLE("torpor-shared",                                                                                        \
	       "Torpor's policies where as many functions compute on a GPU as its slots allow, and what waits runs "   \
	       "as one batch, as engines of language models do (not in the paper).",                                   \
	       TORPOR(.slots = 0, WHAT_WAITS))                                                                         \
	BUNDLE("torpor-fifo", "Torpor with requests in the order of their arrival (section 7.3, Torpor-FIFO).",        \
	       TORPOR(.queueing = "fifo"))                                                                             \
	BUNDLE("torpor-random", "Torpor on any idle GPU, without copies between GPUs (section 7.3, Torpor-Random).",   \
	       TORPOR(.placement = "random", .no_peers = true))                                                        \
	BUNDLE("torpor-lru", "Torpor that evicts what was used least recently (section 7.3, Torpor-LRU).",             \
	       TORPOR(.eviction = "lru"))                                                                              \
	BUNDLE("torpor-block", "Torpor with the driver's allocations at each swap (section 7.3, Torpor-Block).",       \
	       TORPOR(.no_blocks = true))                                                                              \
	BUNDLE("native",                                                                                               \
	       "A process per function, bound to one GPU for ever; what does not fit never runs (Torpor, section 7, "  \
	       "Native). Billed for its part of a GPU's memory all the time.",                                         \
	       .queueing = "fifo", .placement = "early", .eviction = "never", .batching = "none",                      \
	       .preloading = "none", .no_peers = true, .early_binding = true)                                          \
	BUNDLE("swapserve",                                                                                            \
	       "Engines bound to GPUs and swapped as wholes; the shortest queue is evicted first, then the least "     \
	       "recently used; what waits runs as one batch (SwapServeLLM, SC'25 workshops, sections 3.5 and 6).",     \
	       .queueing = "swapserve", .placement = "early", .eviction = "swapserve", WHAT_WAITS,                     \
	       .preloading = "none", .no_peers = true)                                                                 \
	BUNDLE("xlora", "Shared backbones, preloading as a knapsack, batches by deadline margin (xLoRA, section 4).",  \
	       XLORA())                                                                                                \
	BUNDLE("xlora-nbs", "xLoRA with a backbone for each function (section 5.8, NBS).", XLORA(.no_sharing = true))  \
	BUNDLE("xlora-npl", "xLoRA without preloading (section 5.8, NPL).", XLORA(.preloading = "none"))               \
	BUNDLE("xlora-ndo", "xLoRA that waits for memory instead of offloading (section 5.8, NDO).",                   \
	       XLORA(.eviction = "timeout"))                                                                           \
	BUNDLE("xlora-nab1", "xLoRA without batches (section 5.8, NAB #1).",                                           \
	       XLORA(.batching = "fixed", .fixed_batch = 1))                                                           \
	BUNDLE("xlora-nab2", "xLoRA with batches of 10 or after 500 ms (section 5.8, NAB #2).",                        \
	       XLORA(.batching = "fixed", .fixed_batch = 10, .fixed_delay_ns = 500000000))                             \
	BUNDLE("xlora-nab3", "xLoRA with batches of 20 or after 1 s (section 5.8, NAB #3).",                           \
	       XLORA(.batching = "fixed", .fixed_batch = 20, .fixed_delay_ns = 1000000000))                            \
	BUNDLE("fifo-lru",                                                                                             \
	       "What routers of models ship today (Ollama, llama-swap): first come, first served, batches of what "    \
	       "waits, where most memory is free, least recently used out.",                                           \
	       .queueing = "fifo", .placement = "room", .eviction = "lru", WHAT_WAITS, .preloading = "none",           \
	       .no_peers = true)                                                                                       \
	BUNDLE("medusa",                                                                                               \
	       "Ours: latest start first, placement by the expected first token, eviction by value and least stay "    \
	       "(scheduler.md).",                                                                                      \
	       MEDUSA())

#define RESTORED(NAME, SUMMARY, ...) {.name = (NAME), .summary = (SUMMARY), __VA_ARGS__},
#define CAPTURED(NAME, SUMMARY, ...)                                                                                   \
	{.name = NAME MD_SIM_CAPTURE,                                                                                  \
	 .summary = SUMMARY " Contexts are captured at each cold start.",                                              \
	 .no_artifacts = true,                                                                                         \
	 __VA_ARGS__},

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" /* a variant is the full combination with one field changed */
static const struct md_sim_policy restored[] = {BUNDLES(RESTORED)};
static const struct md_sim_policy captured[] = {BUNDLES(CAPTURED)};
#pragma GCC diagnostic pop

#define COUNT (sizeof(restored) / sizeof(restored[0]))

const struct md_sim_policy *md_sim_policies(size_t *count)
{
	*count = COUNT;
	return restored;
}

const struct md_sim_policy *md_sim_policy_find(const char *name)
{
	for (size_t i = 0; i < COUNT; i++) {
		if (strcmp(restored[i].name, name) == 0)
			return &restored[i];
		if (strcmp(captured[i].name, name) == 0)
			return &captured[i];
	}
	return NULL;
}
