/* SPDX-License-Identifier: Apache-2.0 */
/* What each graph needs (kernels, bindings, contents), in which order graphs are made, and in which
 * order images load. */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/plan.h"
#include "restore/restore.h"
#include "restore/restore_outputs.h"

struct marks { /* one byte per index: seen by this graph */
	uint8_t *kernels, *allocs, *contents, *bindings, *constants, *images;
};

static void *zeroed(size_t count, size_t size)
{
	return calloc(count ? count : 1, size);
}

static bool marks_init(const struct md_artifact *a, struct marks *marks)
{
	*marks = (struct marks){zeroed(a->kernel_count, 1),  zeroed(a->alloc_count, 1),   zeroed(a->content_count, 1),
				zeroed(a->binding_count, 1), zeroed(a->binding_count, 1), zeroed(a->image_count, 1)};
	return marks->kernels && marks->allocs && marks->contents && marks->bindings && marks->constants &&
	       marks->images;
}

static void marks_finish(struct marks *marks)
{
	free(marks->kernels);
	free(marks->allocs);
	free(marks->contents);
	free(marks->bindings);
	free(marks->constants);
	free(marks->images);
}

static void mark_pointers(const struct md_pointer *pointers, uint32_t count, struct marks *marks)
{
	for (uint32_t p = 0; p < count; p++)
		marks->allocs[pointers[p].alloc] = 1;
}

/* Marks an image, which is loaded with all its variables set. True: it was not marked before. */
static bool mark_image(const struct md_artifact *a, uint32_t image, struct marks *marks)
{
	if (image == MD_NONE || marks->images[image])
		return false;
	marks->images[image] = 1;
	for (uint32_t v = 0; v < a->images[image].value_count; v++)
		mark_pointers(a->images[image].values[v].pointers, a->images[image].values[v].pointer_count, marks);
	return true;
}

static void mark_images_of_kernels(const struct md_artifact *a, struct marks *marks)
{
	for (uint32_t k = 0; k < a->kernel_count; k++)
		if (marks->kernels[k] && a->kernels[k].image != MD_NONE && a->images[a->kernels[k].image].value_count)
			mark_image(a, a->kernels[k].image, marks);
}

/* Contents belong to a graph when it reaches their allocation, also through pointers in other
 * contents and variables. */
static void mark_contents(const struct md_artifact *a, struct marks *marks)
{
	for (bool again = true; again;) {
		again = false;
		for (uint32_t i = 0; i < a->alloc_count; i++)
			if (marks->allocs[i] && a->allocs[i].class == MD_CLASS_VARIABLE)
				again |= mark_image(a, a->allocs[i].image, marks);
		for (uint32_t c = 0; c < a->content_count; c++) {
			const struct md_artifact_content *content = &a->contents[c];
			if (marks->contents[c] || !marks->allocs[content->alloc])
				continue;
			marks->contents[c] = 1;
			again = true;
			mark_pointers(content->pointers, content->pointer_count, marks);
		}
	}
}

static bool uses_values(const struct md_artifact *a, const struct marks *marks)
{
	for (uint32_t i = 0; i < a->image_count; i++)
		if (marks->images[i] && a->images[i].value_count)
			return true;
	return false;
}

/*
 * Marks the constants from which the graph's contents may be made. Contents that are equal in both captures do not
 * depend on a constant that differed.
 */
static void mark_constants(const struct md_artifact *a, struct marks *marks)
{
	bool any = uses_values(a, marks), all_compared = true; /* values are the same in both captures */
	for (uint32_t c = 0; c < a->content_count; c++) {
		any |= marks->contents[c];
		all_compared &= !marks->contents[c] || a->contents[c].compared;
	}
	for (uint32_t i = 0; any && i < a->binding_count; i++) {
		if (!a->bindings[i].hashed || (a->bindings[i].varied && all_compared))
			continue;
		marks->constants[i] = 1;
		marks->bindings[i] = 1;
	}
}

/*
 * An artifact of an older Medusa does not say from which constants its contents, or the values of variables, were made.
 */
static enum md_status check_constants(const struct md_artifact *a, const struct md_restore_graph *graph,
				      const struct marks *marks, struct md_error *err)
{
	bool any = graph->content_count || uses_values(a, marks);
	for (uint32_t i = 0; any && i < a->binding_count; i++)
		if ((a->bindings[i].role == MD_BIND_CONSTANT || *a->bindings[i].name == '@') && !a->bindings[i].hashed)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "its contents may be made of binding \"%s\", of which the artifact has no "
					    "hash: capture again",
					    a->bindings[i].name);
	return MD_OK;
}

