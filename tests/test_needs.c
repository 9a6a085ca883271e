/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs need, of many random artifacts, against a search that looks at everything until nothing more is found. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "restore/needs.h"
#include "restore/restore.h"

enum { ALLOCS = 150, BINDINGS = 70, KERNELS = 9, IMAGES = 5, CONTENTS = 90, NODES = 6, POINTERS = 5 };

struct world {
	struct md_artifact artifact;
	struct md_artifact_graph graph;
	struct md_artifact_alloc allocs[ALLOCS];
	struct md_binding bindings[BINDINGS];
	struct md_kernel kernels[KERNELS];
	struct md_image images[IMAGES];
	struct md_image_value values[IMAGES];
	struct md_artifact_content contents[CONTENTS];
	struct md_node nodes[NODES];
	struct md_pointer pointers[POINTERS], in_contents[CONTENTS], in_values[IMAGES];
	struct md_doubtful doubtful;
	struct md_artifact_output output;
};

static uint64_t seed;

static uint32_t below(uint32_t most)
{
	return (uint32_t)(md_random_next(&seed) % most);
}

static void make_allocs(struct world *w)
{
	for (uint32_t i = 0; i < ALLOCS; i++) {
		static const uint8_t classes[] = {MD_CLASS_BOUND, MD_CLASS_BOUND, MD_CLASS_PRIVATE, MD_CLASS_VARIABLE};
		w->allocs[i].class = classes[below(4)];
		w->allocs[i].binding = below(BINDINGS);
		w->allocs[i].image = w->allocs[i].class == MD_CLASS_VARIABLE ? below(IMAGES) : MD_NONE;
		w->allocs[i].family = MD_ALLOC_DEVICE;
	}
	w->allocs[below(ALLOCS)].class = MD_CLASS_SEQUENCE;
}

static void make_bindings(struct world *w, bool old)
{
	for (uint32_t i = 0; i < BINDINGS; i++) {
		w->bindings[i].name = (char *)"name";
		w->bindings[i].role = below(3) ? MD_BIND_STATE : MD_BIND_CONSTANT;
		w->bindings[i].hashed = w->bindings[i].role == MD_BIND_CONSTANT && (!old || below(2));
		w->bindings[i].varied = below(2);
		w->bindings[i].overlaps = i > 10 && !below(8);
		w->bindings[i].within = w->bindings[i].overlaps ? below(10) : 0;
	}
}

static void make_contents(struct world *w)
{
	for (uint32_t i = 0; i < CONTENTS; i++) {
		w->in_contents[i].alloc = below(ALLOCS);
		w->contents[i] = (struct md_artifact_content){.alloc = below(ALLOCS),
							      .compared = below(4),
							      .pointers = &w->in_contents[i],
							      .pointer_count = below(2)};
	}
	for (uint32_t i = 0; i < IMAGES; i++) {
		w->in_values[i].alloc = below(ALLOCS);
		w->values[i] = (struct md_image_value){.pointers = &w->in_values[i], .pointer_count = below(2)};
		w->images[i] = (struct md_image){.values = &w->values[i], .value_count = !below(3)};
	}
}

static void make_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	make_allocs(w);
	make_bindings(w, !below(4));
	make_contents(w);
	for (uint32_t i = 0; i < KERNELS; i++)
		w->kernels[i].image = below(4) ? below(IMAGES) : MD_NONE;
	for (uint32_t i = 0; i < NODES; i++)
		w->nodes[i] =
		    (struct md_node){.type = below(5) ? MD_NODE_KERNEL : MD_NODE_EMPTY, .kernel = below(KERNELS)};
	for (uint32_t i = 0; i < POINTERS; i++)
		w->pointers[i].alloc = below(ALLOCS);
	w->doubtful.alloc = below(2) ? MD_NONE : below(ALLOCS);
	w->output = (struct md_artifact_output){.alloc = below(ALLOCS + 20), .size = below(2)};
	w->graph = (struct md_artifact_graph){.nodes = w->nodes,
					      .node_count = NODES,
					      .pointers = w->pointers,
					      .pointer_count = below(POINTERS + 1),
					      .doubtful = &w->doubtful,
					      .doubtful_count = below(2),
					      .outputs = &w->output,
					      .output_count = below(2)};
	w->artifact = (struct md_artifact){.allocs = w->allocs,
					   .alloc_count = ALLOCS,
					   .bindings = w->bindings,
					   .binding_count = BINDINGS,
					   .kernels = w->kernels,
					   .kernel_count = KERNELS,
					   .images = w->images,
					   .image_count = IMAGES,
					   .contents = w->contents,
					   .content_count = CONTENTS};
}

/* ---- the search ---- */

struct found {
	bool kernels[KERNELS], allocs[ALLOCS], contents[CONTENTS], bindings[BINDINGS], constants[BINDINGS],
	    images[IMAGES];
	bool values, all_compared;
};

static void find_first(const struct world *w, struct found *f)
{
	const struct md_artifact_graph *graph = &w->graph;
	for (uint32_t i = 0; i < NODES; i++)
		if (w->nodes[i].type == MD_NODE_KERNEL)
			f->kernels[w->nodes[i].kernel] = true;
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		f->allocs[w->pointers[i].alloc] = true;
	if (graph->doubtful_count && w->doubtful.alloc != MD_NONE)
		f->allocs[w->doubtful.alloc] = true;
	if (graph->output_count && w->output.size && w->output.alloc < ALLOCS)
		f->allocs[w->output.alloc] = true;
	for (uint32_t i = 0; i < KERNELS; i++)
		if (f->kernels[i] && w->kernels[i].image != MD_NONE && w->images[w->kernels[i].image].value_count)
			f->images[w->kernels[i].image] = true;
}

