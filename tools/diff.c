/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between two artifacts: the list of them, and everything but graphs. */
#include "tools/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect.h"

/* ---- the list ---- */

static char *copy(struct md_diff *diff, const char *text)
{
	char *made = text ? strdup(text) : NULL;
	diff->failed |= text && !made;
	return made;
}

static struct md_difference *add(struct md_diff *diff, const char *section, const char *item, const char *what)
{
	if (diff->count == diff->capacity) {
		size_t capacity = diff->capacity ? 2 * diff->capacity : 64;
		struct md_difference *grown = realloc(diff->list, capacity * sizeof(*grown));
		if (!grown) {
			diff->failed = true;
			return NULL;
		}
		diff->list = grown;
		diff->capacity = capacity;
	}
	struct md_difference *made = &diff->list[diff->count++];
	*made = (struct md_difference){.section = section, .item = copy(diff, item), .what = what};
	return made;
}

void md_diff_text(struct md_diff *diff, const char *section, const char *item, const char *what, const char *a,
		  const char *b)
{
	if ((!a && !b) || (a && b && !strcmp(a, b)))
		return;
	struct md_difference *made = add(diff, section, item, what);
	if (made) {
		made->a = copy(diff, a);
		made->b = copy(diff, b);
	}
}

void md_diff_number(struct md_diff *diff, const char *section, const char *item, const char *what, int64_t a, int64_t b)
{
	char text_a[24], text_b[24];
	snprintf(text_a, sizeof(text_a), "%" PRId64, a);
	snprintf(text_b, sizeof(text_b), "%" PRId64, b);
	md_diff_text(diff, section, item, what, text_a, text_b);
}

void md_diff_tally(struct md_diff *diff, const char *section, const char *item, const char *what,
		   const struct md_diff_tally *tally)
{
	struct md_difference *made = tally->count ? add(diff, section, item, what) : NULL;
	if (!made)
		return;
	made->count = tally->count;
	made->first = copy(diff, tally->first);
	made->a = copy(diff, tally->a);
	made->b = copy(diff, tally->b);
}

void md_diff_chance(struct md_diff *diff, size_t before)
{
	for (size_t i = before; i < diff->count; i++)
		diff->list[i].chance = true;
}

void md_diff_finish(struct md_diff *diff)
{
	for (size_t i = 0; i < diff->count; i++) {
		free(diff->list[i].item);
		free(diff->list[i].a);
		free(diff->list[i].b);
		free(diff->list[i].first);
	}
	free(diff->list);
	free(diff->kernel_of_b);
	free(diff->alloc_of_a);
	free(diff->alloc_of_b);
	*diff = (struct md_diff){0};
}

/* ---- tables whose items have names ---- */

struct table { /* how to go through the items of one side */
	uint32_t count;
	const void *owner;
	void (*name)(const void *owner, uint32_t index, char *out, size_t room);
};

#define NAME_ROOM 4200 /* the longest name that the format allows, and a word before it */

static uint32_t find(const struct table *in, const char *name)
{
	char other[NAME_ROOM];
	for (uint32_t i = 0; i < in->count; i++) {
		in->name(in->owner, i, other, sizeof(other));
		if (!strcmp(other, name))
			return i;
	}
	return MD_NONE;
}

/* Calls back for each name of either side; a side without it is MD_NONE. */
static void for_each_name(struct md_diff *diff, const struct table *a, const struct table *b,
			  void (*compare)(struct md_diff *diff, const char *name, uint32_t a, uint32_t b))
{
	char name[NAME_ROOM];
	for (uint32_t i = 0; i < a->count; i++) {
		a->name(a->owner, i, name, sizeof(name));
		if (find(a, name) == i) /* a name that appears twice is compared once */
			compare(diff, name, i, find(b, name));
	}
	for (uint32_t i = 0; i < b->count; i++) {
		b->name(b->owner, i, name, sizeof(name));
		if (find(b, name) == i && find(a, name) == MD_NONE)
			compare(diff, name, MD_NONE, i);
	}
}

/* ---- fingerprint ---- */

static void name_fact(const void *owner, uint32_t index, char *out, size_t room)
{
	const struct md_artifact *artifact = owner;
	snprintf(out, room, "fact %s", artifact->fingerprint.facts[index].name);
}

