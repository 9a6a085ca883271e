/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect --json: an artifact's summary for programs. Keys are stable; new ones may be added. */
#include "tools/inspect.h"

static void put_provenance(struct md_json *json, const struct md_provenance *from)
{
	md_json_object(json, "provenance");
	md_json_text(json, "tool_version", from->tool_version);
	md_json_text(json, "command", from->command);
	md_json_text(json, "created", from->created);
	md_json_text(json, "verification", from->verification);
	md_json_text(json, "checks", from->checks);
	md_json_number(json, "scratch_addresses", from->scratch_addresses);
	md_json_number(json, "captures", from->capture_count);
	md_json_list(json, "stages");
	for (uint32_t i = 0; i < from->stage_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", from->stages[i].name);
		md_json_number(json, "ns", from->stages[i].ns);
		md_json_end(json);
	}
	md_json_end(json);
	md_json_end(json);
}

void md_inspect_json_facts(struct md_json *json, const struct md_fingerprint *machine)
{
	md_json_list(json, "facts");
	for (uint32_t i = 0; i < machine->fact_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", machine->facts[i].name);
		md_json_text(json, "value", machine->facts[i].value);
		md_json_end(json);
	}
	md_json_end(json);
}

static void put_texts(struct md_json *json, const char *name, const struct md_argument_list *list)
{
	md_json_list(json, name);
	for (uint32_t i = 0; i < list->count; i++)
		md_json_text(json, NULL, list->items[i].text);
	md_json_end(json);
}

static void put_fingerprint(struct md_json *json, const struct md_fingerprint *machine)
{
	md_json_object(json, "fingerprint");
	md_json_text(json, "device_name", machine->device_name);
	md_json_signed(json, "compute_major", machine->compute_major);
	md_json_signed(json, "compute_minor", machine->compute_minor);
	md_json_signed(json, "multiprocessors", machine->multiprocessors);
	md_json_number(json, "device_memory", machine->device_memory);
	md_json_signed(json, "driver_version", machine->driver_version);
	for (unsigned i = 0; i < MD_LIMITS; i++)
		if (machine->limits[i])
			md_json_number(json, md_limit_key(i), machine->limits[i]);
	md_json_list(json, "libraries");
	for (uint32_t i = 0; i < machine->library_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "path", machine->libraries[i].path);
		md_json_text(json, "build_id", machine->libraries[i].build_id);
		md_json_end(json);
	}
	md_json_end(json);
	md_inspect_json_facts(json, machine);
	put_texts(json, "arguments", &machine->arguments);
	put_texts(json, "vary", &machine->vary);
	md_json_end(json);
}

static void put_graphs(struct md_json *json, const struct md_artifact *artifact)
{
	md_json_list(json, "graphs");
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		char proof[MD_PROOF_TEXT];
		struct md_unset unset;
		md_json_object(json, NULL);
		md_json_text(json, "label", graph->label);
		md_json_number(json, "batch", graph->batch);
		md_json_number(json, "nodes", graph->node_count);
		md_json_number(json, "edges", graph->edge_count);
		md_json_number(json, "pointers", graph->pointer_count);
		md_json_number(json, "constant_words", graph->constant_words);
		md_json_number(json, "pointer_words", graph->pointer_words);
		md_json_number(json, "noise_words", graph->noise_words);
		if (md_artifact_unset(artifact, graph, &unset, NULL) == MD_OK) {
			md_json_number(json, "unset_struct_bytes", unset.struct_bytes);
			md_json_number(json, "unset_scalars", unset.scalars);
		}
		md_json_number(json, "outputs", graph->output_count);
		md_json_number(json, "note_bytes", graph->note_size);
		md_json_text(json, "proof", md_inspect_proof(graph, proof));
		if (graph->group)
			md_json_number(json, "group", graph->group);
		if (graph->accepted.given) {
			md_json_number(json, "accepted_ulps", graph->accepted.ulps);
			md_json_text(json, "accepted_type", md_element_name(graph->accepted.type));
		}
		md_json_end(json);
	}
	md_json_end(json);
	md_json_list(json, "refusals");
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "label", artifact->refusals[i].label);
		md_json_number(json, "batch", artifact->refusals[i].batch);
		md_json_text(json, "why", artifact->refusals[i].why);
		md_json_end(json);
	}
	md_json_end(json);
}

