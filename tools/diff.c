/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between two artifacts: the list of them, and everything but graphs. */
#include "tools/diff.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tools/inspect.h"
#include "tools/name_index.h"

#define TEXT_ROOM 4200

/* ---- the list ---- */

static char *copy(struct md_diff *diff, const char *text)
{
	char *made = text ? strdup(text) : NULL;
	diff->failed |= text && !made;
	return made;
}

static struct md_difference *add(struct md_diff *diff, const char *section, const char *item, const char *what)
{
	if (!MD_ARRAY_GROW(diff->list, diff->count, diff->capacity)) {
		diff->failed = true;
		return NULL;
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
	free(diff->binding_of_b);
	free(diff->alloc_of_a);
	free(diff->alloc_of_b);
	free(diff->node_of_key);
	free(diff->nodes_of_key);
	*diff = (struct md_diff){0};
}

/* ---- tables whose items have names ---- */

char *md_diff_name(const char *format, ...)
{
	char *text;
	va_list args;
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return text;
}

static bool index_names(const struct md_diff_table *table, struct md_names *names)
{
	bool whole = md_names_init(names, table->count);
	for (uint32_t i = 0; whole && i < table->count; i++)
		whole = md_names_add(names, table->name(table->owner, i), i);
	return whole;
}

/* Calls back for each name of `from` once; names on both sides are left to a's turn. */
static void for_each_of(struct md_diff *diff, const struct md_diff_table *from, const struct md_names *own,
			const struct md_names *others, bool in_a, md_diff_compare *compare)
{
	for (uint32_t i = 0; i < from->count; i++) {
		char *name = from->name(from->owner, i);
		uint32_t other = name ? md_names_first(others, name) : MD_NONE;
		diff->failed |= !name;
		if (name && md_names_first(own, name) == i && (in_a || other == MD_NONE))
			compare(diff, name, in_a ? i : MD_NONE, in_a ? other : i);
		free(name);
	}
}

void md_diff_tables(struct md_diff *diff, const struct md_diff_table *a, const struct md_diff_table *b,
		    md_diff_compare *compare)
{
	struct md_names in_a = {0}, in_b = {0};
	if (index_names(a, &in_a) && index_names(b, &in_b)) {
		for_each_of(diff, a, &in_a, &in_b, true, compare);
		for_each_of(diff, b, &in_b, &in_a, false, compare);
	} else {
		diff->failed = true;
	}
	md_names_finish(&in_a);
	md_names_finish(&in_b);
}

/* ---- fingerprint ---- */

static char *name_fact(const void *owner, uint32_t index)
{
	return md_diff_name("fact %s", ((const struct md_artifact *)owner)->fingerprint.facts[index].name);
}

static void compare_fact(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	md_diff_text(diff, "fingerprint", name, a == MD_NONE || b == MD_NONE ? NULL : "value",
		     a == MD_NONE ? NULL : diff->a->fingerprint.facts[a].value,
		     b == MD_NONE ? NULL : diff->b->fingerprint.facts[b].value);
}

/* By the file's name, as restore compares them. */
static char *name_library(const void *owner, uint32_t index)
{
	const char *path = ((const struct md_artifact *)owner)->fingerprint.libraries[index].path;
	const char *slash = strrchr(path, '/');
	return md_diff_name("library %s", slash ? slash + 1 : path);
}

static void compare_library(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	md_diff_text(diff, "fingerprint", name, a == MD_NONE || b == MD_NONE ? NULL : "build id",
		     a == MD_NONE ? NULL : diff->a->fingerprint.libraries[a].build_id,
		     b == MD_NONE ? NULL : diff->b->fingerprint.libraries[b].build_id);
}

/* One by one: text at a position that only one side has counts as different. */
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
	for (unsigned i = 0; i < MD_LIMITS; i++)
		md_diff_number(diff, "fingerprint", md_limit_name(i), "limit", (int64_t)a->limits[i],
			       (int64_t)b->limits[i]);
	md_diff_tables(diff, &(struct md_diff_table){a->library_count, diff->a, name_library},
		       &(struct md_diff_table){b->library_count, diff->b, name_library}, compare_library);
	md_diff_tables(diff, &(struct md_diff_table){a->fact_count, diff->a, name_fact},
		       &(struct md_diff_table){b->fact_count, diff->b, name_fact}, compare_fact);
	if (a->fact_count && b->fact_count)
		return; /* facts decide alone */
	diff_texts(diff, "argument", &a->arguments, &b->arguments);
	diff_texts(diff, "pattern of --vary", &a->vary, &b->vary);
}