/* Marks the bindings that share memory with a marked one: each of them names the first of them, which names none. */
static void mark_overlaps(const struct md_artifact *a, uint8_t *bindings)
{
	for (uint32_t i = 0; i < a->binding_count; i++)
		if (bindings[i] && a->bindings[i].overlaps)
			bindings[a->bindings[i].within] = 1;
	for (uint32_t i = 0; i < a->binding_count; i++)
		if (a->bindings[i].overlaps && bindings[a->bindings[i].within])
			bindings[i] = 1;
}

static uint32_t count_marks(const uint8_t *marks, uint32_t count)
{
	uint32_t marked = 0;
	for (uint32_t i = 0; i < count; i++)
		marked += marks[i];
	return marked;
}

static uint32_t *list_marks(const uint8_t *marks, uint32_t count, uint32_t *out)
{
	for (uint32_t i = 0; i < count; i++)
		if (marks[i])
			*out++ = i;
	return out;
}

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

static void mark_graph(const struct md_artifact *a, const struct md_artifact_graph *stored, struct marks *marks)
{
	memset(marks->kernels, 0, a->kernel_count);
	memset(marks->allocs, 0, a->alloc_count);
	memset(marks->contents, 0, a->content_count);
	memset(marks->bindings, 0, a->binding_count);
	memset(marks->constants, 0, a->binding_count);
	memset(marks->images, 0, a->image_count);
	for (uint32_t n = 0; n < stored->node_count; n++)
		if (stored->nodes[n].type == MD_NODE_KERNEL)
			marks->kernels[stored->nodes[n].kernel] = 1;
	for (uint32_t p = 0; p < stored->pointer_count; p++)
		marks->allocs[stored->pointers[p].alloc] = 1;
	for (uint32_t d = 0; d < stored->doubtful_count; d++)
		if (stored->doubtful[d].alloc != MD_NONE)
			marks->allocs[stored->doubtful[d].alloc] = 1;
	for (uint32_t o = 0; o < stored->output_count; o++)
		if (stored->outputs[o].size && stored->outputs[o].alloc < a->alloc_count)
			marks->allocs[stored->outputs[o].alloc] = 1;
	mark_images_of_kernels(a, marks);
	mark_contents(a, marks);
	for (uint32_t i = 0; i < a->alloc_count; i++)
		if (marks->allocs[i] && a->allocs[i].class == MD_CLASS_BOUND)
			marks->bindings[a->allocs[i].binding] = 1;
	mark_constants(a, marks);
	mark_overlaps(a, marks->bindings);
}

/* Only a verify run may build a graph with doubtful words, because it finds out what they are. */
static void refuse_doubtful(const struct md_artifact_graph *stored, struct md_error *err)
{
	char text[MD_DOUBTFUL_TEXT];
	if (!stored->doubtful_count)
		return;
	md_doubtful_describe(&stored->doubtful[0], text);
	md_error_set(err, MD_ERR_UNPROVABLE, "no replay has proven which of its two meanings is right: %s", text);
}

static enum md_status plan_graph(struct md_restore *r, struct md_restore_graph *graph, struct marks *marks,
				 struct md_error *err) MD_REQUIRES(md_restore_lock)
{
	const struct md_artifact *a = &r->artifact;
	mark_graph(a, graph->stored, marks);
	graph->kernel_count = count_marks(marks->kernels, a->kernel_count);
	graph->binding_count = count_marks(marks->bindings, a->binding_count);
	graph->content_count = count_marks(marks->contents, a->content_count);
	graph->constant_count = count_marks(marks->constants, a->binding_count);
	graph->image_count = count_marks(marks->images, a->image_count);
	graph->kernels = zeroed((size_t)graph->kernel_count + graph->binding_count + graph->content_count +
				    graph->constant_count + graph->image_count,
				sizeof(uint32_t));
	if (!graph->kernels)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the plan of %u graphs", a->graph_count);
	graph->bindings = list_marks(marks->kernels, a->kernel_count, graph->kernels);
	graph->contents = list_marks(marks->bindings, a->binding_count, graph->bindings);
	graph->constants = list_marks(marks->contents, a->content_count, graph->contents);
	graph->images = list_marks(marks->constants, a->binding_count, graph->constants);
	list_marks(marks->images, a->image_count, graph->images);
	for (uint32_t i = 0; i < graph->constant_count; i++)
		r->constants[graph->constants[i]] = MD_CONSTANT_UNKNOWN;
	struct md_error why = {0};
	for (uint32_t i = 0; i < a->alloc_count && !why.status; i++) {
		if (marks->allocs[i])
			check_alloc(a, i, &why);
		graph->uses_arena |= marks->allocs[i] && a->allocs[i].class == MD_CLASS_PRIVATE;
	}
	if (!why.status)
		check_constants(a, graph, marks, &why);
	if (!why.status)
		md_restore_outputs_check(a, graph->stored, &why);
	if (!why.status && r->require_proof && graph->stored->proof == MD_PROOF_NONE)
		md_error_set(&why, MD_ERR_UNPROVABLE,
			     "it was made from one capture alone, and MEDUSA_REQUIRE_PROOF asks for proof");
	if (!why.status && !r->verify)
		refuse_doubtful(graph->stored, &why);
	if (why.status)
		md_restore_refuse(r, graph, &why);
	return MD_OK;
}

