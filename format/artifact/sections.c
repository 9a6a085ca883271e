/* SPDX-License-Identifier: Apache-2.0 */
/* The small sections of an artifact; each is described once, for msgpack and text, writing and reading. */
#include "format/artifact/sections.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/secret.h"

static void visit_enum(struct md_archive *a, const char *name, void *value)
{
	uint32_t number; /* enums of small positive values are read through a uint32_t; the size is checked */
	_Static_assert(sizeof(enum md_alloc_family) == sizeof(uint32_t), "enums have 32 bits");
	memcpy(&number, value, sizeof(number));
	md_archive_u32(a, name, &number);
	if (a->ops->reading)
		memcpy(value, &number, sizeof(number));
}

/* ---- fingerprint ---- */

static void visit_library(struct md_archive *a, void *item, void *user)
{
	struct md_fingerprint_library *library = item;
	(void)user;
	md_archive_string(a, "path", &library->path);
	md_archive_string(a, "build_id", &library->build_id);
}

static void visit_fact(struct md_archive *a, void *item, void *user)
{
	struct md_fingerprint_fact *fact = item;
	(void)user;
	md_archive_string(a, "name", &fact->name);
	md_archive_string(a, "value", &fact->value);
}

static void visit_text(struct md_archive *a, void *item, void *user)
{
	struct md_text *text = item;
	(void)user;
	md_archive_string(a, "text", &text->text);
}

static bool has_all(const struct md_argument_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (!list->items[i].text)
			return false;
	return true;
}

/* Files of earlier versions may have secrets in them, which nobody is shown; arguments are compared without them. */
static void visit_arguments(struct md_archive *a, const char *name, const char *keyword, struct md_argument_list *list,
			    bool (*hide)(struct md_argument_list *list))
{
	if (a->ops->text || md_archive_has(a, name, list->count != 0))
		md_archive_list(a, name, keyword, &list->items, &list->count, sizeof(*list->items), visit_text, NULL);
	if (a->ops->reading && a->status == MD_OK && has_all(list) && !hide(list))
		md_archive_fail_memory(a);
}

static void visit_limits(struct md_archive *a, uint64_t *limits)
{
	for (unsigned i = 0; i < MD_LIMITS; i++)
		if (md_archive_has(a, md_limit_key(i), limits[i] != 0))
			md_archive_u64(a, md_limit_key(i), &limits[i]);
}

static void visit_fingerprint(struct md_archive *a, void *item, void *user)
{
	struct md_fingerprint *fingerprint = &((struct md_artifact *)item)->fingerprint;
	md_archive_fixed(a, "device_name", fingerprint->device_name, sizeof(fingerprint->device_name));
	md_archive_i32(a, "compute_major", &fingerprint->compute_major);
	md_archive_i32(a, "compute_minor", &fingerprint->compute_minor);
	md_archive_i32(a, "multiprocessors", &fingerprint->multiprocessors);
	md_archive_u64(a, "device_memory", &fingerprint->device_memory);
	md_archive_i32(a, "driver_version", &fingerprint->driver_version);
	visit_limits(a, fingerprint->limits);
	md_archive_list(a, "libraries", "library", &fingerprint->libraries, &fingerprint->library_count,
			sizeof(*fingerprint->libraries), visit_library, user);
	if (a->ops->text || md_archive_has(a, "facts", fingerprint->fact_count != 0))
		md_archive_list(a, "facts", "fact", &fingerprint->facts, &fingerprint->fact_count,
				sizeof(*fingerprint->facts), visit_fact, user);
	visit_arguments(a, "arguments", "argument", &fingerprint->arguments, md_secret_hide_arguments);
	visit_arguments(a, "vary", "may_vary", &fingerprint->vary, md_secret_hide_patterns);
}

/* ---- allocations and bindings ---- */

static void visit_alloc(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_alloc *alloc = item;
	(void)user;
	visit_enum(a, "class", &alloc->class);
	visit_enum(a, "family", &alloc->family);
	md_archive_u32(a, "binding", &alloc->binding);
	md_archive_u32(a, "order", &alloc->order);
	md_archive_u64(a, "size", &alloc->size);
	md_archive_u64(a, "arena_offset", &alloc->arena_offset);
	if (md_archive_has(a, "variable", alloc->variable != NULL)) {
		md_archive_string(a, "variable", &alloc->variable);
		md_archive_u32(a, "image", &alloc->image);
	}
}

static void visit_allocations(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_u64(a, "arena_size", &artifact->arena_size);
	md_archive_list(a, "allocs", "alloc", &artifact->allocs, &artifact->alloc_count, sizeof(*artifact->allocs),
			visit_alloc, user);
}

