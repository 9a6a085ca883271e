/* SPDX-License-Identifier: Apache-2.0 */
/* All that an engine does to be captured and restored by Medusa; without a preloaded library every call is a no-op. */
#include "models/llama/integration.h"

#include "medusa/medusa.h"

/* clang-format off */ /* one call a line reads best here */

const char *integration_mode(void) { static const char *const names[] = { "none", "capture", "restore", "verify" }; return names[medusa_mode()]; }
const char *integration_reason(void) { return medusa_reason(); }
void integration_want(const char *label, const unsigned *batches, size_t count) { medusa_graph_want(label, batches, count); }
void integration_label(CUgraphExec exec, const char *label, unsigned batch) { medusa_graph_label(exec, label, batch); }
void integration_trigger(int (*first_layer)(void *user), void *user) { medusa_trigger("first layer", first_layer, user); }
bool integration_graph(const char *label, unsigned batch, CUgraphExec *exec) { return !medusa_graph_get(label, batch, UINT64_MAX, (void **)exec); }
bool integration_graph_ready(const char *label, unsigned batch) { return medusa_graph_ready(label, batch); }
void integration_bind_weights(const struct llama_model *m) { medusa_fingerprint_add("configuration", "in the graphs' labels"); medusa_bind("weights", m->base, m->bytes, MEDUSA_BIND_CONSTANT); }
void integration_stage(const char *name, uint64_t ns) { medusa_stage(name, ns); }
void integration_ready(void) { medusa_mark("ready"); }
void integration_release(void) { medusa_release(); }

void integration_bind_buffers(const struct llama_engine *e)
{
	const struct { const char *name; struct llama_buffer buffer; enum medusa_role role; } all[] = {
		{ "kv", e->kv, MEDUSA_BIND_STATE },          { "tokens", e->tokens, MEDUSA_BIND_INPUT },
		{ "positions", e->positions, MEDUSA_BIND_INPUT }, { "slots", e->slots, MEDUSA_BIND_INPUT },
		{ "rows", e->rows, MEDUSA_BIND_INPUT },      { "block_table", e->block_table, MEDUSA_BIND_INPUT },
		{ "logits", e->logits, MEDUSA_BIND_OUTPUT }, { "next", e->next, MEDUSA_BIND_OUTPUT },
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		medusa_bind(all[i].name, all[i].buffer.address, all[i].buffer.bytes, all[i].role);
}

int integration_kv_capacity(const char *key, uint64_t block_bytes, double utilization, int (*profile)(void *user), void *user,
			    uint64_t *bytes, bool *from_profile)
{
	struct medusa_kv kv = { .size = sizeof(kv) };
	int result = medusa_kv_capacity(&(struct medusa_kv_request){ sizeof(struct medusa_kv_request), key, block_bytes, utilization,
								     profile, user }, &kv);
	*bytes = kv.bytes;
	*from_profile = kv.from_profile;
	return result;
}

void integration_report(FILE *file)
{
	struct medusa_stats s = { .size = sizeof(s) };
	if (medusa_stats_read(&s) != MEDUSA_OK)
		return (void)fputs("null", file);
	const struct { const char *name; uint64_t value; } fields[] = {
#define FIELD(name) { #name, s.name },
		FIELD(graphs_total) FIELD(graphs_restored) FIELD(graphs_refused) FIELD(nodes) FIELD(pointers) FIELD(kernels_loaded_image)
		FIELD(kernels_stored_image) FIELD(kernels_triggered) FIELD(open_ns) FIELD(images_ns) FIELD(functions_ns) FIELD(arena_ns)
		FIELD(patch_ns) FIELD(build_ns) FIELD(instantiate_ns) FIELD(upload_ns) FIELD(own_ns) FIELD(first_ready_ns)
		FIELD(total_ns) FIELD(private_bytes) FIELD(image_bytes) FIELD(heap_ns) FIELD(constants_ns)
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		fprintf(file, "%s\"%s\": %llu", i ? ", " : "{ ", fields[i].name, (unsigned long long)fields[i].value);
	fputs(" }", file);
}
