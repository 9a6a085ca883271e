/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that an engine acts on: each that does not fit the others is refused by name, read or about to be written. */
#include <criterion/criterion.h>
#include <string.h>

#include "format/artifact/artifact.h"
#include "tests/artifact_samples.h"

struct spoil {
	const char *message;
	void (*spoil)(struct md_artifact *artifact);
};

#define SPOIL(name, ...)                                                                                               \
	static void name(struct md_artifact *a)                                                                        \
	{                                                                                                              \
		__VA_ARGS__;                                                                                           \
	}

SPOIL(no_blocks, a->kv.blocks = 0)
SPOIL(no_block_bytes, a->kv.block_bytes = 0)
SPOIL(no_utilization, a->kv.utilization_ppm = 0)
SPOIL(utilization, a->kv.utilization_ppm = 1000001)
SPOIL(all_blocks, a->kv.blocks = UINT64_MAX)
SPOIL(blocks_overflow, a->kv.blocks = 1ull << 63; a->kv.block_bytes = 2; a->kv.kv_bytes = 0)
SPOIL(kv_bytes, a->kv.kv_bytes++)
SPOIL(kv_beyond_free, a->kv.peak = 21)
SPOIL(kv_peak_overflow, a->kv.peak = UINT64_MAX)
SPOIL(free_beyond_device, a->kv.baseline_free = (150ull << 30) + 1)
SPOIL(graphs_beyond_device, a->kv.graph_bytes = (150ull << 30) + 1)
SPOIL(bindings_overflow, a->bindings[0].size = a->allocs[0].size = UINT64_MAX - 10)
SPOIL(alloc_and_binding, a->allocs[0].size++)
SPOIL(arena_too_large, a->arena_size += 512)
SPOIL(arena_beyond_device, a->allocs[3].size = a->arena_size = 1ull << 40; a->allocs[3].arena_offset = 1 << 16;
      a->arena_size += 1 << 16)
SPOIL(image_too_large, a->images[0].size = (4ull << 30) + 1)
SPOIL(image_offset, a->images[0].file_offset = INT64_MAX)
SPOIL(shared_bytes, a->kernels[1].state.max_dynamic_shared_bytes = -1)
SPOIL(carveout, a->kernels[1].state.preferred_carveout = 101)
SPOIL(no_carveout, a->kernels[1].state.preferred_carveout = -2)
SPOIL(cluster, a->kernels[1].state.non_portable_cluster = 2)
SPOIL(registers, a->kernels[1].state.registers = -1)
SPOIL(static_bytes, a->kernels[1].state.static_shared_bytes = -1)
SPOIL(stage_sum, a->provenance.stages[0].ns = 1ull << 63)
SPOIL(event_attribute, a->graphs[0].nodes[1].attributes[0].id = 7)
SPOIL(completion_attribute, a->graphs[0].nodes[1].attributes[0].id = 12)
SPOIL(updatable_attribute, a->graphs[0].nodes[1].attributes[0].id = 13)
SPOIL(unknown_attribute, a->graphs[0].nodes[1].attributes[0].id = 17)
SPOIL(window_address, a->graphs[0].nodes[1].attributes[0] = (struct md_attribute){.id = 1, .value = {1}})
SPOIL(window_without_pointer, a->graphs[0].nodes[1].attributes[0] = (struct md_attribute){.id = 1, .value = {[8] = 64}})
SPOIL(memset_address, a->graphs[0].nodes[3].memset.dst = 4096)
SPOIL(memcpy_address, a->graphs[0].nodes[4].memcpy.src = 4096)
SPOIL(host_without_pointer, a->graphs[3].nodes[4].memcpy.src_type = 1)
SPOIL(host_that_is_none, a->graphs[0].nodes[4].memcpy.dst_type = 1)
SPOIL(noise_in_a_set, a->graphs[0].noise[2] = (struct md_noise){3, 0, 8})

/* 4096 bytes of page-locked memory; the copy is of `rows` rows with a pitch of 64, from an offset. */
static void host_copy(struct md_artifact *a, uint64_t rows, uint64_t pitch, int64_t offset)
{
	struct md_artifact_graph *graph = &a->graphs[0];
	a->allocs[1] = (struct md_artifact_alloc){MD_CLASS_BOUND, MD_ALLOC_HOST, 1, 1, 64, 0, 0, NULL};
	graph->pointers[7].alloc = 1;
	graph->pointers[7].offset = offset;
	graph->nodes[4].memcpy.src_type = 1;
	graph->nodes[4].memcpy.src_x = 0;
	graph->nodes[4].memcpy.src_pitch = pitch;
	graph->nodes[4].memcpy.width = 16;
	graph->nodes[4].memcpy.height = rows;
}
SPOIL(host_rows, host_copy(a, 5, 16, 0))
SPOIL(host_offset, host_copy(a, 1, 16, 49))
SPOIL(host_before, host_copy(a, 1, 16, -1))
SPOIL(host_pitch, host_copy(a, 2, UINT64_MAX, 0))
SPOIL(host_height, host_copy(a, UINT64_MAX, 16, 0))