static void visit_binding(struct md_archive *a, void *item, void *user)
{
	struct md_binding *binding = item;
	(void)user;
	md_archive_string(a, "name", &binding->name);
	md_archive_u64(a, "size", &binding->size);
	visit_enum(a, "role", &binding->role);
	if (md_archive_has(a, "hash", binding->hashed)) {
		md_archive_bytes(a, "hash", binding->hash.bytes, sizeof(binding->hash.bytes));
		if (a->ops->reading)
			binding->hashed = true;
	}
	if (md_archive_has(a, "varied", binding->varied))
		md_archive_bool(a, "varied", &binding->varied);
	if (md_archive_has(a, "before", binding->adjoins)) {
		md_archive_u32(a, "before", &binding->before);
		if (a->ops->reading)
			binding->adjoins = true;
	}
	if (md_archive_has(a, "align", binding->align > 1))
		md_archive_u32(a, "align", &binding->align);
	if (md_archive_has(a, "within", binding->overlaps)) {
		md_archive_u32(a, "within", &binding->within);
		md_archive_u64(a, "distance", &binding->distance);
		if (a->ops->reading)
			binding->overlaps = true;
	}
}

static void visit_request(struct md_archive *a, void *item, void *user)
{
	struct md_sequence_request *request = item;
	(void)user;
	md_archive_u32(a, "family", &request->family);
	md_archive_u64(a, "size", &request->size);
	md_archive_u32(a, "below", &request->below);
	md_archive_u32(a, "freed", &request->freed);
}

static void visit_bindings(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_list(a, "bindings", "binding", &artifact->bindings, &artifact->binding_count,
			sizeof(*artifact->bindings), visit_binding, user);
	if (a->ops->text || md_archive_has(a, "requests", artifact->request_count != 0))
		md_archive_list(a, "requests", "request", &artifact->requests, &artifact->request_count,
				sizeof(*artifact->requests), visit_request, user);
}

/* ---- kernels and images ---- */

static void visit_param(struct md_archive *a, void *item, void *user)
{
	struct md_param *param = item;
	(void)user;
	md_archive_u32(a, "offset", &param->offset);
	md_archive_u32(a, "size", &param->size);
}

static void visit_kernel(struct md_archive *a, void *item, void *user)
{
	struct md_kernel *kernel = item;
	md_archive_u32(a, "image", &kernel->image);
	md_archive_string(a, "name", &kernel->name);
	md_archive_i32(a, "max_dynamic_shared_bytes", &kernel->state.max_dynamic_shared_bytes);
	md_archive_i32(a, "preferred_carveout", &kernel->state.preferred_carveout);
	md_archive_i32(a, "non_portable_cluster", &kernel->state.non_portable_cluster);
	md_archive_i32(a, "registers", &kernel->state.registers);
	md_archive_i32(a, "static_shared_bytes", &kernel->state.static_shared_bytes);
	md_archive_list(a, "params", "param", &kernel->params, &kernel->param_count, sizeof(*kernel->params),
			visit_param, user);
}

static void visit_kernels(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_list(a, "kernels", "kernel", &artifact->kernels, &artifact->kernel_count, sizeof(*artifact->kernels),
			visit_kernel, user);
}

static void visit_frame(struct md_archive *a, struct md_image_frame *frame)
{
	md_archive_u64(a, "frame_offset", &frame->offset);
	md_archive_u64(a, "frame_size", &frame->stored);
	md_archive_u64(a, "frame_checksum", &frame->checksum);
}

static void visit_value(struct md_archive *a, void *item, void *user)
{
	struct md_image_value *value = item;
	md_archive_string(a, "name", &value->name);
	md_archive_u64(a, "size", &value->size);
	if (a->status == MD_OK && (!value->size || value->size > MD_IMAGE_VALUE_MAX))
		md_archive_fail(a, MD_ERR_CORRUPT, "a variable of %" PRIu64 " bytes, at most %u", value->size,
				MD_IMAGE_VALUE_MAX);
	if (a->ops->text || md_archive_has(a, "pointers", value->pointer_count != 0))
		md_archive_list(a, "pointers", "pointer", &value->pointers, &value->pointer_count,
				sizeof(*value->pointers), md_visit_pointer, user);
	md_archive_blob(a, "data", &value->data, value->size);
}