static void put_kernels(struct md_json *json, const struct md_artifact *artifact)
{
	md_json_list(json, "kernels");
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		const struct md_kernel *kernel = &artifact->kernels[i];
		md_json_object(json, NULL);
		md_json_text(json, "name", kernel->name);
		md_json_signed(json, "image", kernel->image == MD_NONE ? -1 : (int64_t)kernel->image);
		md_json_number(json, "parameters", kernel->param_count);
		md_json_signed(json, "max_dynamic_shared_bytes", kernel->state.max_dynamic_shared_bytes);
		md_json_end(json);
	}
	md_json_end(json);
	md_json_list(json, "images");
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		char hash[MD_HASH_TEXT_BYTES];
		md_hash_format(&image->hash, hash);
		md_json_object(json, NULL);
		md_json_text(json, "hash", hash);
		md_json_number(json, "size", image->size);
		md_json_bool(json, "stored", image->data != NULL);
		md_json_text(json, "path", image->path);
		md_json_text(json, "variable", image->variable);
		md_json_number(json, "values", image->value_count);
		md_json_number(json, "file_offset", image->file_offset);
		md_json_end(json);
	}
	md_json_end(json);
}

static void put_memory(struct md_json *json, const struct md_artifact *artifact)
{
	uint64_t saved = 0, compared = 0;
	md_json_list(json, "bindings");
	for (uint32_t i = 0; i < artifact->binding_count; i++) {
		md_json_object(json, NULL);
		md_json_text(json, "name", artifact->bindings[i].name);
		md_json_text(json, "role", md_inspect_role(artifact->bindings[i].role));
		md_json_number(json, "size", artifact->bindings[i].size);
		char hash[MD_HASH_TEXT_BYTES];
		if (artifact->bindings[i].hashed)
			md_hash_format(&artifact->bindings[i].hash, hash);
		md_json_text(json, "hash", artifact->bindings[i].hashed ? hash : NULL);
		md_json_bool(json, "varied", artifact->bindings[i].varied);
		if (artifact->bindings[i].adjoins)
			md_json_text(json, "before", artifact->bindings[artifact->bindings[i].before].name);
		md_json_number(json, "align", artifact->bindings[i].align ? artifact->bindings[i].align : 1);
		if (artifact->bindings[i].overlaps) {
			md_json_text(json, "within", artifact->bindings[artifact->bindings[i].within].name);
			md_json_number(json, "distance", artifact->bindings[i].distance);
		}
		md_json_end(json);
	}
	md_json_end(json);
	for (uint32_t i = 0; i < artifact->content_count; i++) {
		saved += artifact->contents[i].size;
		compared += artifact->contents[i].compared;
	}
	md_json_number(json, "private_bytes", artifact->arena_size);
	md_json_number(json, "content_count", artifact->content_count);
	md_json_number(json, "content_bytes", saved);
	md_json_number(json, "contents_compared", compared);
}

static void put_kv(struct md_json *json, const struct md_kv *kv)
{
	if (!kv->present) {
		md_json_text(json, "kv", NULL);
		return;
	}
	md_json_object(json, "kv");
	md_json_text(json, "key", kv->key);
	md_json_number(json, "kv_bytes", kv->kv_bytes);
	md_json_number(json, "blocks", kv->blocks);
	md_json_number(json, "block_bytes", kv->block_bytes);
	md_json_number(json, "baseline_free", kv->baseline_free);
	md_json_number(json, "peak", kv->peak);
	md_json_number(json, "graph_bytes", kv->graph_bytes);
	md_json_number(json, "utilization_ppm", kv->utilization_ppm);
	md_json_end(json);
}

static void put_caches(struct md_json *json, const struct md_caches *caches)
{
	md_json_list(json, "caches");
	for (uint32_t i = 0; i < caches->folder_count; i++) {
		const struct md_cache_folder *folder = &caches->folders[i];
		md_json_object(json, NULL);
		md_json_text(json, "name", folder->name);
		md_json_bool(json, "variable", folder->variable);
		md_json_text(json, "inside", folder->inside);
		md_json_text(json, "path", folder->path);
		md_json_number(json, "files", folder->file_count);
		md_json_number(json, "bytes", md_cache_folder_bytes(folder));
		md_json_end(json);
	}
	md_json_end(json);
}

void md_inspect_json(const char *path, const struct md_artifact *artifact, const struct md_artifact_sizes *sizes,
		     FILE *out)
{
	struct md_json json;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "kind", "artifact");
	md_json_text(&json, "path", path);
	md_json_number(&json, "nodes", md_inspect_total_nodes(artifact));
	put_provenance(&json, &artifact->provenance);
	put_fingerprint(&json, &artifact->fingerprint);
	put_graphs(&json, artifact);
	put_kernels(&json, artifact);
	put_memory(&json, artifact);
	put_kv(&json, &artifact->kv);
	put_caches(&json, &artifact->caches);
	md_json_number(&json, "file_bytes", sizes->file);
	md_json_real(&json, "bytes_per_node", md_inspect_bytes_per_node(artifact, sizes));
	md_json_list(&json, "sections");
	for (uint32_t i = 0; i < sizes->section_count; i++) {
		md_json_object(&json, NULL);
		md_json_text(&json, "name", sizes->sections[i].name);
		md_json_number(&json, "stored", sizes->sections[i].stored);
		md_json_number(&json, "raw", sizes->sections[i].raw);
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_end(&json);
}
