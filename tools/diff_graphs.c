/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between the graphs of two artifacts, node by node, and between the contents of their private memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/splitmix.h"
#include "tools/diff.h"
#include "tools/inspect.h"

#define WORD 8u /* bytes */

/* ---- places in memory ---- */

/*
 * Allocations correspond if the engine gives them the same name, or the same place in its sequence. Private allocations
 * have neither: the first two pointers that correspond pair their allocations, if the sizes are equal, and the pair
 * stays.
 */
bool md_diff_same_alloc(struct md_diff *diff, uint32_t a, uint32_t b)
{
	if (a == MD_NONE || b == MD_NONE)
		return a == b;
	const struct md_artifact_alloc *x = &diff->a->allocs[a], *y = &diff->b->allocs[b];
	if (x->class != y->class)
		return false;
	if (x->class == MD_CLASS_BOUND)
		return diff->binding_of_b[y->binding] == x->binding;
	if (x->class == MD_CLASS_SEQUENCE)
		return x->order == y->order && x->size == y->size;
	if (x->class == MD_CLASS_VARIABLE)
		return !strcmp(x->variable, y->variable) &&
		       md_hash_equal(&diff->a->images[x->image].hash, &diff->b->images[y->image].hash);
	if (diff->alloc_of_a[a] == MD_NONE && diff->alloc_of_b[b] == MD_NONE && x->size == y->size) {
		diff->alloc_of_a[a] = b;
		diff->alloc_of_b[b] = a;
	}
	return diff->alloc_of_a[a] == b;
}

void md_diff_place_text(const struct md_artifact *artifact, uint32_t alloc, int64_t offset, char *out, size_t room)
{
	if (alloc == MD_NONE) {
		snprintf(out, room, "none");
		return;
	}
	const struct md_artifact_alloc *in = &artifact->allocs[alloc];
	if (in->class == MD_CLASS_BOUND)
		snprintf(out, room, "%.80s%+" PRId64, artifact->bindings[in->binding].name, offset);
	else if (in->class == MD_CLASS_SEQUENCE)
		snprintf(out, room, "allocation %" PRIu32 "%+" PRId64, in->order, offset);
	else if (in->class == MD_CLASS_VARIABLE)
		snprintf(out, room, "variable %.80s%+" PRId64, in->variable, offset);
	else
		snprintf(out, room, "private, at %" PRIu64 "%+" PRId64, in->arena_offset, offset);
}

/* ---- a pair of graphs ---- */

struct pair {
	struct md_diff *diff;
	const char *item;
	const struct md_artifact_graph *a, *b;
	uint32_t *b_of_a; /* by node of a: its counterpart, or MD_NONE */
	uint32_t *a_of_b;
	struct md_diff_tally geometry, attributes, copies, sizes, constants, pointers, noise;
};

/* Counts a difference; true for the first, of which the caller then gives place and values. */
static bool tally(const struct pair *p, struct md_diff_tally *into, uint32_t node, int64_t byte)
{
	if (into->count++)
		return false;
	const struct md_node *n = &p->a->nodes[node];
	const char *name = n->type == MD_NODE_KERNEL ? p->diff->a->kernels[n->kernel].name : md_inspect_node(n->type);
	if (byte < 0)
		snprintf(into->first, sizeof(into->first), "node %" PRIu32 " (%.150s)", node, name);
	else
		snprintf(into->first, sizeof(into->first), "node %" PRIu32 " (%.150s) byte %" PRId64, node, name, byte);
	return true;
}

static void geometry_text(const struct md_node *node, char *out, size_t room)
{
	snprintf(out, room, "grid %ux%ux%u block %ux%ux%u shared %u%s", node->grid[0], node->grid[1], node->grid[2],
		 node->block[0], node->block[1], node->block[2], node->shared_bytes, node->via_extra ? " extra" : "");
}