static void visit_image(struct md_archive *a, void *item, void *user)
{
	struct md_image *image = item;
	struct md_section_state *state = user; /* NULL in the text twin */
	bool stored = image->data != NULL;
	md_archive_bytes(a, "hash", image->hash.bytes, sizeof(image->hash.bytes));
	visit_enum(a, "kind", &image->kind);
	md_archive_u64(a, "size", &image->size);
	md_archive_string(a, "path", &image->path);
	md_archive_string(a, "build_id", &image->build_id);
	md_archive_u64(a, "file_offset", &image->file_offset);
	if (md_archive_has(a, "variable", image->variable != NULL))
		md_archive_string(a, "variable", &image->variable);
	md_archive_bool(a, "stored", &stored);
	if (a->ops->text || md_archive_has(a, "values", image->value_count != 0))
		md_archive_list(a, "values", "value", &image->values, &image->value_count, sizeof(*image->values),
				visit_value, NULL);
	if (stored && a->ops->text)
		md_archive_blob(a, "data", &image->data, image->size);
	else if (stored)
		visit_frame(a, a->ops->reading ? &image->frame : &state->frames[state->image_at]);
	if (stored && !a->ops->text && a->ops->reading && a->status == MD_OK && !image->frame.stored)
		md_archive_fail(a, MD_ERR_CORRUPT, "a stored image has a frame of no bytes");
	if (state)
		state->image_at++;
}

static void visit_images(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_list(a, "images", "image", &artifact->images, &artifact->image_count, sizeof(*artifact->images),
			visit_image, user);
}

/* ---- graphs and pointers ---- */

/* A deterministic graph has no tolerance. */
static void visit_accepted(struct md_archive *a, struct md_tolerance *accepted)
{
	accepted->given = md_archive_has(a, "accepted_ulps", accepted->given);
	if (!accepted->given)
		return;
	md_archive_u64(a, "accepted_ulps", &accepted->ulps);
	visit_enum(a, "accepted_type", &accepted->type);
}

void md_visit_graph_head(struct md_archive *a, struct md_artifact_graph *graph)
{
	md_archive_string(a, "label", &graph->label);
	md_archive_u32(a, "batch", &graph->batch);
	visit_enum(a, "proof", &graph->proof);
	md_archive_u64(a, "instantiate_flags", &graph->instantiate_flags);
	md_archive_u64(a, "constant_words", &graph->constant_words);
	md_archive_u64(a, "pointer_words", &graph->pointer_words);
	md_archive_u64(a, "noise_words", &graph->noise_words);
	visit_accepted(a, &graph->accepted);
	if (md_archive_has(a, "group", graph->group != 0))
		md_archive_u32(a, "group", &graph->group);
	if (md_archive_has(a, "note_size", graph->note_size != 0))
		md_archive_u64(a, "note_size", &graph->note_size);
	if (a->status == MD_OK && graph->note_size > MD_NOTE_MAX)
		md_archive_fail(a, MD_ERR_CORRUPT, "a note of %" PRIu64 " bytes, at most %u", graph->note_size,
				MD_NOTE_MAX);
}

static void visit_output(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_output *output = item;
	(void)user;
	md_archive_u32(a, "alloc", &output->alloc);
	md_archive_u64(a, "offset", &output->offset);
	md_archive_u64(a, "size", &output->size);
}

void md_visit_graph_tail(struct md_archive *a, struct md_artifact_graph *graph)
{
	if (a->ops->text || md_archive_has(a, "outputs", graph->output_count != 0))
		md_archive_list(a, "outputs", "output", &graph->outputs, &graph->output_count, sizeof(*graph->outputs),
				visit_output, NULL);
	if (a->ops->text || md_archive_has(a, "doubtful", graph->doubtful_count != 0))
		md_archive_list(a, "doubtful", "doubtful", &graph->doubtful, &graph->doubtful_count,
				sizeof(*graph->doubtful), md_visit_doubtful, NULL);
	if (a->ops->text || md_archive_has(a, "handed", graph->handed_count != 0))
		md_archive_list(a, "handed", "handed", &graph->handed, &graph->handed_count, sizeof(*graph->handed),
				md_visit_handed, NULL);
	if (a->status == MD_OK && graph->note_size)
		md_archive_blob(a, "note", &graph->note, graph->note_size);
}

static void visit_refusal(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_refusal *refusal = item;
	(void)user;
	md_archive_string(a, "label", &refusal->label);
	md_archive_u32(a, "batch", &refusal->batch);
	md_archive_string(a, "why", &refusal->why);
}

static void visit_graphs(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_list(a, "refusals", "refusal", &artifact->refusals, &artifact->refusal_count,
			sizeof(*artifact->refusals), visit_refusal, user);
	if (a->ops->text)
		md_section_graphs_text(a, artifact);
	else
		md_section_graphs(a, artifact, user);
}

