/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a graph to all that it needs: kernels, images, bindings, private memory and its contents, constants. */
#include "restore/needs.h"

#include "driver/maker.h"
#include "restore/restore.h"

/* ---- of the artifact ---- */

static uint32_t *numbers(size_t count)
{
	return calloc(count + 1, sizeof(uint32_t));
}

static void list_contents(struct md_needs *needs)
{
	const struct md_artifact *a = needs->artifact;
	for (uint32_t i = 0; i < a->alloc_count; i++)
		needs->first_content[i] = MD_NONE;
	for (uint32_t c = a->content_count; c-- > 0;) {
		needs->next_content[c] = needs->first_content[a->contents[c].alloc];
		needs->first_content[a->contents[c].alloc] = c;
	}
}

static void list_bindings(struct md_needs *needs)
{
	const struct md_artifact *a = needs->artifact;
	needs->without_hash = MD_NONE;
	for (uint32_t i = a->binding_count; i-- > 0;) {
		const struct md_binding *binding = &a->bindings[i];
		bool constant =
		    binding->role == MD_BIND_CONSTANT || (*binding->name == '@' && !md_maker_is_name(binding->name));
		if (binding->hashed)
			md_bits_add(&needs->hashed, i);
		else if (constant)
			needs->without_hash = i;
		if (binding->hashed && !binding->varied)
			md_bits_add(&needs->hashed_alike, i);
		if (binding->overlaps)
			needs->overlapping[needs->overlapping_count++] = i;
	}
}

bool md_needs_init(struct md_needs *needs, const struct md_artifact *artifact)
{
	*needs = (struct md_needs){.artifact = artifact};
	needs->first_content = numbers(artifact->alloc_count);
	needs->next_content = numbers(artifact->content_count);
	needs->overlapping = numbers(artifact->binding_count);
	needs->pending = numbers(artifact->alloc_count);
	if (!needs->first_content || !needs->next_content || !needs->overlapping || !needs->pending ||
	    !md_bits_init(&needs->hashed, artifact->binding_count) ||
	    !md_bits_init(&needs->hashed_alike, artifact->binding_count) ||
	    !md_bits_init(&needs->kernels, artifact->kernel_count) ||
	    !md_bits_init(&needs->allocs, artifact->alloc_count) ||
	    !md_bits_init(&needs->contents, artifact->content_count) ||
	    !md_bits_init(&needs->bindings, artifact->binding_count) ||
	    !md_bits_init(&needs->constants, artifact->binding_count) ||
	    !md_bits_init(&needs->images, artifact->image_count))
		return false;
	list_contents(needs);
	list_bindings(needs);
	return true;
}

void md_needs_finish(struct md_needs *needs)
{
	struct md_bits *all[] = {&needs->hashed,   &needs->hashed_alike, &needs->kernels,   &needs->allocs,
				 &needs->contents, &needs->bindings,     &needs->constants, &needs->images};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		md_bits_finish(all[i]);
	free(needs->first_content);
	free(needs->next_content);
	free(needs->overlapping);
	free(needs->pending);
	*needs = (struct md_needs){0};
}

/* ---- of a graph ---- */

static void add_alloc(struct md_needs *needs, uint32_t alloc)
{
	if (md_bits_add(&needs->allocs, alloc))
		needs->pending[needs->pending_count++] = alloc;
}

static void add_pointers(struct md_needs *needs, const struct md_pointer *pointers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		add_alloc(needs, pointers[i].alloc);
}

/* An image is loaded with all its variables set. */
static void add_image(struct md_needs *needs, uint32_t index)
{
	if (index == MD_NONE || !md_bits_add(&needs->images, index))
		return;
	const struct md_image *image = &needs->artifact->images[index];
	for (uint32_t i = 0; i < image->value_count; i++)
		add_pointers(needs, image->values[i].pointers, image->values[i].pointer_count);
	needs->uses_values |= image->value_count != 0;
}

static void add_kernel(struct md_needs *needs, uint32_t kernel)
{
	if (!md_bits_add(&needs->kernels, kernel))
		return;
	uint32_t image = needs->artifact->kernels[kernel].image;
	if (image != MD_NONE && needs->artifact->images[image].value_count)
		add_image(needs, image);
}

static void add_content(struct md_needs *needs, uint32_t index)
{
	const struct md_artifact_content *content = &needs->artifact->contents[index];
	if (!md_bits_add(&needs->contents, index))
		return;
	add_pointers(needs, content->pointers, content->pointer_count);
	needs->uses_uncompared |= !content->compared;
}