/* The first wish for a graph counts. */
static void rank_wanted(struct md_restore *r) MD_RESTORE_HELD
{
	for (uint32_t i = r->want_count; i-- > 0;) {
		struct md_restore_graph *graph = md_restore_find(r, r->wants[i].label, r->wants[i].batch);
		if (graph)
			graph->rank = i;
	}
}

static int by_rank(const void *left, const void *right)
{
	const struct md_restore_graph *a = &md_restore.graphs[*(const uint32_t *)left];
	const struct md_restore_graph *b = &md_restore.graphs[*(const uint32_t *)right];
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->stored->batch != b->stored->batch)
		return a->stored->batch < b->stored->batch ? -1 : 1;
	return a->stored < b->stored ? -1 : 1;
}

void md_restore_plan_order(struct md_restore *r)
{
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		r->graphs[i].rank = UINT32_MAX;
	rank_wanted(r);
	md_graph_queue_rewind(r);
	qsort(r->order, r->artifact.graph_count, sizeof(*r->order), by_rank);
}

static void queue_image(struct md_restore *r, uint32_t image)
{
	r->images[image].queued = true;
	r->image_order[r->image_order_count++] = image;
}

/* The cost in bytes of machine code. PTX is compiled, which takes a thousand times as long. */
static uint64_t load_cost(uint32_t image)
{
	const struct md_image *what = &md_restore.artifact.images[image];
	return what->kind == MD_IMAGE_PTX ? what->size << 10 : what->size;
}

static int by_cost_descending(const void *left, const void *right)
{
	uint64_t a = load_cost(*(const uint32_t *)left), b = load_cost(*(const uint32_t *)right);
	return a > b ? -1 : a < b;
}

/*
 * Queues all images, while it is not known yet which graphs want them:
 * the longest first, so that short ones fill the gaps at the end.
 */
static void queue_all_images(struct md_restore *r)
{
	const struct md_artifact *a = &r->artifact;
	for (uint32_t i = 0; i < a->kernel_count; i++) {
		uint32_t image = a->kernels[i].image;
		if (image != MD_NONE && !r->images[image].queued &&
		    (md_image_is_stored(&a->images[image]) || a->images[image].path))
			queue_image(r, image);
	}
	qsort(r->image_order, r->image_order_count, sizeof(*r->image_order), by_cost_descending);
}

/* Under lock: sorts the waiting images by the wishes as they are now; an image that no graph uses leaves the queue. */
static void requeue_images(struct md_restore *r) MD_RESTORE_HELD
{
	const struct md_artifact *a = &r->artifact;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < a->graph_count; i++) {
		const struct md_restore_graph *graph = &r->graphs[r->order[i]];
		for (uint32_t k = 0; k < graph->kernel_count && graph->state == MD_GRAPH_WAITING; k++) {
			uint32_t image = a->kernels[graph->kernels[k]].image;
			if (image == MD_NONE || !r->images[image].queued)
				continue;
			r->images[image].queued = false;
			r->image_order[kept++] = image;
		}
	}
	for (uint32_t i = 0; i < a->image_count; i++)
		r->images[i].queued = false;
	for (uint32_t i = 0; i < kept; i++)
		r->images[r->image_order[i]].queued = true;
	r->image_order_count = kept;
	r->next_image = 0;
}

static bool match_bindings(struct md_restore *r) MD_RESTORE_HELD
{
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		const char *name = r->artifact.bindings[i].name;
		uint64_t at = 0;
		if (!md_map_put(&r->binding_names, md_hash_checksum(name, strlen(name)), i))
			return false;
		bool made = md_map_get(&r->bound_names, md_hash_checksum(name, strlen(name)), &at);
		r->binding_of[i] = made && !strcmp(r->bound[at].name, name) ? (uint32_t)at : MD_NONE;
	}
	return true;
}