static void visit_pointers(struct md_archive *a, void *item, void *user)
{
	md_section_pointers(a, item, user);
}

void md_visit_pointer(struct md_archive *a, void *item, void *user)
{
	struct md_pointer *pointer = item;
	(void)user;
	md_archive_u32(a, "node", &pointer->node);
	md_archive_u32(a, "at", &pointer->at);
	md_archive_u32(a, "alloc", &pointer->alloc);
	md_archive_u8(a, "kind", &pointer->kind);
	md_archive_i64(a, "offset", &pointer->offset);
}

/* ---- contents ---- */

static void visit_content(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_content *content = item;
	md_archive_u32(a, "alloc", &content->alloc);
	md_archive_u64(a, "offset", &content->offset);
	md_archive_u64(a, "size", &content->size);
	if (md_archive_has(a, "compared", content->compared))
		md_archive_bool(a, "compared", &content->compared);
	md_archive_list(a, "pointers", "pointer", &content->pointers, &content->pointer_count,
			sizeof(*content->pointers), md_visit_pointer, user);
	md_archive_blob(a, "data", &content->data, content->size);
}

static void visit_contents(struct md_archive *a, void *item, void *user)
{
	struct md_artifact *artifact = item;
	md_archive_list(a, "contents", "content", &artifact->contents, &artifact->content_count,
			sizeof(*artifact->contents), visit_content, user);
}

/* ---- KV capacity and provenance ---- */

static void visit_kv(struct md_archive *a, void *item, void *user)
{
	struct md_kv *kv = &((struct md_artifact *)item)->kv;
	(void)user;
	md_archive_bool(a, "present", &kv->present);
	md_archive_u64(a, "baseline_free", &kv->baseline_free);
	md_archive_u64(a, "peak", &kv->peak);
	md_archive_u64(a, "graph_bytes", &kv->graph_bytes);
	md_archive_u64(a, "kv_bytes", &kv->kv_bytes);
	md_archive_u64(a, "block_bytes", &kv->block_bytes);
	md_archive_u64(a, "blocks", &kv->blocks);
	md_archive_u32(a, "utilization_ppm", &kv->utilization_ppm);
	md_archive_fixed(a, "key", kv->key, sizeof(kv->key));
}

static void visit_stage(struct md_archive *a, void *item, void *user)
{
	struct md_stage_time *stage = item;
	(void)user;
	md_archive_fixed(a, "name", stage->name, sizeof(stage->name));
	md_archive_u64(a, "ns", &stage->ns);
}

static void hide_secrets(struct md_archive *a, char **line)
{
	if (!a->ops->reading || a->status != MD_OK || !*line)
		return;
	char *hidden = md_secret_hide_line(*line);
	if (!hidden)
		return md_archive_fail_memory(a);
	free(*line);
	*line = hidden;
}

static void visit_provenance(struct md_archive *a, void *item, void *user)
{
	struct md_provenance *provenance = &((struct md_artifact *)item)->provenance;
	md_archive_string(a, "tool_version", &provenance->tool_version);
	md_archive_string(a, "command", &provenance->command);
	hide_secrets(a, &provenance->command);
	md_archive_string(a, "created", &provenance->created);
	if (md_archive_has(a, "verification", provenance->verification))
		md_archive_string(a, "verification", &provenance->verification);
	if (md_archive_has(a, "checks", provenance->checks))
		md_archive_string(a, "checks", &provenance->checks);
	if (md_archive_has(a, "scratch_addresses", provenance->scratch_addresses != 0))
		md_archive_u64(a, "scratch_addresses", &provenance->scratch_addresses);
	md_archive_u32(a, "capture_count", &provenance->capture_count);
	md_archive_list(a, "stages", "stage", &provenance->stages, &provenance->stage_count,
			sizeof(*provenance->stages), visit_stage, user);
}

/* Graphs come before pointers, because pointers are coded relative to the graphs' nodes. */
const struct md_section_kind md_section_kinds[MD_SECTION_COUNT] = {
    {"fingerprint", 9, false, visit_fingerprint, true},
    {"provenance", 9, false, visit_provenance, true},
    {"kv", 9, false, visit_kv, true},
    {"bindings", 9, false, visit_bindings, true},
    {"allocations", 12, false, visit_allocations, true},
    {"kernels", 12, false, visit_kernels, true},
    {"graphs", 12, true, visit_graphs, true},
    {"pointers", 12, true, visit_pointers, false},
    {"contents", 9, true, visit_contents, true},
    {"images", 12, false, visit_images, true},
};