static void compare_fact(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	md_diff_text(diff, "fingerprint", name, a == MD_NONE || b == MD_NONE ? NULL : "value",
		     a == MD_NONE ? NULL : diff->a->fingerprint.facts[a].value,
		     b == MD_NONE ? NULL : diff->b->fingerprint.facts[b].value);
}

/* By the file's name, as restore compares them. */
static void name_library(const void *owner, uint32_t index, char *out, size_t room)
{
	const char *path = ((const struct md_artifact *)owner)->fingerprint.libraries[index].path;
	const char *slash = strrchr(path, '/');
	snprintf(out, room, "library %s", slash ? slash + 1 : path);
}

static void compare_library(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	md_diff_text(diff, "fingerprint", name, a == MD_NONE || b == MD_NONE ? NULL : "build id",
		     a == MD_NONE ? NULL : diff->a->fingerprint.libraries[a].build_id,
		     b == MD_NONE ? NULL : diff->b->fingerprint.libraries[b].build_id);
}

/* One by one: a position that only one side has counts as other. */
static void diff_texts(struct md_diff *diff, const char *what, const struct md_argument_list *a,
		       const struct md_argument_list *b)
{
	for (uint32_t i = 0; i < a->count || i < b->count; i++) {
		char name[64];
		snprintf(name, sizeof(name), "%s %u", what, i);
		md_diff_text(diff, "fingerprint", name, i < a->count && i < b->count ? "value" : NULL,
			     i < a->count ? a->items[i].text : NULL, i < b->count ? b->items[i].text : NULL);
	}
}

static void diff_fingerprint(struct md_diff *diff)
{
	const struct md_fingerprint *a = &diff->a->fingerprint, *b = &diff->b->fingerprint;
	md_diff_text(diff, "fingerprint", "", "device name", a->device_name, b->device_name);
	md_diff_number(diff, "fingerprint", "", "compute capability (major)", a->compute_major, b->compute_major);
	md_diff_number(diff, "fingerprint", "", "compute capability (minor)", a->compute_minor, b->compute_minor);
	md_diff_number(diff, "fingerprint", "", "multiprocessors", a->multiprocessors, b->multiprocessors);
	md_diff_number(diff, "fingerprint", "", "device memory", (int64_t)a->device_memory, (int64_t)b->device_memory);
	md_diff_number(diff, "fingerprint", "", "driver version", a->driver_version, b->driver_version);
	for_each_name(diff, &(struct table){a->library_count, diff->a, name_library},
		      &(struct table){b->library_count, diff->b, name_library}, compare_library);
	for_each_name(diff, &(struct table){a->fact_count, diff->a, name_fact},
		      &(struct table){b->fact_count, diff->b, name_fact}, compare_fact);
	if (a->fact_count && b->fact_count)
		return; /* they decide alone */
	diff_texts(diff, "argument", &a->arguments, &b->arguments);
	diff_texts(diff, "pattern of --vary", &a->vary, &b->vary);
}

/* ---- bindings and private memory ---- */

static void name_binding(const void *owner, uint32_t index, char *out, size_t room)
{
	snprintf(out, room, "%s", ((const struct md_artifact *)owner)->bindings[index].name);
}

static void compare_binding(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	const struct md_binding *x = a == MD_NONE ? NULL : &diff->a->bindings[a];
	const struct md_binding *y = b == MD_NONE ? NULL : &diff->b->bindings[b];
	char text[64];
	if (x && y) {
		md_diff_number(diff, "bindings", name, "bytes", (int64_t)x->size, (int64_t)y->size);
		md_diff_text(diff, "bindings", name, "role", md_inspect_role(x->role), md_inspect_role(y->role));
		return;
	}
	const struct md_binding *only = x ? x : y;
	snprintf(text, sizeof(text), "%s, %" PRIu64 " bytes", md_inspect_role(only->role), only->size);
	md_diff_text(diff, "bindings", name, NULL, x ? text : NULL, y ? text : NULL);
}

/* What an engine that binds nothing allocated, and how it lay. */
static void compare_requests(struct md_diff *diff)
{
	const struct md_sequence_side a = {diff->a->requests, diff->a->request_count, "the first", "in the first"};
	const struct md_sequence_side b = {diff->b->requests, diff->b->request_count, "the second", "in the second"};
	struct md_error differs = {0};
	if (md_sequence_compare(&a, &b, &differs) != MD_OK)
		md_diff_text(diff, "bindings", "allocations in their order", NULL, NULL, differs.message);
}

