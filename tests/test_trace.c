/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: every record comes back as it was put, killed and damaged files are told apart, and nothing is trusted. */
#include "format/trace/trace.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "format/artifact/artifact.h"
#include "format/codec/pack.h"

static char folder[] = "/tmp/medusa-trace-XXXXXX";
static char path[128], part[160];

static void setup(void)
{
	strcpy(folder + sizeof(folder) - 7, "XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(path, sizeof(path), "%s/t.mtrace", folder);
	snprintf(part, sizeof(part), "%s.part", path);
}

static void teardown(void)
{
	unlink(path);
	unlink(part);
	rmdir(folder);
}

static struct md_trace_writer *writer_new(void)
{
	struct md_error err;
	struct md_trace_writer *w = NULL;
	cr_assert(md_trace_writer_create(path, &w, &err) == MD_OK, "create: %s", err.message);
	return w;
}

static uint8_t param_bytes[32];
static struct md_attribute attributes[2] = {{.id = 2, .value = {1, 0, 3}}, {.id = 4, .value = {[63] = 9}}};

static struct md_trace_graph sample_graph(struct md_node nodes[5], struct md_edge edges[3])
{
	for (size_t i = 0; i < sizeof(param_bytes); i++)
		param_bytes[i] = (uint8_t)(i * 7);
	memset(nodes, 0, 5 * sizeof(*nodes));
	nodes[0] = (struct md_node){.type = MD_NODE_KERNEL,
				    .kernel = 1,
				    .grid = {8, 2, 1},
				    .block = {128, 1, 1},
				    .shared_bytes = 49152,
				    .params_size = 32,
				    .params = param_bytes,
				    .attribute_count = 2,
				    .attributes = attributes,
				    .via_extra = true,
				    .sequence = 40};
	nodes[1] = nodes[0];
	nodes[1].params_size = 20;
	nodes[1].sequence = 42;
	nodes[1].attribute_count = 1;
	nodes[2] = (struct md_node){
	    .type = MD_NODE_MEMSET, .kernel = MD_NONE, .sequence = 43, .memset = {0x7f0000001000, 512, 16, 1, 0xff, 4}};
	nodes[3] = (struct md_node){.type = MD_NODE_MEMCPY,
				    .kernel = MD_NONE,
				    .sequence = 45,
				    .memcpy = {.src = 0x7f0000002000,
					       .dst = UINT64_MAX,
					       .src_type = 2,
					       .dst_type = 1,
					       .src_x = 1,
					       .dst_z = 5,
					       .width = 64,
					       .height = 1,
					       .depth = 1}};
	nodes[4] =
	    (struct md_node){.type = 3, .kernel = MD_NONE, .sequence = 46}; /* a host node: kept, not understood */
	edges[0] = (struct md_edge){.from = 0, .to = 1, .from_port = 1, .type = 1};
	edges[1] = (struct md_edge){.from = 1, .to = 2};
	edges[2] = (struct md_edge){.from = 1, .to = 3};
	return (struct md_trace_graph){.id = 7,
				       .instantiate_flags = 2,
				       .nodes = nodes,
				       .node_count = 5,
				       .edges = edges,
				       .edge_count = 3,
				       .refused = (char *)"host node at index 4"};
}

static void put_everything(struct md_trace_writer *w)
{
	struct md_fingerprint_library library = {.path = (char *)"/lib/a.so", .build_id = (char *)"ab12"};
	struct md_fingerprint fingerprint = {.device_name = "Device",
					     .compute_major = 9,
					     .multiprocessors = 132,
					     .device_memory = 1ull << 40,
					     .driver_version = 13000,
					     .libraries = &library,
					     .library_count = 1};
	struct md_param params[] = {{0, 8}, {8, 24}};
	struct md_image image = {.hash = md_hash_bytes("abc", 3),
				 .kind = MD_IMAGE_ELF,
				 .size = 3,
				 .path = (char *)"/lib/a.so",
				 .file_offset = 64};
	struct md_image stored = {
	    .hash = md_hash_bytes("xyz", 3), .kind = MD_IMAGE_PTX, .size = 3, .data = (uint8_t *)"xyz"};
	struct md_kernel kernel = {
	    .image = 1,
	    .name = (char *)"_Z3addPf",
	    .params = params,
	    .param_count = 2,
	    .state = {.max_dynamic_shared_bytes = 65536, .preferred_carveout = -1, .registers = 32}};
	struct md_kernel unseen = {.image = MD_NONE, .name = (char *)"hidden"};
	struct md_kv kv = {.baseline_free = 1,
			   .peak = 2,
			   .graph_bytes = 3,
			   .kv_bytes = 4,
			   .block_bytes = 5,
			   .blocks = 6,
			   .utilization_ppm = 900000,
			   .key = "model"};
	struct md_stage_time stage = {.name = "warmup", .ns = 1234567};
	struct md_node nodes[5];
	struct md_edge edges[3];
	struct md_trace_graph graph = sample_graph(nodes, edges);
	md_trace_put_meta(
	    w,
	    &(struct md_trace_meta){
		.process_id = 12, .start_unix_ns = 99, .shift = 3, .command = "engine --x", .tool_version = "0.1.0"});
	md_trace_put_fingerprint(w, &fingerprint);
	md_trace_put_alloc(w, 1, MD_ALLOC_DEVICE, 0x1000, 512);
	md_trace_put_free(w, 5, 0x1000);
	md_trace_put_alloc(w, 6, MD_ALLOC_ASYNC, 0x1000, 1024);
	md_trace_put_alloc(w, 3, MD_ALLOC_HOST, 0x9000, 64); /* late, from another thread */
	md_trace_put_image(w, 7, &stored);
	md_trace_put_image(w, 8, &image);
	md_trace_put_kernel(w, 9, &kernel);
	md_trace_put_kernel(w, 10, &unseen);
	md_trace_put_launches(w, 11, 0, 1);
	md_trace_put_label(w, 12, 7, "too early", 1);
	md_trace_put_graph(w, 50, &graph);
	md_trace_put_label(w, 51, 7, "decode", 4);
	md_trace_put_label(w, 52, 7, "decode", 8);
	md_trace_put_bind(w, 53, "weights", 0x9000, 64, MD_BIND_CONSTANT);
	md_trace_put_mark(w, 54, "ready");
	md_trace_put_kv(w, 55, &kv);
	md_trace_put_stage(w, 56, &stage);
	md_trace_put_transfers(w, 57, MD_TRANSFER_SET, &(struct md_transfers){2, 20});
	md_trace_put_transfers(w, 58, MD_TRANSFER_SET, &(struct md_transfers){3, 30});
	md_trace_put_content(w, 57, 0x1010, 4, "data");
	md_trace_put_probe(w, 58, 7, MD_PROBE_CONTENT_SAVED, "4 bytes");
	md_trace_put_launches(w, 59, 0, 17);
	md_trace_put_fact(w, 60, "torch", "2.11");
	md_trace_put_output(w, 61, 7, 0, 0x1000, 64);
	md_trace_put_note(w, 62, 7, "shapes", 6);
	md_trace_put_refusal(w, 63, 7, "late");
}

static void close_ok(struct md_trace_writer *w)
{
	struct md_error err;
	cr_assert(md_trace_writer_close(w, &err) == MD_OK, "close: %s", err.message);
}

static void read_ok(struct md_trace *trace)
{
	struct md_error err;
	cr_assert(md_trace_read(path, trace, &err) == MD_OK, "read: %s", err.message);
}

Test(trace, everything_comes_back, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	put_everything(w);
	close_ok(w);
	cr_assert(access(part, F_OK) != 0, "the .part file is gone");
	struct md_trace trace;
	read_ok(&trace);
	cr_assert(trace.complete, "complete");
	cr_assert_str_eq(trace.path, path, "path");
	cr_assert(trace.process_id == 12 && trace.start_unix_ns == 99 && trace.shift == 3, "meta");
	cr_assert_str_eq(trace.command, "engine --x", "command");
	cr_assert_str_eq(trace.tool_version, "0.1.0", "tool version");
	cr_assert_str_eq(trace.fingerprint.device_name, "Device", "device");
	cr_assert(trace.fingerprint.compute_major == 9 && trace.fingerprint.device_memory == 1ull << 40, "facts");
	cr_assert_eq(trace.fingerprint.library_count, 1, "one library");
	cr_assert_str_eq(trace.fingerprint.libraries[0].build_id, "ab12", "build id");
	cr_assert_eq(trace.image_count, 2, "images");
	cr_assert(trace.images[0].size == 3 && !memcmp(trace.images[0].data, "xyz", 3), "stored image");
	cr_assert(!trace.images[1].data && trace.images[1].file_offset == 64, "referenced image");
	cr_assert_eq(trace.kernel_count, 2, "kernels");
	cr_assert(trace.kernels[0].image == 1 && trace.kernels[1].image == MD_NONE, "images of kernels");
	cr_assert_str_eq(trace.kernels[0].name, "_Z3addPf", "name");
	cr_assert(trace.kernels[0].param_count == 2 && trace.kernels[0].params[1].size == 24, "parameters");
	cr_assert(trace.kernels[0].state.preferred_carveout == -1 && trace.kernels[0].state.registers == 32, "state");
	cr_assert(trace.launches[0] == 17 && trace.launches[1] == 0, "launch totals");
	cr_assert(trace.bind_count == 1 && trace.binds[0].role == MD_BIND_CONSTANT && trace.binds[0].sequence == 53,
		  "bind");
	cr_assert_str_eq(trace.binds[0].name, "weights", "name of the binding");
	cr_assert(trace.kv.present && trace.kv.blocks == 6 && trace.kv.utilization_ppm == 900000, "kv");
	cr_assert_str_eq(trace.kv.key, "model", "kv key");
	cr_assert(trace.stage_count == 1 && trace.stages[0].ns == 1234567, "stage");
	cr_assert(trace.transfers[MD_TRANSFER_SET].count == 3 && trace.transfers[MD_TRANSFER_SET].bytes == 30, "sets");
	cr_assert_eq(trace.transfers[MD_TRANSFER_TO_DEVICE].count, 0, "copies to the device");
	cr_assert(trace.content_count == 1 && trace.contents[0].size == 4 && trace.contents[0].address == 0x1010,
		  "content");
	cr_assert(!memcmp(trace.contents[0].data, "data", 4), "bytes of the content");
	md_trace_finish(&trace);
}

Test(trace, allocations_are_paired_by_sequence, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	put_everything(w);
	close_ok(w);
	struct md_trace trace;
	read_ok(&trace);
	cr_assert_eq(trace.alloc_count, 3, "three allocations");
	cr_assert(trace.allocs[0].born == 1 && trace.allocs[0].died == 5, "freed");
	cr_assert(trace.allocs[1].born == 3 && trace.allocs[1].died == UINT64_MAX, "the late record is in its place");
	cr_assert(trace.allocs[1].family == MD_ALLOC_HOST && trace.allocs[1].size == 64, "and is the host's");
	cr_assert(trace.allocs[2].born == 6 && trace.allocs[2].died == UINT64_MAX, "the same address again");
	md_trace_finish(&trace);
}

Test(trace, exported_memory_is_shared_from_its_beginning, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	md_trace_put_alloc(w, 1, MD_ALLOC_VMM, 0x1000, 512);
	md_trace_put_alloc(w, 2, MD_ALLOC_SHARED, 0x1000, 512);
	md_trace_put_alloc(w, 3, MD_ALLOC_VMM, 0x4000, 512);
	md_trace_put_alloc(w, 4, MD_ALLOC_SHARED, 0x4000, 256);
	close_ok(w);
	struct md_trace trace;
	read_ok(&trace);
	cr_assert_eq(trace.alloc_count, 3, "%u allocations", trace.alloc_count);
	cr_assert(trace.allocs[0].family == MD_ALLOC_SHARED && trace.allocs[0].born == 1 &&
		      trace.allocs[0].died == UINT64_MAX,
		  "the same memory");
	cr_assert(trace.allocs[1].family == MD_ALLOC_VMM && trace.allocs[1].died == 4,
		  "of another size it is other memory");
	md_trace_finish(&trace);
}

static void assert_same_node(const struct md_node *a, const struct md_node *b, int index)
{
	cr_assert(a->type == b->type && a->kernel == b->kernel && a->via_extra == b->via_extra, "node %d: kind", index);
	cr_assert(!memcmp(a->grid, b->grid, sizeof(a->grid)) && !memcmp(a->block, b->block, sizeof(a->block)),
		  "node %d: geometry", index);
	cr_assert(a->shared_bytes == b->shared_bytes && a->sequence == b->sequence, "node %d: numbers", index);
	cr_assert(a->params_size == b->params_size, "node %d: parameter size", index);
	cr_assert(!a->params_size || !memcmp(a->params, b->params, a->params_size), "node %d: parameters", index);
	cr_assert(a->attribute_count == b->attribute_count, "node %d: attributes", index);
	for (uint32_t i = 0; i < a->attribute_count; i++)
		cr_assert(a->attributes[i].id == b->attributes[i].id &&
			      !memcmp(a->attributes[i].value, b->attributes[i].value, 64),
			  "node %d: attribute %u", index, i);
	cr_assert(a->type != MD_NODE_MEMSET || !memcmp(&a->memset, &b->memset, sizeof(a->memset)), "node %d: memset",
		  index);
	cr_assert(a->type != MD_NODE_MEMCPY || !memcmp(&a->memcpy, &b->memcpy, sizeof(a->memcpy)), "node %d: memcpy",
		  index);
}

Test(trace, graphs_come_back_with_labels_and_probes, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	put_everything(w);
	close_ok(w);
	struct md_trace trace;
	read_ok(&trace);
	struct md_node nodes[5];
	struct md_edge edges[3];
	sample_graph(nodes, edges);
	cr_assert_eq(trace.graph_count, 1, "one graph");
	struct md_trace_graph *graph = &trace.graphs[0];
	cr_assert(graph->id == 7 && graph->sequence == 50 && graph->instantiate_flags == 2, "head");
	cr_assert_str_eq(graph->label, "decode", "the last label wins");
	cr_assert_eq(graph->batch, 8, "with its batch");
	cr_assert_str_eq(graph->refused, "host node at index 4", "refusal");
	cr_assert_eq(graph->probe, MD_PROBE_CONTENT_SAVED, "probe");
	cr_assert_str_eq(graph->probe_why, "4 bytes", "why");
	cr_assert(graph->node_count == 5 && graph->edge_count == 3, "sizes");
	for (int i = 0; i < 5; i++)
		assert_same_node(&graph->nodes[i], &nodes[i], i);
	cr_assert(!memcmp(graph->edges, edges, sizeof(edges)), "edges with their data");
	md_trace_finish(&trace);
}

static void *slurp(const char *name, size_t *size)
{
	struct md_file_bytes map;
	cr_assert(md_file_read(name, UINT64_MAX, &map, NULL) == MD_OK, "map %s", name);
	void *copy = malloc(map.size ? map.size : 1);
	memcpy(copy, map.data, map.size);
	*size = map.size;
	md_file_release(&map);
	return copy;
}

static void *sample_file(size_t *size)
{
	struct md_trace_writer *w = writer_new();
	put_everything(w);
	md_trace_writer_flush(w, NULL);
	md_trace_put_mark(w, 60, "second frame");
	close_ok(w);
	return slurp(path, size);
}

/* A copy of exactly `size` bytes, so that the sanitizer sees a read past its end. */
static enum md_status parse_copy(const void *data, size_t size, bool *complete, struct md_error *err)
{
	void *copy = malloc(size ? size : 1);
	memcpy(copy, data, size);
	struct md_trace trace;
	*complete = false;
	enum md_status status = md_trace_parse(copy, size, &trace, err);
	if (status == MD_OK) {
		*complete = trace.complete;
		md_trace_finish(&trace);
	}
	free(copy);
	return status;
}

Test(trace, every_truncation_is_an_error_or_incomplete, .init = setup, .fini = teardown)
{
	size_t size, incomplete = 0;
	uint8_t *data = sample_file(&size);
	for (size_t cut = 0; cut < size; cut++) {
		struct md_error err = {0};
		bool complete;
		enum md_status status = parse_copy(data, cut, &complete, &err);
		cr_assert(!complete, "cut at %zu of %zu passes as complete", cut, size);
		cr_assert(status == MD_OK || err.message[0], "cut at %zu: a message", cut);
		cr_assert((status != MD_OK) == (cut < 32), "cut at %zu: only a cut header is an error: %s", cut,
			  err.message);
		incomplete += status == MD_OK;
	}
	cr_assert(incomplete == size - 32, "all cuts behind the header are readable");
	free(data);
}

Test(trace, every_flipped_bit_behind_the_header_is_noticed, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	for (size_t bit = 32 * 8; bit < size * 8; bit++) {
		struct md_error err = {0};
		bool complete;
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		enum md_status status = parse_copy(data, size, &complete, &err);
		cr_assert(status != MD_OK || !complete, "bit %zu flipped unnoticed", bit);
		cr_assert(status == MD_OK || strstr(err.message, "offset"), "bit %zu: where? %s", bit, err.message);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(data);
}

static void put_frame(struct md_buf *file, const void *raw, size_t size)
{
	struct md_buf stored;
	md_buf_init(&stored);
	cr_assert(md_zip_append(&stored, raw, size, 1, false, NULL) == MD_OK, "compress");
	md_buf_put_u32(file, (uint32_t)stored.size);
	md_buf_put_u32(file, (uint32_t)size);
	md_buf_put_u64(file, md_hash_checksum(stored.data, stored.size));
	md_buf_put(file, stored.data, stored.size);
	md_buf_finish(&stored);
}

static void put_header(struct md_buf *file, uint32_t version, uint32_t oldest, uint64_t required)
{
	md_buf_init(file);
	md_buf_put(file, "MDTRACE", 8);
	md_buf_put_u32(file, version);
	md_buf_put_u32(file, oldest);
	md_buf_put_u64(file, required);
	md_buf_put_u64(file, ~0ull); /* optional features: any */
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Raw bytes of the first frame of a file. */
static uint8_t *first_frame(const uint8_t *file, size_t *size)
{
	uint32_t stored, raw;
	memcpy(&stored, file + 32, 4);
	memcpy(&raw, file + 36, 4);
	uint8_t *data = malloc(raw);
	cr_assert(md_zip_expand(file + 48, stored, data, raw, NULL) == MD_OK, "expand");
	*size = raw;
	return data;
}

Test(trace, forged_records_never_crash, .init = setup, .fini = teardown)
{
	size_t size, raw_size;
	uint8_t *data = sample_file(&size), *raw = first_frame(data, &raw_size);
	uint8_t *forged = malloc(raw_size);
	uint64_t state = 0x9e3779b97f4a7c15;
	int refused = 0;
	for (int round = 0; round < 2000; round++) {
		memcpy(forged, raw, raw_size);
		for (int i = 0, n = 1 + (int)(random_next(&state) % 3); i < n; i++)
			forged[random_next(&state) % raw_size] = (uint8_t)random_next(&state);
		struct md_buf file;
		struct md_error err = {0};
		bool complete;
		put_header(&file, 1, 1, 0);
		put_frame(&file, forged, raw_size);
		enum md_status status = parse_copy(file.data, file.size, &complete, &err);
		cr_assert(status == MD_OK || strstr(err.message, "frame 0 at offset 32"), "where? %s", err.message);
		refused += status != MD_OK;
		md_buf_finish(&file);
	}
	cr_assert(refused > 500, "only %d of 2000 forgeries were refused", refused);
	free(forged);
	free(raw);
	free(data);
}

static void assert_refused(struct md_buf *file, enum md_status expected, const char *message)
{
	struct md_error err = {0};
	bool complete;
	enum md_status status = parse_copy(file->data, file->size, &complete, &err);
	cr_assert(status == expected, "status %s: %s", md_status_name(status), err.message);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
	md_buf_finish(file);
}

Test(trace, refusals_say_why)
{
	struct md_buf file;
	put_header(&file, 9, 8, 0);
	assert_refused(&file, MD_ERR_VERSION, "version 9 needs a reader of version 8");
	put_header(&file, 1, 1, 4);
	assert_refused(&file, MD_ERR_VERSION, "unknown required features 0x4");
	md_buf_init(&file);
	md_buf_put(&file, "NOTATRACEATALL", 14);
	assert_refused(&file, MD_ERR_CORRUPT, "not a trace");
	put_header(&file, 1, 1, 0);
	md_buf_put_u32(&file, 100);
	md_buf_put_u32(&file, 0x20000000);
	md_buf_put_u64(&file, 0);
	assert_refused(&file, MD_ERR_TOO_LARGE, "frame 0 at offset 32");
	put_header(&file, 1, 1, 0);
	put_frame(&file, "\x94\x07\x01\x05\x01", 5); /* launches of kernel 5 */
	assert_refused(&file, MD_ERR_CORRUPT, "kernel index 5 of 0");
}

Test(trace, unknown_records_and_further_fields_are_skipped)
{
	struct md_buf raw, file;
	msgpack_packer p;
	md_buf_init(&raw);
	md_pack_init(&p, &raw);
	msgpack_pack_array(&p, 4);
	msgpack_pack_uint32(&p, 200);
	msgpack_pack_uint64(&p, 1);
	msgpack_pack_map(&p, 1);
	md_pack_text(&p, "key");
	msgpack_pack_double(&p, 1.5);
	msgpack_pack_nil(&p);
	msgpack_pack_array(&p, 4); /* a free with a field that this reader does not know */
	msgpack_pack_uint32(&p, 4);
	msgpack_pack_uint64(&p, 2);
	msgpack_pack_uint64(&p, 0x1000);
	md_pack_text(&p, "reason");
	msgpack_pack_array(&p, 3);
	msgpack_pack_uint32(&p, 16);
	msgpack_pack_uint64(&p, 0);
	msgpack_pack_uint64(&p, 2);
	put_header(&file, 2, 1, 0);
	put_frame(&file, raw.data, raw.size);
	struct md_error err = {0};
	bool complete;
	cr_assert(parse_copy(file.data, file.size, &complete, &err) == MD_OK, "%s", err.message);
	cr_assert(complete, "complete");
	md_buf_finish(&raw);
	md_buf_finish(&file);
}

Test(trace, a_killed_process_leaves_what_was_flushed, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	put_everything(w);
	cr_assert(md_trace_writer_flush(w, NULL) == MD_OK, "flush");
	struct md_trace trace;
	struct md_error err;
	cr_assert(md_trace_read(part, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(!trace.complete && trace.graph_count == 1 && trace.kv.present, "all of it, incomplete");
	md_trace_finish(&trace);
	md_trace_writer_abandon(w);
	cr_assert(access(path, F_OK) != 0, "an abandoned trace is not published");
	cr_assert(access(part, F_OK) == 0, "but stays for diagnosis");
}

Test(trace, a_full_disk_is_an_error_once_and_for_all, .init = setup, .fini = teardown)
{
	struct md_error err;
	struct md_trace_writer *w = NULL;
	struct rlimit before;
	cr_assert(getrlimit(RLIMIT_FSIZE, &before) == 0, "limits");
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){8, before.rlim_max});
	cr_assert_eq(md_trace_writer_create(path, &w, &err), MD_ERR_OUTPUT, "the header does not fit");
	setrlimit(RLIMIT_FSIZE, &before);
	cr_assert(strstr(err.message, part) && strstr(err.message, "too large"), "%s", err.message);
	cr_assert_eq(md_trace_writer_create("/nonexistent/x", &w, &err), MD_ERR_OUTPUT, "no such folder");
	cr_assert(strstr(err.message, "/nonexistent/x.part"), "%s", err.message);
}

Test(trace, should_fail_a_link_under_the_name_of_the_part, .init = setup, .fini = teardown)
{
	struct md_error err;
	struct md_trace_writer *w = NULL;
	cr_assert(symlink("/dev/full", part) == 0, "a link that somebody has prepared");
	cr_assert_eq(md_trace_writer_create(path, &w, &err), MD_ERR_OUTPUT, "a link is not followed");
	cr_assert(strstr(err.message, part) && strstr(err.message, "symbolic links"), "%s", err.message);
}

Test(trace, a_disk_that_fills_up_stops_the_trace, .init = setup, .fini = teardown)
{
	struct md_error err;
	struct md_trace_writer *w = writer_new();
	uint8_t *bytes = malloc(1 << 16);
	uint64_t state = 42;
	for (int i = 0; i < 1 << 16; i++)
		bytes[i] = (uint8_t)random_next(&state); /* incompressible */
	/* SIGXFSZ keeps its default, which ends the process: the writer must not let it come. */
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
	md_trace_put_content(w, 1, 0x1000, 1 << 16, bytes);
	cr_assert(md_trace_writer_status(w, &err) == MD_OK, "buffered, no failure yet");
	cr_assert_eq(md_trace_writer_flush(w, &err), MD_ERR_OUTPUT, "the frame does not fit");
	cr_assert(strstr(err.message, part) && strstr(err.message, "too large"), "%s", err.message);
	md_trace_put_mark(w, 2, "ignored");
	cr_assert_eq(md_trace_writer_status(w, &err), MD_ERR_OUTPUT, "the failure stays");
	cr_assert_eq(md_trace_writer_close(w, &err), MD_ERR_OUTPUT, "nothing is completed");
	cr_assert(access(path, F_OK) != 0, "nor published");
	free(bytes);
}

static void *put_many(void *argument)
{
	struct md_trace_writer *w = argument;
	for (uint64_t i = 0; i < 20000; i++)
		md_trace_put_free(w, i, i);
	return NULL;
}

Test(trace, threads_share_a_writer, .init = setup, .fini = teardown)
{
	struct md_trace_writer *w = writer_new();
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, put_many, w);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	close_ok(w);
	struct md_trace trace;
	read_ok(&trace); /* the end record counts 80000 */
	cr_assert(trace.complete, "complete");
	md_trace_finish(&trace);
}