static bool find_more(const struct world *w, struct found *f)
{
	struct found before = *f;
	for (uint32_t i = 0; i < ALLOCS; i++)
		if (f->allocs[i] && w->allocs[i].class == MD_CLASS_VARIABLE)
			f->images[w->allocs[i].image] = true;
	for (uint32_t i = 0; i < IMAGES; i++)
		if (f->images[i] && w->images[i].value_count && w->values[i].pointer_count)
			f->allocs[w->in_values[i].alloc] = true;
	for (uint32_t i = 0; i < CONTENTS; i++) {
		f->contents[i] |= f->allocs[w->contents[i].alloc];
		if (f->contents[i] && w->contents[i].pointer_count)
			f->allocs[w->in_contents[i].alloc] = true;
	}
	return memcmp(&before, f, sizeof(before)) != 0;
}

static void find_bindings(const struct world *w, struct found *f)
{
	bool any = false;
	f->all_compared = true;
	for (uint32_t i = 0; i < IMAGES; i++)
		f->values |= f->images[i] && w->images[i].value_count;
	for (uint32_t i = 0; i < CONTENTS; i++) {
		any |= f->contents[i];
		f->all_compared &= !f->contents[i] || w->contents[i].compared;
	}
	for (uint32_t i = 0; i < ALLOCS; i++)
		if (f->allocs[i] && w->allocs[i].class == MD_CLASS_BOUND)
			f->bindings[w->allocs[i].binding] = true;
	for (uint32_t i = 0; (any || f->values) && i < BINDINGS; i++)
		if (w->bindings[i].hashed && !(w->bindings[i].varied && f->all_compared))
			f->constants[i] = f->bindings[i] = true;
	for (uint32_t i = 0; i < BINDINGS; i++)
		if (f->bindings[i] && w->bindings[i].overlaps)
			f->bindings[w->bindings[i].within] = true;
	for (uint32_t i = 0; i < BINDINGS; i++)
		f->bindings[i] |= w->bindings[i].overlaps && f->bindings[w->bindings[i].within];
}

static void find(const struct world *w, struct found *f)
{
	memset(f, 0, sizeof(*f));
	find_first(w, f);
	while (find_more(w, f))
		;
	find_bindings(w, f);
}

/* ---- the comparison ---- */

static void assert_same(const struct md_bits *set, const bool *found, uint32_t count, const char *what)
{
	uint32_t list[ALLOCS], expected = 0;
	uint32_t listed = (uint32_t)(md_bits_list(set, list) - list);
	cr_assert_eq(listed, md_bits_count(set), "%s: %u listed, %u counted", what, listed, md_bits_count(set));
	for (uint32_t i = 0; i < count; i++) {
		if (!found[i])
			continue;
		cr_assert(expected < listed && list[expected] == i, "%s %u", what, i);
		expected++;
	}
	cr_assert_eq(listed, expected, "%s: %u, of which %u are needed", what, listed, expected);
}

static void assert_needs(const struct md_needs *needs, const struct found *f)
{
	assert_same(&needs->kernels, f->kernels, KERNELS, "kernel");
	assert_same(&needs->allocs, f->allocs, ALLOCS, "allocation");
	assert_same(&needs->contents, f->contents, CONTENTS, "content");
	assert_same(&needs->bindings, f->bindings, BINDINGS, "binding");
	assert_same(&needs->constants, f->constants, BINDINGS, "constant");
	assert_same(&needs->images, f->images, IMAGES, "image");
}

static bool is_refused(const struct world *w, const struct found *f)
{
	bool any = f->values, lacks = false, sequence = false;
	for (uint32_t i = 0; i < CONTENTS; i++)
		any |= f->contents[i];
	for (uint32_t i = 0; i < BINDINGS; i++)
		lacks |= w->bindings[i].role == MD_BIND_CONSTANT && !w->bindings[i].hashed;
	for (uint32_t i = 0; i < ALLOCS; i++)
		sequence |= f->allocs[i] && w->allocs[i].class == MD_CLASS_SEQUENCE;
	return sequence || (any && lacks);
}

Test(needs, of_random_graphs_are_those_that_a_search_finds)
{
	static struct world w;
	static struct found f;
	unsigned refused = 0, with_constants = 0;
	seed = 4;
	for (unsigned round = 0; round < 300; round++) {
		struct md_needs needs;
		make_world(&w);
		cr_assert(md_needs_init(&needs, &w.artifact));
		for (unsigned again = 0; again < 3; again++) { /* nothing of one graph is left for the next */
			struct md_error err = {0};
			for (uint32_t i = 0; i < POINTERS; i++)
				w.pointers[i].alloc = below(ALLOCS);
			md_needs_of(&needs, &w.graph);
			find(&w, &f);
			assert_needs(&needs, &f);
			cr_assert_eq(md_needs_check(&needs, &err) != MD_OK, is_refused(&w, &f), "%s", err.message);
			refused += err.status != MD_OK;
			with_constants += md_bits_count(&needs.constants) > 0;
		}
		md_needs_finish(&needs);
	}
	cr_expect(refused > 30 && refused < 870, "%u of 900 graphs refused", refused);
	cr_expect(with_constants > 30, "%u of 900 graphs have constants", with_constants);
}