static const struct spoil spoils[] = {
    {"section \"kv\": 0 blocks of 5 bytes", no_blocks},
    {"6 blocks of 0 bytes", no_block_bytes},
    {"at a utilization of 0", no_utilization},
    {"utilization of 1000001", utilization},
    {"18446744073709551615 blocks of 5 bytes are not the 30 bytes", all_blocks},
    {"9223372036854775808 blocks of 2 bytes are not the 0 bytes", blocks_overflow},
    {"6 blocks of 5 bytes are not the 31 bytes", kv_bytes},
    {"a cache of 30 bytes beside a peak of 21, of 50", kv_beyond_free},
    {"beside a peak of 18446744073709551615, of 50", kv_peak_overflow},
    {"of 161061273601 that were free on a device of 161061273600", free_beyond_device},
    {"graphs of 161061273601 bytes on a device", graphs_beyond_device},
    {"section \"bindings\": together they have more than 2^64 bytes", bindings_overflow},
    {"allocation 0: 1048577 bytes, its binding 0 has 1048576", alloc_and_binding},
    {"an arena of 74240 bytes, of which 73728 are allocated", arena_too_large},
    {"an arena of 1099511693312 bytes on a device of", arena_beyond_device},
    {"image 0: 4294967297 bytes at offset 4096", image_too_large},
    {"image 0: 3 bytes at offset 9223372036854775807", image_offset},
    {"kernel 1: -1 dynamic", shared_bytes},
    {"carveout 101", carveout},
    {"carveout -2", no_carveout},
    {"cluster 2", cluster},
    {"-1 registers", registers},
    {"and -1 static", static_bytes},
    {"section \"provenance\": its stages together take more than 2^63 ns", stage_sum},
    {"node 1 of graph decode/1: attribute 7 cannot be stored", event_attribute},
    {"attribute 12 cannot be stored", completion_attribute},
    {"attribute 13 cannot be stored", updatable_attribute},
    {"attribute 17 cannot be stored", unknown_attribute},
    {"an access policy window of 0 bytes without a pointer", window_address},
    {"an access policy window of 64 bytes without a pointer", window_without_pointer},
    {"node 3 of graph decode/1: sets at 0x1000", memset_address},
    {"node 4 of graph decode/1: copies from 0x1000 to 0", memcpy_address},
    {"node 4 of graph encode/1: copies from host memory without a pointer", host_without_pointer},
    {"copies to host memory, allocation 3 is none", host_that_is_none},
    {"node 3 of graph decode/1: noise 2 lies in no parameters", noise_in_a_set},
    {"copies from host memory beyond allocation 1, from offset 0 of 64 bytes", host_rows},
    {"beyond allocation 1, from offset 49 of 64", host_offset},
    {"beyond allocation 1, from offset -1 of 64", host_before},
    {"beyond allocation 1, from offset 0 of 64", host_pitch},
    {"beyond allocation 1, from offset 0 of 64", host_height},
};

Test(check_numbers, should_fail_what_does_not_fit_together)
{
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		spoils[i].spoil(&artifact);
		enum md_status status = md_artifact_check(&artifact, &err);
		cr_expect_eq(status, MD_ERR_CORRUPT, "case %zu: %s", i, spoils[i].message);
		cr_expect(strstr(err.message, spoils[i].message), "\"%s\" is to hold \"%s\"", err.message,
			  spoils[i].message);
		md_artifact_finish(&artifact);
	}
}

Test(check_numbers, a_copy_that_ends_with_its_host_memory_is_right)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	host_copy(&artifact, 4, 16, 0);
	cr_assert_eq(md_artifact_check(&artifact, &err), MD_OK, "%s", err.message);
	host_copy(&artifact, 1, 0, 48);
	cr_assert_eq(md_artifact_check(&artifact, &err), MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
}

Test(check_numbers, a_profile_that_is_not_there_says_nothing)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.kv = (struct md_kv){.blocks = UINT64_MAX};
	cr_assert_eq(md_artifact_check(&artifact, &err), MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
}