static void compare_geometry(struct pair *p, uint32_t node, const struct md_node *x, const struct md_node *y)
{
	char a[128], b[128];
	geometry_text(x, a, sizeof(a));
	geometry_text(y, b, sizeof(b));
	if (strcmp(a, b) != 0 && tally(p, &p->geometry, node, -1)) {
		memcpy(p->geometry.a, a, sizeof(a));
		memcpy(p->geometry.b, b, sizeof(b));
	}
	bool same = x->attribute_count == y->attribute_count;
	for (uint32_t i = 0; same && i < x->attribute_count; i++)
		same = x->attributes[i].id == y->attributes[i].id &&
		       !memcmp(x->attributes[i].value, y->attributes[i].value, sizeof(x->attributes[i].value));
	if (!same && tally(p, &p->attributes, node, -1)) {
		snprintf(p->attributes.a, sizeof(p->attributes.a), "%" PRIu32, x->attribute_count);
		snprintf(p->attributes.b, sizeof(p->attributes.b), "%" PRIu32, y->attribute_count);
	}
}

/* The position of the first noise byte in the word at `at`; WORD when there is none. */
static uint32_t noise_in_word(const struct md_artifact_graph *graph, uint32_t node, uint32_t at)
{
	uint32_t low = 0, high = graph->noise_count;
	while (low < high) { /* the first span that ends behind the beginning of the word */
		uint32_t middle = low + (high - low) / 2;
		const struct md_noise *noise = &graph->noise[middle];
		if (noise->node < node || (noise->node == node && noise->at + noise->size <= at))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == graph->noise_count || graph->noise[low].node != node || graph->noise[low].at >= at + WORD)
		return WORD;
	return graph->noise[low].at > at ? graph->noise[low].at - at : 0;
}

static uint64_t word_at(const struct md_node *node, uint32_t at)
{
	uint64_t word = 0;
	memcpy(&word, node->params + at, node->params_size - at < WORD ? node->params_size - at : WORD);
	return word;
}

/*
 * Which bytes of a stale value are equal in two captures is chance, and the upper ones often are equal. So nothing is
 * compared from the first noise byte on that either side has in a word.
 */
static uint64_t mask_of(const struct pair *p, uint32_t node, uint32_t other, uint32_t at)
{
	uint32_t a = noise_in_word(p->a, node, at), b = noise_in_word(p->b, other, at), bytes = a < b ? a : b;
	return bytes == WORD ? UINT64_MAX : (1ull << 8 * bytes) - 1;
}

/* Pointers are zero in the parameter block, so what differs here is constant on at least one side. */
static void compare_params(struct pair *p, uint32_t node, uint32_t other, const struct md_node *x,
			   const struct md_node *y)
{
	if (x->params_size != y->params_size) {
		if (tally(p, &p->sizes, node, -1)) {
			snprintf(p->sizes.a, sizeof(p->sizes.a), "%" PRIu32 " bytes", x->params_size);
			snprintf(p->sizes.b, sizeof(p->sizes.b), "%" PRIu32 " bytes", y->params_size);
		}
		return;
	}
	for (uint32_t at = 0; at < x->params_size; at += WORD) {
		uint64_t a = word_at(x, at), b = word_at(y, at);
		if (a != b && (a ^ b) & mask_of(p, node, other, at) && tally(p, &p->constants, node, at)) {
			snprintf(p->constants.a, sizeof(p->constants.a), "0x%" PRIx64, a);
			snprintf(p->constants.b, sizeof(p->constants.b), "0x%" PRIx64, b);
		}
	}
}

/* Child graphs and events. */
static void compare_held(struct pair *p, uint32_t node, const struct md_node *x, const struct md_node *y)
{
	bool child = x->type == MD_NODE_CHILD;
	uint32_t a = child ? x->child_nodes : x->event, b = child ? y->child_nodes : y->event;
	if (a == b || !tally(p, &p->copies, node, -1))
		return;
	snprintf(p->copies.a, sizeof(p->copies.a), "%s %" PRIu32, child ? "nodes" : "event", a);
	snprintf(p->copies.b, sizeof(p->copies.b), "%s %" PRIu32, child ? "nodes" : "event", b);
}

static void compare_copies(struct pair *p, uint32_t node, const struct md_node *x, const struct md_node *y)
{
	bool set = x->type == MD_NODE_MEMSET;
	bool same = set ? !memcmp(&x->memset, &y->memset, sizeof(x->memset))
			: !memcmp(&x->memcpy, &y->memcpy, sizeof(x->memcpy));
	if (same || !tally(p, &p->copies, node, -1))
		return;
	snprintf(p->copies.a, sizeof(p->copies.a), "width %" PRIu64 " height %" PRIu64,
		 set ? x->memset.width : x->memcpy.width, set ? x->memset.height : x->memcpy.height);
	snprintf(p->copies.b, sizeof(p->copies.b), "width %" PRIu64 " height %" PRIu64,
		 set ? y->memset.width : y->memcpy.width, set ? y->memset.height : y->memcpy.height);
}