static uint32_t count_class(const struct md_artifact *artifact, enum md_binding_class class)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
		count += artifact->allocs[i].class == class;
	return count;
}

static void diff_memory(struct md_diff *diff)
{
	const struct md_artifact *a = diff->a, *b = diff->b;
	for_each_name(diff, &(struct table){a->binding_count, a, name_binding},
		      &(struct table){b->binding_count, b, name_binding}, compare_binding);
	compare_requests(diff);
	md_diff_number(diff, "allocations", "", "private bytes", (int64_t)a->arena_size, (int64_t)b->arena_size);
	md_diff_number(diff, "allocations", "", "private allocations", count_class(a, MD_CLASS_PRIVATE),
		       count_class(b, MD_CLASS_PRIVATE));
	md_diff_number(diff, "allocations", "", "allocations in sequence", count_class(a, MD_CLASS_SEQUENCE),
		       count_class(b, MD_CLASS_SEQUENCE));
}

/* ---- images and kernels ---- */

static void name_image(const void *owner, uint32_t index, char *out, size_t room)
{
	char hash[MD_HASH_TEXT_BYTES];
	md_hash_format(&((const struct md_artifact *)owner)->images[index].hash, hash);
	snprintf(out, room, "%s", hash);
}

static void compare_image(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	const struct md_image *x = a == MD_NONE ? NULL : &diff->a->images[a];
	const struct md_image *y = b == MD_NONE ? NULL : &diff->b->images[b];
	char text[NAME_ROOM];
	if (x && y) {
		md_diff_text(diff, "images", name, "from", md_inspect_image_source(x), md_inspect_image_source(y));
		return;
	}
	const struct md_image *only = x ? x : y;
	snprintf(text, sizeof(text), "%" PRIu64 " bytes, from %.400s", only->size, md_inspect_image_source(only));
	md_diff_text(diff, "images", name, NULL, x ? text : NULL, y ? text : NULL);
}

static bool same_image(const struct md_diff *diff, const struct md_kernel *a, const struct md_kernel *b)
{
	if (a->image == MD_NONE || b->image == MD_NONE)
		return a->image == b->image;
	return md_hash_equal(&diff->a->images[a->image].hash, &diff->b->images[b->image].hash);
}

/* Of the same image if there is one, else of the same name alone; each one of a is taken once. */
static uint32_t partner(const struct md_diff *diff, const bool *taken, uint32_t of, bool image_too)
{
	const struct md_kernel *kernel = &diff->b->kernels[of];
	for (uint32_t i = 0; i < diff->a->kernel_count; i++) {
		const struct md_kernel *other = &diff->a->kernels[i];
		if (!taken[i] && !strcmp(other->name, kernel->name) && (!image_too || same_image(diff, other, kernel)))
			return i;
	}
	return MD_NONE;
}

static void image_text(const struct md_artifact *artifact, const struct md_kernel *kernel, char out[MD_HASH_TEXT_BYTES])
{
	if (kernel->image == MD_NONE)
		strncpy(out, "not seen", MD_HASH_TEXT_BYTES);
	else
		md_hash_format(&artifact->images[kernel->image].hash, out);
}

static void params_text(const struct md_kernel *kernel, char *out, size_t room)
{
	size_t used = (size_t)snprintf(out, room, "%" PRIu32 ":", kernel->param_count);
	for (uint32_t i = 0; i < kernel->param_count && used + 32 < room; i++)
		used += (size_t)snprintf(out + used, room - used, " %" PRIu32 "@%" PRIu32, kernel->params[i].size,
					 kernel->params[i].offset);
}

static void compare_kernels(struct md_diff *diff, const struct md_kernel *x, const struct md_kernel *y)
{
	char a[NAME_ROOM], b[NAME_ROOM];
	const struct md_func_state *s = &x->state, *t = &y->state;
	image_text(diff->a, x, a);
	image_text(diff->b, y, b);
	md_diff_text(diff, "kernels", x->name, "image", a, b);
	params_text(x, a, sizeof(a));
	params_text(y, b, sizeof(b));
	md_diff_text(diff, "kernels", x->name, "parameters", a, b);
	md_diff_number(diff, "kernels", x->name, "max dynamic shared bytes", s->max_dynamic_shared_bytes,
		       t->max_dynamic_shared_bytes);
	md_diff_number(diff, "kernels", x->name, "preferred carveout", s->preferred_carveout, t->preferred_carveout);
	md_diff_number(diff, "kernels", x->name, "non-portable cluster", s->non_portable_cluster,
		       t->non_portable_cluster);
	md_diff_number(diff, "kernels", x->name, "registers", s->registers, t->registers);
	md_diff_number(diff, "kernels", x->name, "static shared bytes", s->static_shared_bytes, t->static_shared_bytes);
}

