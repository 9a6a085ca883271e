/* SPDX-License-Identifier: Apache-2.0 */
/* In which order graphs are made and images load, and which graphs cannot be made; needs.c says what each one needs. */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "driver/maker.h"
#include "restore/agree.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/library_made.h"
#include "restore/needs.h"
#include "restore/plan.h"
#include "restore/restore.h"
#include "restore/restore_outputs.h"

static void *zeroed(size_t count, size_t size)
{
	return calloc(count ? count : 1, size);
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

static enum md_status take_needs(struct md_restore_graph *graph, const struct md_needs *needs)
{
	graph->kernel_count = md_bits_count(&needs->kernels);
	graph->binding_count = md_bits_count(&needs->bindings);
	graph->content_count = md_bits_count(&needs->contents);
	graph->constant_count = md_bits_count(&needs->constants);
	graph->image_count = md_bits_count(&needs->images);
	graph->kernels = zeroed((size_t)graph->kernel_count + graph->binding_count + graph->content_count +
				    graph->constant_count + graph->image_count,
				sizeof(uint32_t));
	if (!graph->kernels)
		return MD_ERR_NO_MEMORY;
	graph->bindings = md_bits_list(&needs->kernels, graph->kernels);
	graph->contents = md_bits_list(&needs->bindings, graph->bindings);
	graph->constants = md_bits_list(&needs->contents, graph->contents);
	graph->images = md_bits_list(&needs->constants, graph->constants);
	md_bits_list(&needs->images, graph->images);
	graph->uses_arena = needs->uses_arena;
	return MD_OK;
}

static bool is_made(const struct md_artifact *a, uint32_t index)
{
	const struct md_artifact_alloc *alloc = &a->allocs[index];
	return alloc->class == MD_CLASS_BOUND && md_maker_is_name(a->bindings[alloc->binding].name);
}

/* A table of the other ranks' buffers. */
static bool leads_to_made(const struct md_artifact *a, const struct md_restore_graph *graph, uint32_t alloc)
{
	for (uint32_t i = 0; i < graph->content_count; i++) {
		const struct md_artifact_content *content = &a->contents[graph->contents[i]];
		for (uint32_t p = 0; content->alloc == alloc && p < content->pointer_count; p++)
			if (is_made(a, content->pointers[p].alloc))
				return true;
	}
	return false;
}

/* These kernels go with the library's memory, whose layout is that of the version that is loaded. */
static void mark_library_kernels(struct md_restore *r, const struct md_restore_graph *of)
{
	const struct md_artifact *a = &r->artifact;
	const struct md_artifact_graph *graph = of->stored;
	for (uint32_t i = 0; i < graph->pointer_count; i++) {
		uint32_t alloc = graph->pointers[i].alloc;
		const struct md_node *node = &graph->nodes[graph->pointers[i].node];
		if (node->type == MD_NODE_KERNEL && !r->kernels[node->kernel].of_library &&
		    (is_made(a, alloc) || leads_to_made(a, of, alloc)))
			r->kernels[node->kernel].of_library = true;
	}
}

static enum md_status plan_graph(struct md_restore *r, struct md_restore_graph *graph, struct md_needs *needs,
				 struct md_error *err) MD_REQUIRES(md_restore_lock)
{
	const struct md_artifact *a = &r->artifact;
	struct md_error why = {0};
	md_needs_of(needs, graph->stored);
	if (take_needs(graph, needs) != MD_OK)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the plan of %u graphs", a->graph_count);
	for (uint32_t i = 0; i < graph->constant_count; i++)
		r->constants[graph->constants[i]] = MD_CONSTANT_UNKNOWN;
	graph->communicates = md_restore_made_library(r, graph) != NULL;
	if (graph->communicates)
		mark_library_kernels(r, graph);
	if (md_needs_check(needs, &why) == MD_OK)
		md_restore_outputs_check(a, graph->stored, &why);
	if (!why.status && r->require_proof && graph->stored->proof == MD_PROOF_NONE)
		md_error_set(&why, MD_ERR_UNPROVABLE,
			     "it was made from one capture alone, and MEDUSA_REQUIRE_PROOF asks for proof");
	if (!why.status && graph->communicates && !md_restore_together())
		md_error_set(&why, MD_ERR_MISMATCH,
			     "it communicates with other ranks, and this process is not told where to meet them: start "
			     "the ranks by medusa-restore, or set MEDUSA_RANKS_FOLDER");
	if (!why.status && graph->communicates && !r->of_rank)
		md_error_set(
		    &why, MD_ERR_MISMATCH,
		    "it communicates with other ranks, and its artifact was taken out of its bundle, which says "
		    "whose it is: restore the bundle");
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
		if (!a->graphs[i].handed_count)
			continue;
		r->graphs[i].fed = zeroed(a->graphs[i].handed_count, sizeof(*r->graphs[i].fed));
		fed &= r->graphs[i].fed != NULL;
	}
	return fed && r->graphs && r->reasons && md_graph_queue_init(r) && r->order && r->binding_of &&
	       r->content_placed && r->addresses && r->variables && r->constants;
}

enum md_status md_restore_plan(struct md_restore *r, struct md_error *err)
{
	const struct md_artifact *a = &r->artifact;
	struct md_needs needs = {0};
	enum md_status status = MD_OK;
	pthread_mutex_lock(&md_restore_lock);
	if (!plan_init(r) || !md_needs_init(&needs, a))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the plan of %u graphs", a->graph_count);
	r->stats.graphs_total = a->graph_count;
	for (uint32_t i = 0; i < a->graph_count && status == MD_OK; i++)
		status = plan_graph(r, &r->graphs[i], &needs, err);
	if (status == MD_OK && !match_bindings(r))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u names", a->binding_count);
	pthread_mutex_unlock(&md_restore_lock);
	md_needs_finish(&needs);
	return status;
}

void md_restore_plan_said(struct md_restore *r)
{
	md_restore_group_apply_live(r);
	md_restore_plan_order(r);
	requeue_images(r);
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