/* ---- pointers and noise: both ascend by (node, at) ---- */

static uint32_t first_pointer(const struct md_artifact_graph *graph, uint32_t node)
{
	uint32_t low = 0, high = graph->pointer_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (graph->pointers[middle].node < node)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void compare_pointers(struct pair *p, uint32_t node, uint32_t other)
{
	uint32_t i = first_pointer(p->a, node), k = first_pointer(p->b, other);
	for (;;) {
		const struct md_pointer *x = i < p->a->pointer_count ? &p->a->pointers[i] : NULL;
		const struct md_pointer *y = k < p->b->pointer_count ? &p->b->pointers[k] : NULL;
		x = x && x->node == node ? x : NULL;
		y = y && y->node == other ? y : NULL;
		if (!x && !y)
			return;
		bool only_a = x && (!y || x->at < y->at), only_b = y && (!x || y->at < x->at);
		i += !only_b;
		k += !only_a;
		if (!only_a && !only_b && x->kind == y->kind && x->offset == y->offset &&
		    md_diff_same_alloc(p->diff, x->alloc, y->alloc))
			continue;
		if (!tally(p, &p->pointers, node, only_b ? y->at : x->at))
			continue;
		snprintf(p->pointers.a, sizeof(p->pointers.a), "no pointer");
		snprintf(p->pointers.b, sizeof(p->pointers.b), "no pointer");
		if (!only_b)
			md_diff_place_text(p->diff->a, x->alloc, x->offset, p->pointers.a, sizeof(p->pointers.a));
		if (!only_a)
			md_diff_place_text(p->diff->b, y->alloc, y->offset, p->pointers.b, sizeof(p->pointers.b));
	}
}

/* The number of words with noise in a node, and a mix of their positions, which differs when these do. */
static uint64_t noise_of(const struct md_artifact_graph *graph, uint32_t node, uint32_t *cursor, uint64_t *words)
{
	uint64_t mixed = 0, behind = 0; /* the first word that was not counted yet */
	*words = 0;
	while (*cursor < graph->noise_count && graph->noise[*cursor].node < node)
		(*cursor)++;
	for (; *cursor < graph->noise_count && graph->noise[*cursor].node == node; (*cursor)++) {
		const struct md_noise *noise = &graph->noise[*cursor];
		uint64_t word = noise->at / WORD, end = ((uint64_t)noise->at + noise->size + WORD - 1) / WORD;
		for (word = word > behind ? word : behind; word < end; word++) {
			mixed = (mixed ^ (word + 1)) * MD_RANDOM_STEP;
			(*words)++;
		}
		behind = end > behind ? end : behind;
	}
	return mixed;
}

static bool compare_noise(struct pair *p)
{
	uint32_t cursor = 0;
	MD_AUTO_FREE uint64_t *mixed = calloc(2 * (size_t)p->b->node_count + 1, sizeof(*mixed));
	if (!mixed)
		return false;
	for (uint32_t i = 0; i < p->b->node_count; i++)
		mixed[2 * i] = noise_of(p->b, i, &cursor, &mixed[2 * i + 1]);
	cursor = 0;
	for (uint32_t i = 0; i < p->a->node_count; i++) {
		uint64_t words, of_a = noise_of(p->a, i, &cursor, &words);
		uint32_t other = p->b_of_a[i];
		if (other == MD_NONE || mixed[2 * other] == of_a || !tally(p, &p->noise, i, -1))
			continue;
		snprintf(p->noise.a, sizeof(p->noise.a), "%" PRIu64 " words", words);
		snprintf(p->noise.b, sizeof(p->noise.b), "%" PRIu64 " words", mixed[2 * other + 1]);
	}
	return true;
}

/* ---- which node is which ---- */

/* A number for each kernel (the same for kernels of both sides that correspond), and for each other type of node. */
static uint32_t key_of(const struct md_diff *diff, const struct md_node *node, bool in_b)
{
	uint32_t kernels = diff->a->kernel_count + diff->b->kernel_count;
	if (node->type != MD_NODE_KERNEL)
		return kernels + node->type;
	if (!in_b)
		return node->kernel;
	uint32_t of_a = diff->kernel_of_b[node->kernel];
	return of_a != MD_NONE ? of_a : diff->a->kernel_count + node->kernel;
}

static uint32_t key_count(const struct md_diff *diff)
{
	return diff->a->kernel_count + diff->b->kernel_count + 256;
}

/*
 * The n-th node of a kernel corresponds to the n-th node of the same kernel, so that an inserted node shifts nothing.
 */
static bool match_nodes(struct pair *p)
{
	uint32_t *head = p->diff->node_of_key; /* MD_NONE for each key, before and after */
	MD_AUTO_FREE uint32_t *next = malloc(((size_t)p->b->node_count + 1) * sizeof(*next));
	p->b_of_a = malloc(((size_t)p->a->node_count + 1) * sizeof(*p->b_of_a));
	p->a_of_b = malloc(((size_t)p->b->node_count + 1) * sizeof(*p->a_of_b));
	if (!next || !p->b_of_a || !p->a_of_b)
		return false;
	for (uint32_t i = p->b->node_count; i-- > 0;) {
		uint32_t key = key_of(p->diff, &p->b->nodes[i], true);
		next[i] = head[key];
		head[key] = i;
		p->a_of_b[i] = MD_NONE;
	}
	for (uint32_t i = 0; i < p->a->node_count; i++) {
		uint32_t key = key_of(p->diff, &p->a->nodes[i], false), other = head[key];
		p->b_of_a[i] = other;
		if (other == MD_NONE)
			continue;
		head[key] = next[other];
		p->a_of_b[other] = i;
	}
	for (uint32_t i = 0; i < p->b->node_count; i++)
		head[key_of(p->diff, &p->b->nodes[i], true)] = MD_NONE;
	return true;
}

static int by_key(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* Counts the nodes of each key on both sides; returns how many keys there are, in ascending order. */
static uint32_t count_keys(const struct pair *p, uint32_t *keys)
{
	uint32_t *counts = p->diff->nodes_of_key, found = 0;
	for (uint32_t i = 0; i < p->a->node_count + p->b->node_count; i++) {
		bool in_b = i >= p->a->node_count;
		const struct md_node *node = in_b ? &p->b->nodes[i - p->a->node_count] : &p->a->nodes[i];
		uint32_t key = key_of(p->diff, node, in_b);
		if (!counts[2 * key] && !counts[2 * key + 1])
			keys[found++] = key;
		counts[2 * key + in_b]++;
	}
	qsort(keys, found, sizeof(*keys), by_key);
	return found;
}

static const char *key_name(const struct md_diff *diff, uint32_t key)
{
	uint32_t of_b = key - diff->a->kernel_count, type = of_b - diff->b->kernel_count;
	return key < diff->a->kernel_count    ? diff->a->kernels[key].name
	       : of_b < diff->b->kernel_count ? diff->b->kernels[of_b].name
					      : md_inspect_node((uint8_t)type);
}

/* Reports nodes without a counterpart, one line per kernel. */
static bool count_kernels(struct pair *p)
{
	MD_AUTO_FREE uint32_t *keys = malloc(((size_t)p->a->node_count + p->b->node_count + 1) * sizeof(*keys));
	uint32_t count = keys ? count_keys(p, keys) : 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t *counts = &p->diff->nodes_of_key[2 * keys[i]];
		char *what =
		    counts[0] == counts[1] ? NULL : md_diff_name("%s: %.200s", p->item, key_name(p->diff, keys[i]));
		if (what)
			md_diff_number(p->diff, "graphs", what, "nodes", counts[0], counts[1]);
		p->diff->failed |= !what && counts[0] != counts[1];
		free(what);
		counts[0] = counts[1] = 0;
	}
	return keys != NULL;
}

/* ---- edges ---- */

static int by_edge(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct md_edge));
}