/* ---- bindings and private memory ---- */

static char *name_binding(const void *owner, uint32_t index)
{
	return strdup(((const struct md_artifact *)owner)->bindings[index].name);
}

static void hash_text(const struct md_binding *binding, char out[MD_HASH_TEXT_BYTES])
{
	if (binding->hashed)
		md_hash_format(&binding->hash, out);
	else
		strncpy(out, "none", MD_HASH_TEXT_BYTES);
}

static void compare_binding(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	const struct md_binding *x = a == MD_NONE ? NULL : &diff->a->bindings[a];
	const struct md_binding *y = b == MD_NONE ? NULL : &diff->b->bindings[b];
	char text[64], one[MD_HASH_TEXT_BYTES], two[MD_HASH_TEXT_BYTES];
	if (b != MD_NONE)
		diff->binding_of_b[b] = a;
	if (x && y) {
		md_diff_number(diff, "bindings", name, "bytes", (int64_t)x->size, (int64_t)y->size);
		md_diff_text(diff, "bindings", name, "role", md_inspect_role(x->role), md_inspect_role(y->role));
		hash_text(x, one);
		hash_text(y, two);
		md_diff_text(diff, "bindings", name, "hash", one, two);
		md_diff_text(diff, "bindings", name, "in the second capture", x->varied ? "another" : "no other",
			     y->varied ? "another" : "no other");
		md_diff_text(diff, "bindings", name, "right behind",
			     x->adjoins ? diff->a->bindings[x->before].name : "none",
			     y->adjoins ? diff->b->bindings[y->before].name : "none");
		md_diff_number(diff, "bindings", name, "alignment", x->align ? x->align : 1, y->align ? y->align : 1);
		md_diff_text(diff, "bindings", name, "shares memory with",
			     x->overlaps ? diff->a->bindings[x->within].name : "none",
			     y->overlaps ? diff->b->bindings[y->within].name : "none");
		md_diff_number(diff, "bindings", name, "bytes behind it", x->overlaps ? (int64_t)x->distance : 0,
			       y->overlaps ? (int64_t)y->distance : 0);
		return;
	}
	const struct md_binding *only = x ? x : y;
	snprintf(text, sizeof(text), "%s, %" PRIu64 " bytes", md_inspect_role(only->role), only->size);
	md_diff_text(diff, "bindings", name, NULL, x ? text : NULL, y ? text : NULL);
}

/* The allocations of an engine that binds nothing, and the order of their addresses. */
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

static const struct md_image_value *find_value(const struct md_image *image, const char *name)
{
	for (uint32_t i = 0; i < image->value_count; i++)
		if (!strcmp(image->values[i].name, name))
			return &image->values[i];
	return NULL;
}

/* Pointers in values may point to other places of the two artifacts; the differences of graphs show those. */
static void diff_values(struct md_diff *diff, const char *item, const struct md_image *a, const struct md_image *b)
{
	for (uint32_t i = 0; i < a->value_count; i++) {
		const struct md_image_value *x = &a->values[i], *y = find_value(b, x->name);
		if (!y || x->size != y->size || memcmp(x->data, y->data, x->size))
			md_diff_text(diff, "images", item, x->name, "a value", y ? "another value" : "none");
	}
	for (uint32_t i = 0; i < b->value_count; i++)
		if (!find_value(a, b->values[i].name))
			md_diff_text(diff, "images", item, b->values[i].name, "none", "a value");
}

static void diff_memory(struct md_diff *diff)
{
	const struct md_artifact *a = diff->a, *b = diff->b;
	md_diff_tables(diff, &(struct md_diff_table){a->binding_count, a, name_binding},
		       &(struct md_diff_table){b->binding_count, b, name_binding}, compare_binding);
	compare_requests(diff);
	md_diff_number(diff, "allocations", "", "private bytes", (int64_t)a->arena_size, (int64_t)b->arena_size);
	md_diff_number(diff, "allocations", "", "private allocations", count_class(a, MD_CLASS_PRIVATE),
		       count_class(b, MD_CLASS_PRIVATE));
	md_diff_number(diff, "allocations", "", "allocations in sequence", count_class(a, MD_CLASS_SEQUENCE),
		       count_class(b, MD_CLASS_SEQUENCE));
}

