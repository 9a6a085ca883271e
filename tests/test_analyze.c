/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis as a whole: kernels and images, options, provenance, size. */
#include "analyze/analyze.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/cpu_clock.h"
#include "tests/trace_builder.h"

static void start(struct builder *b, uint64_t base)
{
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, base, 0x1000);
	builder_image(b, 1);
}

static void launch(struct builder *b, uint32_t kernel, uint32_t batch)
{
	builder_graph(b, "decode", batch);
	builder_launch(b, kernel, &b->trace.allocs[0].address, 8);
}

static void analyze_one(struct builder *b, const struct md_analyze_options *options, struct md_artifact *out)
{
	struct md_error err;
	cr_assert(md_analyze(&b->trace, NULL, options, out, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_check(out, &err) == MD_OK, "a valid artifact: %s", err.message);
}

Test(analyze, only_what_is_used_is_kept_once)
{
	struct builder b;
	struct md_artifact artifact;
	start(&b, 0x700000000000);
	uint32_t unused_image = builder_image(&b, 2);
	builder_kernel(&b, unused_image, "unused", 8);
	uint32_t first = builder_kernel(&b, 0, "k", 8), again = builder_kernel(&b, 0, "k", 8);
	b.trace.kernels[first].state.max_dynamic_shared_bytes = 1000;
	b.trace.kernels[again].state.max_dynamic_shared_bytes = 65536;
	launch(&b, first, 1);
	launch(&b, again, 2);
	analyze_one(&b, NULL, &artifact);
	cr_assert(artifact.kernel_count == 1 && artifact.image_count == 1, "one kernel of one image: %u, %u",
		  artifact.kernel_count, artifact.image_count);
	cr_assert(strcmp(artifact.kernels[0].name, "k") == 0 && artifact.kernels[0].param_count == 1, "the used one");
	cr_assert(artifact.kernels[0].state.max_dynamic_shared_bytes == 65536, "with the wider limit of its handles");
	cr_assert(find_graph(&artifact, "decode", 2)->nodes[0].kernel == 0, "both graphs refer to it");
	cr_assert(artifact.images[0].data && artifact.images[0].data[0] == 1, "an image in no file is stored");
	md_artifact_finish(&artifact);
	builder_finish(&b);
}

Test(analyze, kernel_without_image_needs_a_unique_name)
{
	for (int unique = 0; unique < 2; unique++) {
		struct builder b;
		struct md_artifact artifact;
		start(&b, 0x700000000000);
		launch(&b, builder_kernel(&b, MD_NONE, "hidden", 8), 1);
		builder_kernel(&b, 0, unique ? "other" : "hidden", 8);
		analyze_one(&b, NULL, &artifact);
		if (unique)
			cr_assert(artifact.graph_count == 1 && artifact.kernels[0].image == MD_NONE,
				  "left to triggering kernels: '%s'", refusal_of(&artifact, "decode", 1));
		else
			cr_assert(strstr(refusal_of(&artifact, "decode", 1),
					 "node 0: the image of kernel hidden is not known"),
				  "'%s'", refusal_of(&artifact, "decode", 1));
		md_artifact_finish(&artifact);
		builder_finish(&b);
	}
}

/* Two edges between the same nodes have no place in the format: that graph is refused, the others are stored. */
Test(analyze, a_graph_that_cannot_be_stored_is_refused_alone)
{
	struct builder b;
	struct md_artifact artifact;
	start(&b, 0x700000000000);
	builder_kernel(&b, 0, "k", 8);
	launch(&b, 0, 1);
	launch(&b, 0, 2);
	builder_launch(&b, 0, &(uint64_t){1}, 8);
	builder_edge(&b, 0, 1);
	builder_edge(&b, 0, 1);
	analyze_one(&b, NULL, &artifact);
	cr_assert(artifact.graph_count == 1 && find_graph(&artifact, "decode", 1), "the good graph stays");
	cr_assert(strstr(refusal_of(&artifact, "decode", 2), "two edges from 0 to 1"), "'%s'",
		  refusal_of(&artifact, "decode", 2));
	md_artifact_finish(&artifact);
	builder_finish(&b);
}

/* ---- images in files ---- */

static char path[] = "/tmp/medusa-analyze-XXXXXX";

static void write_file(const void *data, size_t size)
{
	int fd;
	strcpy(path + sizeof(path) - 7, "XXXXXX");
	fd = mkstemp(path);
	cr_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size, "a file for the test");
	close(fd);
}