/* Edges with a's numbers of the nodes, sorted. Nodes that only b has get numbers beyond a's. */
static struct md_edge *edges_of(const struct pair *p, bool in_b)
{
	const struct md_artifact_graph *graph = in_b ? p->b : p->a;
	struct md_edge *made = calloc((size_t)graph->edge_count + 1, sizeof(*made));
	for (uint32_t i = 0; made && i < graph->edge_count; i++) {
		const struct md_edge *edge = &graph->edges[i];
		uint32_t from = in_b ? p->a_of_b[edge->from] : edge->from, to = in_b ? p->a_of_b[edge->to] : edge->to;
		made[i].from = from == MD_NONE ? p->a->node_count + edge->from : from;
		made[i].to = to == MD_NONE ? p->a->node_count + edge->to : to;
		made[i].from_port = edge->from_port;
		made[i].to_port = edge->to_port;
		made[i].type = edge->type;
	}
	if (made)
		qsort(made, graph->edge_count, sizeof(*made), by_edge);
	return made;
}

static bool compare_edges(struct pair *p)
{
	MD_AUTO_FREE struct md_edge *a = edges_of(p, false);
	MD_AUTO_FREE struct md_edge *b = edges_of(p, true);
	uint32_t i = 0, k = 0, removed = 0, added = 0;
	char text[64];
	if (!a || !b)
		return false;
	while (i < p->a->edge_count || k < p->b->edge_count) {
		int order = i == p->a->edge_count ? 1 : k == p->b->edge_count ? -1 : memcmp(&a[i], &b[k], sizeof(*a));
		i += order <= 0;
		k += order >= 0;
		removed += order < 0;
		added += order > 0;
	}
	if (!removed && !added)
		return true;
	snprintf(text, sizeof(text), "%" PRIu32 ", %" PRIu32 " gone, %" PRIu32 " new", p->b->edge_count, removed,
		 added);
	char before[16];
	snprintf(before, sizeof(before), "%" PRIu32, p->a->edge_count);
	md_diff_text(p->diff, "graphs", p->item, "edges", before, text);
	return true;
}

