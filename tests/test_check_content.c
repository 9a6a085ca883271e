/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts that do not hold together: each is refused with a place, and nothing is written. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "format/artifact/artifact.h"
#include "tests/artifact_samples.h"

static char folder[64], path[128];

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-artifact-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(path, sizeof(path), "%s/a.medusa", folder);
}

static void teardown(void)
{
	unlink(path);
	rmdir(folder);
}

TestSuite(check_content, .init = setup, .fini = teardown);

struct spoil {
	const char *message;
	void (*spoil)(struct md_artifact *artifact);
};

static void spoil_kernel(struct md_artifact *a)
{
	a->graphs[1].nodes[2].kernel = 99;
}
static void spoil_grid(struct md_artifact *a)
{
	a->graphs[0].nodes[0].grid[1] = 0;
}
static void spoil_type(struct md_artifact *a)
{
	a->graphs[0].nodes[5].type = 3;
}
static void spoil_params(struct md_artifact *a)
{
	a->graphs[0].nodes[0].params_size = 39;
}
static void spoil_edge(struct md_artifact *a)
{
	a->graphs[0].edges[3].to = 6;
}
static void spoil_self(struct md_artifact *a)
{
	a->graphs[0].edges[3].to = 3;
}
static void spoil_double_edge(struct md_artifact *a)
{
	a->graphs[0].edges[5] = a->graphs[0].edges[0];
}
static void spoil_cycle(struct md_artifact *a)
{
	a->graphs[0].edges[5] = (struct md_edge){.from = 5, .to = 1};
}
/* The graph before it has the same edges, or had them. */
static void spoil_later_edge(struct md_artifact *a)
{
	a->graphs[1].edges[5] = a->graphs[1].edges[0];
}
static void spoil_later_child(struct md_artifact *a)
{
	a->graphs[1].nodes[5].type = MD_NODE_CHILD;
	a->graphs[1].nodes[5].child_nodes = 1;
}
static void spoil_pointer_place(struct md_artifact *a)
{
	a->graphs[0].pointers[1].at = 33;
}
static void spoil_pointer_order(struct md_artifact *a)
{
	a->graphs[0].pointers[1].at = 7;
}
static void spoil_pointer_alloc(struct md_artifact *a)
{
	a->graphs[0].pointers[1].alloc = 4;
}
static void spoil_memset_pointer(struct md_artifact *a)
{
	a->graphs[0].pointers[6].at = 1;
}
static void spoil_noise(struct md_artifact *a)
{
	a->graphs[0].noise[1].size = 5;
}
static void spoil_arena(struct md_artifact *a)
{
	a->arena_size--;
}
static void spoil_overlap(struct md_artifact *a)
{
	a->allocs[3].arena_offset -= 512;
}
static void spoil_binding(struct md_artifact *a)
{
	a->allocs[0].binding = 2;
}
static void spoil_binding_name(struct md_artifact *a)
{
	free(a->bindings[0].name);
	a->bindings[0].name = strdup("input");
}
static void spoil_image(struct md_artifact *a)
{
	a->kernels[0].image = 2;
}
static void spoil_label(struct md_artifact *a)
{
	a->graphs[1].batch = 1;
}
static void spoil_content(struct md_artifact *a)
{
	a->contents[0].offset = 8192 - 99;
}
static void spoil_content_class(struct md_artifact *a)
{
	a->contents[0].alloc = 1;
}
static void spoil_content_pointer(struct md_artifact *a)
{
	a->contents[0].pointers[0].at = 93;
}

static const struct spoil spoils[] = {
    {"section \"graphs\": node 2 of graph decode/2: kernel index 99 of 2", spoil_kernel},
    {"node 0 of graph decode/1: grid 1x0x1", spoil_grid},
    {"node 5 of graph decode/1: type 3", spoil_type},
    {"parameter 2 at 16 of 24 bytes, in a block of 39", spoil_params},
    {"edge 3 of graph decode/1: from 3 to 6 of 6 nodes", spoil_edge},
    {"edge 3 of graph decode/1: from 3 to 3", spoil_self},
    {"two edges from 0 to 1", spoil_double_edge},
    {"its edges form a cycle", spoil_cycle},
    {"graph decode/2: two edges from 0 to 1", spoil_later_edge},
    {"graph decode/2: child graphs reach too far", spoil_later_child},
    {"section \"pointers\": pointer 1 of graph decode/1: byte 33 of node 0", spoil_pointer_place},
    {"byte 7 of node 0", spoil_pointer_order},
    {"allocation index 4 of 4", spoil_pointer_alloc},
    {"byte 1 of node 3", spoil_memset_pointer},
    {"noise 1 of graph decode/1", spoil_noise},
    {"section \"allocations\": allocation 3: 8192 bytes", spoil_arena},
    {"overlap in the arena", spoil_overlap},
    {"allocation 0: binding 2 of 2", spoil_binding},
    {"the name input appears twice", spoil_binding_name},
    {"kernel 0: image index 2 of 2", spoil_image},
    {"appears twice, as graph 0 with", spoil_label},
    {"section \"contents\": content 0: 100 bytes at 8093", spoil_content},
    {"must be private", spoil_content_class},
    {"content 0: pointer 0 at 93 of 100", spoil_content_pointer},
};

Test(check_content, refuse_what_points_nowhere)
{
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		spoils[i].spoil(&artifact);
		cr_assert_eq(md_artifact_write(&artifact, path, NULL, &err), MD_ERR_CORRUPT, "%s passes",
			     spoils[i].message);
		cr_assert(strstr(err.message, spoils[i].message), "\"%s\" lacks \"%s\"", err.message,
			  spoils[i].message);
		cr_assert(access(path, F_OK) != 0, "nothing is written");
		md_artifact_finish(&artifact);
	}
}

/* NCCL's kernels declare one struct of 4,096 bytes, and are given what they use of it, in one buffer. */
Test(check_content, a_buffer_may_end_within_its_last_struct)
{
	static const struct {
		struct md_param last;
		bool via_extra, good;
	} cases[] = {{{0, 4096}, true, true}, {{248, 9}, true, true},     {{0, 4096}, false, false},
		     {{252, 8}, true, false}, {{256, 4096}, true, false}, {{252, 4}, false, true}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		artifact.kernels[1].params[0] = cases[i].last;
		for (uint32_t g = 0; g < artifact.graph_count; g++)
			for (uint32_t n = 0; n < artifact.graphs[g].node_count; n++)
				if (artifact.graphs[g].nodes[n].kernel == 1)
					artifact.graphs[g].nodes[n].via_extra = cases[i].via_extra;
		enum md_status status = md_artifact_write(&artifact, path, NULL, &err);
		cr_assert_eq(status, cases[i].good ? MD_OK : MD_ERR_CORRUPT, "case %zu: %s", i, err.message);
		cr_assert(cases[i].good || strstr(err.message, "in a block of 256"), "%s", err.message);
		unlink(path);
		md_artifact_finish(&artifact);
	}
}