/* Image 0 lies 4 bytes into the file, and the trace does not hold its bytes. */
static void move_to_file(struct builder *b)
{
	struct md_image *image = &b->trace.images[0];
	char bytes[68] = {0};
	memcpy(bytes + 4, image->data, 64);
	write_file(bytes, sizeof(bytes));
	free(image->data);
	image->data = NULL;
	image->path = builder_text(path);
	image->build_id = builder_text("abcd");
	image->file_offset = 4;
}

Test(analyze, images_in_files)
{
	static const struct {
		struct md_analyze_options options;
		bool stored, referenced;
	} cases[] = {
	    {{.size = sizeof(cases[0].options)}, false, true},
	    {{.size = sizeof(cases[0].options), .store_file_images = true}, true, true},
	    {{.size = sizeof(cases[0].options), .no_images = true}, false, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct builder b;
		struct md_artifact artifact;
		start(&b, 0x700000000000);
		move_to_file(&b);
		launch(&b, builder_kernel(&b, 0, "k", 8), 1);
		analyze_one(&b, &cases[i].options, &artifact);
		cr_assert(artifact.image_count == 1, "%zu: one image", i);
		cr_assert((artifact.images[0].data != NULL) == cases[i].stored, "%zu: stored", i);
		cr_assert((artifact.images[0].path != NULL) == cases[i].referenced, "%zu: referenced", i);
		cr_assert(md_hash_equal(&artifact.images[0].hash, &b.trace.images[0].hash), "%zu: the hash stays", i);
		cr_assert(artifact.fingerprint.library_count == 1 &&
			      strcmp(artifact.fingerprint.libraries[0].build_id, "abcd") == 0,
			  "%zu: the file is in the fingerprint", i);
		md_artifact_finish(&artifact);
		builder_finish(&b);
		unlink(path);
	}
}

Test(analyze, a_changed_file_is_not_stored)
{
	const struct md_analyze_options options = {.size = sizeof(options), .store_file_images = true};
	struct builder b;
	struct md_artifact artifact;
	struct md_error err;
	start(&b, 0x700000000000);
	move_to_file(&b);
	b.trace.images[0].file_offset = 3;
	launch(&b, builder_kernel(&b, 0, "k", 8), 1);
	cr_assert(md_analyze(&b.trace, NULL, &options, &artifact, &err) == MD_ERR_MISMATCH, "a mismatch");
	cr_assert(strstr(err.message, "offset 3 is not the one that was captured"), "%s", err.message);
	b.trace.images[0].file_offset = 5;
	cr_assert(md_analyze(&b.trace, NULL, &options, &artifact, &err) == MD_ERR_TRUNCATED, "the file is too short");
	cr_assert(strstr(err.message, "ends at offset 68"), "%s", err.message);
	builder_finish(&b);
	unlink(path);
}

Test(analyze, bad_options)
{
	struct md_analyze_options options = {.size = 1};
	struct builder b;
	struct md_artifact artifact;
	struct md_error err;
	start(&b, 0x700000000000);
	cr_assert(md_analyze(&b.trace, NULL, &options, &artifact, &err) == MD_ERR_INVALID, "too small");
	options = (struct md_analyze_options){.size = sizeof(options), .no_images = true, .store_file_images = true};
	cr_assert(md_analyze(&b.trace, NULL, &options, &artifact, &err) == MD_ERR_INVALID, "contradicting");
	builder_finish(&b);
}

static void count_pass(void *user, const char *pass, uint64_t ns)
{
	cr_assert(pass && ns < UINT64_C(60000000000), "a pass with its time");
	++*(int *)user;
}

Test(analyze, a_profile_that_does_not_hold_is_left_out)
{
	const struct md_analyze_options options = {.size = sizeof(options)};
	struct builder b;
	struct md_artifact artifact;
	struct md_error err;
	start(&b, 0x700000000000);
	struct md_stage_time *stage = builder_grow(&b.trace.stages, &b.trace.stage_count, 2 * sizeof(*stage));
	strcpy(stage->name, "warmup");
	stage->ns = UINT64_MAX; /* an engine may say any number, and readers add them up */
	b.trace.kv = (struct md_kv){.present = true, .blocks = UINT64_MAX, .block_bytes = 4096, .utilization_ppm = 1};
	cr_assert(md_analyze(&b.trace, NULL, &options, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(!artifact.kv.present && artifact.provenance.stage_count == 0, "neither is in the artifact");
	md_artifact_finish(&artifact);
	builder_finish(&b);
}

Test(analyze, provenance_stages_and_kv)
{
	int passes = 0;
	const struct md_analyze_options options = {.size = sizeof(options), .pass_done = count_pass, .user = &passes};
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	start(&one, 0x700000000000);
	start(&two, 0x710000000000);
	struct md_stage_time *stage = builder_grow(&one.trace.stages, &one.trace.stage_count, sizeof(*stage));
	strcpy(stage->name, "warmup");
	stage->ns = 77;
	one.trace.kv = (struct md_kv){.present = true,
				      .baseline_free = 8192,
				      .kv_bytes = 4096,
				      .block_bytes = 2048,
				      .blocks = 2,
				      .utilization_ppm = 900000};
	cr_assert(md_analyze(&one.trace, &two.trace, &options, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.provenance.capture_count == 2, "two captures");
	cr_assert(strcmp(artifact.provenance.command, "engine --model m") == 0, "the command");
	cr_assert(strlen(artifact.provenance.created) == 20 && artifact.provenance.created[10] == 'T', "RFC 3339: %s",
		  artifact.provenance.created);
	cr_assert(artifact.provenance.stage_count == 1 && artifact.provenance.stages[0].ns == 77, "stages");
	cr_assert(artifact.kv.present && artifact.kv.kv_bytes == 4096, "KV capacity");
	cr_assert(passes == 24, "each pass was reported: %d", passes);
	builder_finish(&one);
	builder_finish(&two);
	cr_assert(strcmp(artifact.fingerprint.device_name, "Test Device") == 0, "the artifact owns what it holds");
	md_artifact_finish(&artifact);
}

/* ---- size: 35 graphs of 450 nodes of 90 words, among 400 allocations ---- */

#define WORDS 90

static uint64_t noise_state;

static uint64_t noise(void)
{
	noise_state ^= noise_state << 13;
	noise_state ^= noise_state >> 7;
	noise_state ^= noise_state << 17;
	return noise_state;
}

static void build_large(struct builder *b, unsigned capture, uint64_t base)
{
	noise_state = 0x9e3779b97f4a7c15u + capture;
	builder_init(b);
	for (uint32_t i = 0; i < 400; i++)
		builder_alloc(b, MD_ALLOC_DEVICE, base + UINT64_C(0x400000) * i, 0x200000);
	uint32_t kernel = builder_kernel(b, builder_image(b, 1), "k", 8 * WORDS);
	for (uint32_t g = 0; g < 35; g++) {
		builder_graph(b, "decode", g + 1);
		for (uint32_t n = 0; n < 450; n++) {
			uint64_t words[WORDS];
			for (uint32_t w = 0; w < WORDS; w++)
				words[w] = w % 16 == 0  ? base + UINT64_C(0x400000) * ((n * 7 + w) % 400) + 64 * w
					   : w % 5 == 0 ? 0x7f0000000000u + (noise() & 0xffffffff)
							: w * 3;
			builder_launch(b, kernel, words, sizeof(words));
		}
	}
}

Test(analyze, large_traces_take_well_under_a_second)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	uint64_t taken;
	build_large(&one, 0, 0x700000000000);
	build_large(&two, 1, 0x710000600000);
	taken = cpu_ns();
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	taken = cpu_ns() - taken;
	cr_assert(artifact.graph_count == 35, "'%s'", refusal_of(&artifact, "decode", 1));
	cr_assert(artifact.graphs[0].pointer_words == 450 * 6, "%llu pointers",
		  (unsigned long long)artifact.graphs[0].pointer_words);
	fprintf(stderr, "large_traces: %.1f ms\n", (double)taken / 1e6);
#ifndef MD_SANITIZED
	cr_assert(taken < UINT64_C(1000000000), "took %llu ms", (unsigned long long)(taken / 1000000));
#endif
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}