/* ---- a graph ---- */

static void compare_head(struct pair *p)
{
	struct md_diff *diff = p->diff;
	const struct md_artifact_graph *a = p->a, *b = p->b;
	char proofs[2][MD_PROOF_TEXT];
	md_diff_text(diff, "graphs", p->item, "proof", md_inspect_proof(a, proofs[0]), md_inspect_proof(b, proofs[1]));
	md_diff_number(diff, "graphs", p->item, "instantiate flags", (int64_t)a->instantiate_flags,
		       (int64_t)b->instantiate_flags);
	md_diff_number(diff, "graphs", p->item, "nodes", a->node_count, b->node_count);
	md_diff_number(diff, "graphs", p->item, "parts of memory that is handed on", a->handed_count, b->handed_count);
	md_diff_number(diff, "graphs", p->item, "pointer words", (int64_t)a->pointer_words, (int64_t)b->pointer_words);
	md_diff_number(diff, "graphs", p->item, "constant and noise words",
		       (int64_t)(a->constant_words + a->noise_words), (int64_t)(b->constant_words + b->noise_words));
	size_t before = diff->count; /* a stale word that was equal twice counts as a constant */
	md_diff_number(diff, "graphs", p->item, "noise words", (int64_t)a->noise_words, (int64_t)b->noise_words);
	md_diff_chance(diff, before);
}

static void compare_said(struct pair *p)
{
	const struct md_artifact_graph *a = p->a, *b = p->b;
	char x[160], y[160], place[128];
	for (uint32_t i = 0; i < a->output_count || i < b->output_count; i++) {
		const struct md_artifact_output *u = i < a->output_count ? &a->outputs[i] : NULL;
		const struct md_artifact_output *v = i < b->output_count ? &b->outputs[i] : NULL;
		if (u && v && u->size == v->size && u->offset == v->offset &&
		    md_diff_same_alloc(p->diff, u->alloc, v->alloc))
			continue;
		MD_AUTO_FREE char *item = md_diff_name("%s: output %" PRIu32, p->item, i);
		if (u)
			md_diff_place_text(p->diff->a, u->alloc, (int64_t)u->offset, place, sizeof(place));
		if (u)
			snprintf(x, sizeof(x), "%" PRIu64 " bytes at %s", u->size, place);
		if (v)
			md_diff_place_text(p->diff->b, v->alloc, (int64_t)v->offset, place, sizeof(place));
		if (v)
			snprintf(y, sizeof(y), "%" PRIu64 " bytes at %s", v->size, place);
		md_diff_text(p->diff, "graphs", item ? item : p->item, u && v ? "place" : NULL, u ? x : NULL,
			     v ? y : NULL);
	}
	if (a->note_size == b->note_size && (!a->note_size || !memcmp(a->note, b->note, a->note_size)))
		return;
	snprintf(x, sizeof(x), "%" PRIu64 " bytes", a->note_size);
	snprintf(y, sizeof(y), "%" PRIu64 " %sbytes", b->note_size, a->note_size == b->note_size ? "other " : "");
	md_diff_text(p->diff, "graphs", p->item, "note", x, y);
}