/* ---- images and kernels ---- */

static char *name_image(const void *owner, uint32_t index)
{
	char hash[MD_HASH_TEXT_BYTES];
	md_hash_format(&((const struct md_artifact *)owner)->images[index].hash, hash);
	return strdup(hash);
}

static void compare_image(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	const struct md_image *x = a == MD_NONE ? NULL : &diff->a->images[a];
	const struct md_image *y = b == MD_NONE ? NULL : &diff->b->images[b];
	char text[TEXT_ROOM];
	if (x && y) {
		md_diff_text(diff, "images", name, "from", md_inspect_image_source(x), md_inspect_image_source(y));
		diff_values(diff, name, x, y);
		return;
	}
	const struct md_image *only = x ? x : y;
	snprintf(text, sizeof(text), "%" PRIu64 " bytes, from %.400s", only->size, md_inspect_image_source(only));
	md_diff_text(diff, "images", name, NULL, x ? text : NULL, y ? text : NULL);
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
	char a[TEXT_ROOM], b[TEXT_ROOM];
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

/* image_too: kernels are the same only if their images are. */
static char *name_kernel(const struct md_artifact *artifact, uint32_t index, bool image_too)
{
	char image[MD_HASH_TEXT_BYTES] = "";
	if (image_too)
		image_text(artifact, &artifact->kernels[index], image);
	return md_diff_name("%s %s", image, artifact->kernels[index].name);
}

/* Pairs kernels that have no partner yet: the n-th of a name in a with the n-th of that name in b. */
static bool pair_kernels(struct md_diff *diff, bool *taken, bool image_too)
{
	struct md_names of_a;
	bool whole = md_names_init(&of_a, diff->a->kernel_count);
	for (uint32_t i = 0; whole && i < diff->a->kernel_count; i++)
		if (!taken[i])
			whole = md_names_add(&of_a, name_kernel(diff->a, i, image_too), i);
	for (uint32_t i = 0; whole && i < diff->b->kernel_count; i++) {
		if (diff->kernel_of_b[i] != MD_NONE)
			continue;
		char *name = name_kernel(diff->b, i, image_too);
		uint32_t found = name ? md_names_take(&of_a, name) : MD_NONE;
		whole = name != NULL;
		free(name);
		diff->kernel_of_b[i] = found;
		if (found != MD_NONE)
			taken[found] = true;
	}
	md_names_finish(&of_a);
	return whole;
}

/* A kernel's partner has the same image, if there is such a kernel, otherwise only the same name. */
static void diff_kernels(struct md_diff *diff)
{
	bool *taken = calloc((size_t)diff->a->kernel_count + 1, sizeof(*taken));
	diff->failed |= !taken || !pair_kernels(diff, taken, true) || !pair_kernels(diff, taken, false);
	for (uint32_t i = 0; !diff->failed && i < diff->a->kernel_count; i++)
		if (!taken[i])
			one_kernel(diff, &diff->a->kernels[i], true);
	for (uint32_t i = 0; !diff->failed && i < diff->b->kernel_count; i++) {
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
	out->binding_of_b = no_partners(out, b->binding_count);
	out->alloc_of_a = no_partners(out, a->alloc_count);
	out->alloc_of_b = no_partners(out, b->alloc_count);
	if (out->failed)
		return false;
	diff_fingerprint(out);
	diff_memory(out);
	md_diff_tables(out, &(struct md_diff_table){a->image_count, a, name_image},
		       &(struct md_diff_table){b->image_count, b, name_image}, compare_image);
	diff_kernels(out);
	if (!out->failed)
		md_diff_graphs(out);
	if (!out->failed)
		md_diff_contents(out);
	diff_kv(out);
	md_diff_caches(out);
	for (size_t i = 0; i < out->count; i++)
		out->real += !out->list[i].chance;
	return !out->failed;
}
