/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that an engine does to be captured and restored by Medusa. Without a preloaded library each call does
 * nothing. */
#include "models/llama/integration.h"

#include "medusa/medusa.h"
#include "medusa/share.h"

const char *integration_mode(void)
{
	return medusa_mode_name(medusa_mode());
}

const char *integration_reason(void)
{
	return medusa_reason();
}

/* Before the weights are loaded */

void integration_want(const char *label, const unsigned *batches, size_t count)
{
	medusa_graph_want(label, batches, count);
}

void integration_trigger(int (*first_layer)(void *user), void *user)
{
	medusa_trigger("first layer", first_layer, user);
}

/* Weights that other processes have, too */

bool integration_share(const char *name, const char *layout, size_t bytes, CUdeviceptr *address, bool *filled,
		       bool *no_room, const char **why)
{
	int there = 0, code = medusa_share(name, layout, bytes, NULL, address, &there);
	bool shared = code == MEDUSA_OK;
	*filled = shared && there;
	*no_room = code == MEDUSA_ERR_NO_MEMORY;
	*why = shared ? "" : medusa_reason();
	return shared;
}

bool integration_share_commit(CUdeviceptr address, const char **why)
{
	bool done = medusa_share_commit(address) == MEDUSA_OK;
	*why = done ? "" : medusa_reason();
	return done;
}

void integration_share_end(CUdeviceptr address)
{
	medusa_share_end(address);
}

/* The engine's memory */

void integration_bind_weights(const struct llama_model *model, const struct llama_limits *limits)
{
	char lora[64];
	snprintf(lora, sizeof(lora), "%d slots of rank %d", limits->lora_slots, limits->max_lora_rank);
	medusa_fingerprint_add("configuration", "in the graphs' labels");
	if (limits->lora_slots)
		medusa_fingerprint_add("lora", lora);
	medusa_bind("weights", model->base, model->bytes, MEDUSA_BIND_CONSTANT);
}

/* What lies in the slots is data: it changes while graphs stay, and a graph finds nothing in it but numbers. */
static void bind_adapters(const struct lora_pool *pool)
{
	if (!pool->slots)
		return;
	medusa_bind("lora_weights", pool->weights.address, pool->weights.bytes, MEDUSA_BIND_STATE);
	medusa_bind("lora_entries", pool->entries.address, pool->entries.bytes, MEDUSA_BIND_INPUT);
	medusa_bind("lora_adapters", pool->adapters.address, pool->adapters.bytes, MEDUSA_BIND_INPUT);
}

void integration_bind_buffers(const struct llama_engine *engine)
{
	const struct {
		const char *name;
		struct llama_buffer buffer;
		enum medusa_role role;
	} all[] = {
	    {"kv", engine->kv, MEDUSA_BIND_STATE},
	    {"tokens", engine->tokens, MEDUSA_BIND_INPUT},
	    {"positions", engine->positions, MEDUSA_BIND_INPUT},
	    {"slots", engine->slots, MEDUSA_BIND_INPUT},
	    {"rows", engine->rows, MEDUSA_BIND_INPUT},
	    {"block_table", engine->block_table, MEDUSA_BIND_INPUT},
	    {"logits", engine->logits, MEDUSA_BIND_OUTPUT},
	    {"next", engine->next, MEDUSA_BIND_OUTPUT},
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		medusa_bind(all[i].name, all[i].buffer.address, all[i].buffer.bytes, all[i].role);
	bind_adapters(&engine->lora);
}

int integration_kv_capacity(const char *key, uint64_t block_bytes, double utilization, int (*profile)(void *user),
			    void *user, uint64_t *bytes, bool *from_profile)
{
	struct medusa_kv_request request = {
	    .size = sizeof(request),
	    .key = key,
	    .block_bytes = block_bytes,
	    .utilization = utilization,
	    .profile = profile,
	    .user = user,
	};
	struct medusa_kv kv = {.size = sizeof(kv)};
	int result = medusa_kv_capacity(&request, &kv);
	*bytes = kv.bytes;
	*from_profile = kv.from_profile;
	return result;
}

/* Graphs */

bool integration_graph(const char *label, unsigned batch, CUgraphExec *exec)
{
	return medusa_graph_get(label, batch, UINT64_MAX, (void **)exec) == MEDUSA_OK;
}

bool integration_graph_ready(const char *label, unsigned batch)
{
	return medusa_graph_ready(label, batch);
}

void integration_label(CUgraphExec exec, const char *label, unsigned batch)
{
	medusa_graph_label(exec, label, batch);
}

/* Progress, and the end */

void integration_stage(const char *name, uint64_t ns)
{
	medusa_stage(name, ns);
}

void integration_ready(void)
{
	medusa_mark("ready");
}

void integration_complete(void)
{
	medusa_mark("complete");
}

void integration_release(void)
{
	medusa_release();
}

void integration_report(FILE *file)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	if (medusa_stats_read(&stats) != MEDUSA_OK) {
		fputs("null", file);
		return;
	}
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
	    {"graphs_total", stats.graphs_total},
	    {"graphs_restored", stats.graphs_restored},
	    {"graphs_refused", stats.graphs_refused},
	    {"nodes", stats.nodes},
	    {"pointers", stats.pointers},
	    {"kernels_loaded_image", stats.kernels_loaded_image},
	    {"kernels_stored_image", stats.kernels_stored_image},
	    {"kernels_triggered", stats.kernels_triggered},
	    {"open_ns", stats.open_ns},
	    {"images_ns", stats.images_ns},
	    {"functions_ns", stats.functions_ns},
	    {"arena_ns", stats.arena_ns},
	    {"patch_ns", stats.patch_ns},
	    {"build_ns", stats.build_ns},
	    {"instantiate_ns", stats.instantiate_ns},
	    {"upload_ns", stats.upload_ns},
	    {"own_ns", stats.own_ns},
	    {"first_ready_ns", stats.first_ready_ns},
	    {"total_ns", stats.total_ns},
	    {"private_bytes", stats.private_bytes},
	    {"image_bytes", stats.image_bytes},
	    {"heap_ns", stats.heap_ns},
	    {"constants_ns", stats.constants_ns},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		fprintf(file, "%s\"%s\": %llu", i ? ", " : "{ ", fields[i].name, (unsigned long long)fields[i].value);
	fputs(" }", file);
}