static void compare_nodes(struct pair *p)
{
	for (uint32_t i = 0; i < p->a->node_count; i++) {
		uint32_t other = p->b_of_a[i];
		if (other == MD_NONE)
			continue;
		const struct md_node *x = &p->a->nodes[i], *y = &p->b->nodes[other];
		if (x->type == MD_NODE_KERNEL) {
			compare_geometry(p, i, x, y);
			compare_params(p, i, other, x, y);
		} else if (x->type == MD_NODE_MEMSET || x->type == MD_NODE_MEMCPY) {
			compare_copies(p, i, x, y);
		} else if (x->type != MD_NODE_EMPTY) {
			compare_held(p, i, x, y);
		}
		compare_pointers(p, i, other);
	}
}

static void compare_graphs(struct md_diff *diff, const char *item, const struct md_artifact_graph *a,
			   const struct md_artifact_graph *b)
{
	struct pair p = {.diff = diff, .item = item, .a = a, .b = b};
	compare_head(&p);
	if (match_nodes(&p) && count_kernels(&p) && compare_edges(&p) && compare_noise(&p)) {
		compare_nodes(&p);
		md_diff_tally(diff, "graphs", item, "launches differ in geometry", &p.geometry);
		md_diff_tally(diff, "graphs", item, "launches differ in attributes", &p.attributes);
		md_diff_tally(diff, "graphs", item, "parameter blocks differ in size", &p.sizes);
		md_diff_tally(diff, "graphs", item, "constant words differ", &p.constants);
		md_diff_tally(diff, "graphs", item, "pointers differ", &p.pointers);
		md_diff_tally(diff, "graphs", item, "copies or sets differ", &p.copies);
		compare_said(&p);
		size_t before = diff->count;
		md_diff_tally(diff, "graphs", item, "nodes differ in noise", &p.noise);
		md_diff_chance(diff, before);
	} else {
		diff->failed = true;
	}
	free(p.b_of_a);
	free(p.a_of_b);
}

static void one_graph(struct md_diff *diff, const char *item, const struct md_artifact_graph *graph, bool in_a)
{
	char text[64];
	snprintf(text, sizeof(text), "%" PRIu32 " nodes, %" PRIu32 " edges", graph->node_count, graph->edge_count);
	md_diff_text(diff, "graphs", item, NULL, in_a ? text : NULL, in_a ? NULL : text);
}

static char *name_graph(const void *owner, uint32_t index)
{
	const struct md_artifact_graph *graph = &((const struct md_artifact *)owner)->graphs[index];
	return md_diff_name("%s/%" PRIu32, graph->label, graph->batch);
}

static void compare_graph(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	if (a != MD_NONE && b != MD_NONE)
		compare_graphs(diff, name, &diff->a->graphs[a], &diff->b->graphs[b]);
	else
		one_graph(diff, name, a != MD_NONE ? &diff->a->graphs[a] : &diff->b->graphs[b], a != MD_NONE);
}

void md_diff_graphs(struct md_diff *diff)
{
	size_t keys = key_count(diff);
	diff->node_of_key = malloc(keys * sizeof(*diff->node_of_key));
	diff->nodes_of_key = calloc(2 * keys, sizeof(*diff->nodes_of_key));
	diff->failed |= !diff->node_of_key || !diff->nodes_of_key;
	for (size_t i = 0; !diff->failed && i < keys; i++)
		diff->node_of_key[i] = MD_NONE;
	if (!diff->failed)
		md_diff_tables(diff, &(struct md_diff_table){diff->a->graph_count, diff->a, name_graph},
			       &(struct md_diff_table){diff->b->graph_count, diff->b, name_graph}, compare_graph);
}
