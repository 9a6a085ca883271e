/* SPDX-License-Identifier: Apache-2.0 */
/* Where this engine meets Medusa: a handful of calls, all of them in integration.c. */
#ifndef LLAMA_INTEGRATION_H
#define LLAMA_INTEGRATION_H

#include <stdbool.h>
#include <stdio.h>

#include "models/llama/engine.h"

/* "none", "capture", "restore" or "verify". */
const char *integration_mode(void);

/* Before the weights are loaded: which graphs are wanted first, so that they can be restored meanwhile. */
void integration_want(const char *label, const unsigned *batches, size_t count);
/*
 * Device memory of these bytes that other processes have as well; *filled: by one of them, and it is read-only. False:
 * nothing is shared, for the reason *why, which is valid until the next call; *no_room: and there is no room for memory of
 * one's own.
 */
bool integration_share(const char *name, const char *layout, size_t bytes, CUdeviceptr *address, bool *filled,
		       bool *no_room, const char **why);
/* Shared memory has been filled, and is read-only from now on. */
bool integration_share_commit(CUdeviceptr address, const char **why);
void integration_share_end(CUdeviceptr address);
/* Everything that graphs read or write and that the engine owns. */
void integration_bind_weights(const struct llama_model *model, const struct llama_limits *limits);
void integration_bind_buffers(const struct llama_engine *engine);

/* Bytes for the KV cache; profile is run only when nothing is known. 0, or an error
 * number with integration_reason(). */
int integration_kv_capacity(const char *key, uint64_t block_bytes, double utilization, int (*profile)(void *user),
			    void *user, uint64_t *bytes, bool *from_profile);

bool integration_graph(const char *label, unsigned batch, CUgraphExec *exec);
bool integration_graph_ready(const char *label, unsigned batch); /* without waiting */
void integration_label(CUgraphExec exec, const char *label, unsigned batch);
void integration_trigger(int (*first_layer)(void *user), void *user);
void integration_stage(const char *name, uint64_t ns);
void integration_ready(void);
void integration_complete(void); /* all graphs were launched on inputs that vary: a capture ends the engine here */
void integration_release(void);

const char *integration_reason(void);
void integration_report(FILE *file); /* medusa_stats as a JSON object, or null */

#endif