/* Contents belong to a graph when it reaches their allocation, also through pointers in other contents and variables. */
static void follow_allocs(struct md_needs *needs)
{
	while (needs->pending_count > 0) {
		uint32_t index = needs->pending[--needs->pending_count];
		const struct md_artifact_alloc *alloc = &needs->artifact->allocs[index];
		if (alloc->class == MD_CLASS_VARIABLE)
			add_image(needs, alloc->image);
		if (alloc->class == MD_CLASS_BOUND)
			md_bits_add(&needs->bindings, alloc->binding);
		needs->uses_arena |= alloc->class == MD_CLASS_PRIVATE;
		for (uint32_t c = needs->first_content[index]; c != MD_NONE; c = needs->next_content[c])
			add_content(needs, c);
	}
}

static bool has_contents(const struct md_needs *needs)
{
	return needs->uses_values || md_bits_count(&needs->contents);
}

/*
 * Adds the constants from which the graph's contents may be made. Contents that are equal in both captures, as values
 * always are, do not depend on a constant that differed.
 */
static void add_constants(struct md_needs *needs)
{
	if (!has_contents(needs))
		return;
	md_bits_add_all(&needs->constants, needs->uses_uncompared ? &needs->hashed : &needs->hashed_alike);
	md_bits_add_all(&needs->bindings, &needs->constants);
}

/* Adds the bindings that share memory with a needed one: each of them names the first of them, which names none. */
static void add_overlapping(struct md_needs *needs)
{
	const struct md_binding *bindings = needs->artifact->bindings;
	for (uint32_t i = 0; i < needs->overlapping_count; i++)
		if (md_bits_has(&needs->bindings, needs->overlapping[i]))
			md_bits_add(&needs->bindings, bindings[needs->overlapping[i]].within);
	for (uint32_t i = 0; i < needs->overlapping_count; i++)
		if (md_bits_has(&needs->bindings, bindings[needs->overlapping[i]].within))
			md_bits_add(&needs->bindings, needs->overlapping[i]);
}

static void begin(struct md_needs *needs)
{
	md_bits_clear(&needs->kernels);
	md_bits_clear(&needs->allocs);
	md_bits_clear(&needs->contents);
	md_bits_clear(&needs->bindings);
	md_bits_clear(&needs->constants);
	md_bits_clear(&needs->images);
	needs->uses_arena = needs->uses_values = needs->uses_uncompared = false;
	needs->pending_count = 0;
}

void md_needs_of(struct md_needs *needs, const struct md_artifact_graph *graph)
{
	begin(needs);
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i].type == MD_NODE_KERNEL)
			add_kernel(needs, graph->nodes[i].kernel);
	add_pointers(needs, graph->pointers, graph->pointer_count);
	for (uint32_t i = 0; i < graph->doubtful_count; i++)
		if (graph->doubtful[i].alloc != MD_NONE)
			add_alloc(needs, graph->doubtful[i].alloc);
	for (uint32_t i = 0; i < graph->output_count; i++)
		if (graph->outputs[i].size && graph->outputs[i].alloc < needs->artifact->alloc_count)
			add_alloc(needs, graph->outputs[i].alloc);
	follow_allocs(needs);
	add_constants(needs);
	add_overlapping(needs);
}

/* ---- what cannot be made ---- */

static enum md_status check_alloc(const struct md_artifact *a, uint32_t index, struct md_error *err)
{
	const struct md_artifact_alloc *alloc = &a->allocs[index];
	if (alloc->class == MD_CLASS_SEQUENCE)
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "allocation %u (%llu bytes) is known by its place in the sequence only: bind it by name", index,
		    (unsigned long long)alloc->size);
	if (alloc->class == MD_CLASS_PRIVATE && (alloc->family == MD_ALLOC_HOST || alloc->family == MD_ALLOC_GLOBAL))
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED, "allocation %u is %s: it cannot be made anew for a graph", index,
		    alloc->family == MD_ALLOC_HOST ? "host memory that is not bound" : "a module's variable");
	return MD_OK;
}

enum md_status md_needs_check(const struct md_needs *needs, struct md_error *err)
{
	const struct md_artifact *a = needs->artifact;
	for (uint32_t i = 0; i < needs->allocs.word_count; i++)
		for (uint64_t word = needs->allocs.words[i]; word; word &= word - 1)
			MD_FORWARD(check_alloc(a, i * 64 + (uint32_t)__builtin_ctzll(word), err));
	/* An artifact of an older Medusa does not say from which constants its contents, or variables, were made. */
	if (has_contents(needs) && needs->without_hash != MD_NONE)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "its contents may be made of binding \"%s\", of which the artifact has no hash: "
				    "capture again",
				    a->bindings[needs->without_hash].name);
	return MD_OK;
}