enum md_status md_restore_plan_tables(struct md_restore *r, struct md_error *err)
{
	const struct md_artifact *a = &r->artifact;
	struct md_restore_image *images = zeroed(a->image_count, sizeof(*images));
	struct md_restore_kernel *kernels = zeroed(a->kernel_count, sizeof(*kernels));
	uint32_t *order = zeroed(a->image_count, sizeof(*order));
	pthread_mutex_lock(&md_restore_lock);
	r->images = images;
	r->kernels = kernels;
	r->image_order = order;
	if (images && kernels && order)
		queue_all_images(r);
	pthread_mutex_unlock(&md_restore_lock);
	return images && kernels && order
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u images and %u kernels", a->image_count,
				  a->kernel_count);
}

static bool plan_init(struct md_restore *r)
{
	const struct md_artifact *a = &r->artifact;
	r->graphs = zeroed(a->graph_count, sizeof(*r->graphs));
	r->reasons = zeroed(a->graph_count, sizeof(*r->reasons));
	r->order = zeroed(a->graph_count, sizeof(*r->order));
	r->binding_of = zeroed(a->binding_count, sizeof(*r->binding_of));
	r->content_placed = zeroed(a->content_count, sizeof(*r->content_placed));
	r->addresses = zeroed(a->binding_count, sizeof(*r->addresses));
	r->variables = zeroed(a->alloc_count, sizeof(*r->variables));
	r->constants = zeroed(a->binding_count, sizeof(*r->constants));
	md_map_init(&r->binding_names);
	for (uint32_t i = 0; r->graphs && r->reasons && i < a->graph_count; i++) {
		r->graphs[i].stored = &a->graphs[i];
		r->graphs[i].reasons = &r->reasons[i];
	}
	for (uint32_t i = 0; r->order && i < a->graph_count; i++)
		r->order[i] = i;
	for (uint32_t i = 0; r->binding_of && i < a->binding_count; i++)
		r->binding_of[i] = MD_NONE;
	bool fed = true;
	for (uint32_t i = 0; r->graphs && i < a->graph_count; i++) {
		r->graphs[i].fed = zeroed(a->graphs[i].handed_count, sizeof(*r->graphs[i].fed));
		fed &= r->graphs[i].fed != NULL;
	}
	return fed && r->graphs && r->reasons && md_graph_queue_init(r) && r->order && r->binding_of &&
	       r->content_placed && r->addresses && r->variables && r->constants;
}

enum md_status md_restore_plan(struct md_restore *r, struct md_error *err)
{
	const struct md_artifact *a = &r->artifact;
	struct marks marks = {0};
	enum md_status status = MD_OK;
	pthread_mutex_lock(&md_restore_lock);
	if (!plan_init(r) || !marks_init(a, &marks))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the plan of %u graphs", a->graph_count);
	r->stats.graphs_total = a->graph_count;
	for (uint32_t i = 0; i < a->graph_count && status == MD_OK; i++)
		status = plan_graph(r, &r->graphs[i], &marks, err);
	if (status == MD_OK && !match_bindings(r))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u names", a->binding_count);
	if (status == MD_OK) {
		md_restore_group_apply_live(r);
		md_restore_plan_order(r);
		requeue_images(r);
	}
	pthread_mutex_unlock(&md_restore_lock);
	marks_finish(&marks);
	return status;
}

/* A stage that fails undoes this while the engine may bind. */
void md_restore_plan_finish(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; r->graphs && i < r->artifact.graph_count; i++) {
		free(r->graphs[i].kernels);
		free(r->graphs[i].fed);
	}
	free(r->images);
	free(r->image_order);
	free(r->kernels);
	free(r->graphs);
	free(r->reasons);
	free(r->order);
	free(r->binding_of);
	free(r->addresses);
	free(r->variables);
	md_map_finish(&r->binding_names);
	md_map_init(&r->binding_names);
	r->addresses = NULL;
	r->variables = NULL;
	free(r->content_placed);
	free(r->constants);
	r->constants = NULL;
	r->images = NULL;
	r->image_order = NULL;
	r->kernels = NULL;
	r->graphs = NULL;
	r->reasons = NULL;
	r->order = NULL;
	r->binding_of = NULL;
	r->content_placed = NULL;
	r->image_order_count = 0;
	md_graph_queue_finish(r);
	r->awaited_last = NULL;
	r->next_image = 0;
	pthread_mutex_unlock(&md_restore_lock);
}