static void one_kernel(struct md_diff *diff, const struct md_kernel *kernel, bool in_a)
{
	char image[MD_HASH_TEXT_BYTES], text[64];
	image_text(in_a ? diff->a : diff->b, kernel, image);
	snprintf(text, sizeof(text), "image %s", image);
	md_diff_text(diff, "kernels", kernel->name, NULL, in_a ? text : NULL, in_a ? NULL : text);
}

static void diff_kernels(struct md_diff *diff)
{
	bool *taken = calloc((size_t)diff->a->kernel_count + 1, sizeof(*taken));
	diff->failed |= !taken;
	for (int pass = 0; pass < 2 && taken; pass++)
		for (uint32_t i = 0; i < diff->b->kernel_count; i++) {
			if (diff->kernel_of_b[i] != MD_NONE)
				continue;
			uint32_t found = partner(diff, taken, i, pass == 0);
			diff->kernel_of_b[i] = found;
			if (found != MD_NONE)
				taken[found] = true;
		}
	for (uint32_t i = 0; taken && i < diff->a->kernel_count; i++)
		if (!taken[i])
			one_kernel(diff, &diff->a->kernels[i], true);
	for (uint32_t i = 0; taken && i < diff->b->kernel_count; i++) {
		uint32_t of_a = diff->kernel_of_b[i];
		if (of_a == MD_NONE)
			one_kernel(diff, &diff->b->kernels[i], false);
		else
			compare_kernels(diff, &diff->a->kernels[of_a], &diff->b->kernels[i]);
	}
	free(taken);
}

/* ---- KV capacity ---- */

static void diff_kv(struct md_diff *diff)
{
	const struct md_kv *a = &diff->a->kv, *b = &diff->b->kv;
	md_diff_text(diff, "kv", "", "measured", a->present ? "yes" : "no", b->present ? "yes" : "no");
	if (!a->present || !b->present)
		return;
	md_diff_text(diff, "kv", "", "key", a->key, b->key);
	md_diff_number(diff, "kv", "", "bytes", (int64_t)a->kv_bytes, (int64_t)b->kv_bytes);
	md_diff_number(diff, "kv", "", "blocks", (int64_t)a->blocks, (int64_t)b->blocks);
	md_diff_number(diff, "kv", "", "block bytes", (int64_t)a->block_bytes, (int64_t)b->block_bytes);
	md_diff_number(diff, "kv", "", "free before", (int64_t)a->baseline_free, (int64_t)b->baseline_free);
	md_diff_number(diff, "kv", "", "peak", (int64_t)a->peak, (int64_t)b->peak);
	md_diff_number(diff, "kv", "", "graph bytes", (int64_t)a->graph_bytes, (int64_t)b->graph_bytes);
	md_diff_number(diff, "kv", "", "utilization (ppm)", a->utilization_ppm, b->utilization_ppm);
}

/* ---- the whole ---- */

static uint32_t *no_partners(struct md_diff *diff, uint32_t count)
{
	uint32_t *made = malloc(((size_t)count + 1) * sizeof(*made));
	diff->failed |= !made;
	for (uint32_t i = 0; made && i < count; i++)
		made[i] = MD_NONE;
	return made;
}

bool md_diff_artifacts(const struct md_artifact *a, const struct md_artifact *b, struct md_diff *out)
{
	*out = (struct md_diff){.a = a, .b = b};
	out->kernel_of_b = no_partners(out, b->kernel_count);
	out->alloc_of_a = no_partners(out, a->alloc_count);
	out->alloc_of_b = no_partners(out, b->alloc_count);
	if (out->failed)
		return false;
	diff_fingerprint(out);
	diff_memory(out);
	for_each_name(out, &(struct table){a->image_count, a, name_image},
		      &(struct table){b->image_count, b, name_image}, compare_image);
	diff_kernels(out);
	if (!out->failed)
		md_diff_graphs(out);
	diff_kv(out);
	for (size_t i = 0; i < out->count; i++)
		out->real += !out->list[i].chance;
	return !out->failed;
}
