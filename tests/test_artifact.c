/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts: every field comes back, damage and forgery are refused with a place, and graphs take few bytes. */
#include "format/artifact/artifact.h"

#include <criterion/criterion.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/secret.h"
#include "format/codec/pack.h"
#include "tests/artifact_samples.h"

enum { SECTIONS = 11 }; /* with image_data */

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

static uint8_t *slurp(size_t *size)
{
	struct md_file_bytes map;
	cr_assert(md_file_read(path, UINT64_MAX, &map, NULL) == MD_OK, "map %s", path);
	uint8_t *copy = malloc(map.size);
	memcpy(copy, map.data, map.size);
	*size = map.size;
	md_file_release(&map);
	return copy;
}

static uint8_t *sample_file(size_t *size)
{
	struct md_artifact artifact;
	struct md_error err;
	sample_artifact(&artifact);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "write: %s", err.message);
	md_artifact_finish(&artifact);
	return slurp(size);
}

/* ---- round trip ---- */

static void assert_text(const char *a, const char *b, const char *what)
{
	cr_assert((!a && !b) || (a && b && !strcmp(a, b)), "%s: %s, %s", what, a ? a : "(none)", b ? b : "(none)");
}

static void assert_same_nodes(const struct md_artifact_graph *a, const struct md_artifact_graph *b)
{
	cr_assert_eq(a->node_count, b->node_count, "nodes");
	for (uint32_t i = 0; i < a->node_count; i++) {
		const struct md_node *x = &a->nodes[i], *y = &b->nodes[i];
		cr_assert(x->type == y->type && x->kernel == y->kernel && x->via_extra == y->via_extra, "node %u: kind",
			  i);
		cr_assert(!memcmp(x->grid, y->grid, sizeof(x->grid)) && !memcmp(x->block, y->block, sizeof(x->block)) &&
			      x->shared_bytes == y->shared_bytes,
			  "node %u: geometry", i);
		cr_assert(x->params_size == y->params_size, "node %u: parameter size", i);
		cr_assert(!x->params_size || !memcmp(x->params, y->params, x->params_size), "node %u: parameters", i);
		cr_assert(x->attribute_count == y->attribute_count, "node %u: attributes", i);
		for (uint32_t k = 0; k < x->attribute_count; k++)
			cr_assert(x->attributes[k].id == y->attributes[k].id &&
				      !memcmp(x->attributes[k].value, y->attributes[k].value, 64),
				  "node %u: attribute %u", i, k);
		cr_assert(x->type != MD_NODE_MEMSET || !memcmp(&x->memset, &y->memset, sizeof(x->memset)), "node %u",
			  i);
		cr_assert(x->type != MD_NODE_MEMCPY || !memcmp(&x->memcpy, &y->memcpy, sizeof(x->memcpy)), "node %u",
			  i);
	}
}

static void assert_same_pointers(const struct md_pointer *a, const struct md_pointer *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		cr_assert(a[i].node == b[i].node && a[i].at == b[i].at && a[i].alloc == b[i].alloc &&
			      a[i].kind == b[i].kind && a[i].offset == b[i].offset,
			  "pointer %u", i);
}

static void assert_same_graph(const struct md_artifact_graph *a, const struct md_artifact_graph *b)
{
	assert_text(a->label, b->label, "label");
	cr_assert(a->batch == b->batch && a->proof == b->proof && a->instantiate_flags == b->instantiate_flags, "head");
	cr_assert(a->constant_words == b->constant_words && a->pointer_words == b->pointer_words &&
		      a->noise_words == b->noise_words,
		  "statistics");
	assert_same_nodes(a, b);
	cr_assert(a->edge_count == b->edge_count && !memcmp(a->edges, b->edges, a->edge_count * sizeof(*a->edges)),
		  "edges");
	cr_assert_eq(a->pointer_count, b->pointer_count, "pointers");
	assert_same_pointers(a->pointers, b->pointers, a->pointer_count);
	cr_assert(a->noise_count == b->noise_count && !memcmp(a->noise, b->noise, a->noise_count * sizeof(*a->noise)),
		  "noise");
	cr_assert_eq(a->output_count, b->output_count, "outputs");
	for (uint32_t i = 0; i < a->output_count; i++)
		cr_assert(a->outputs[i].alloc == b->outputs[i].alloc && a->outputs[i].offset == b->outputs[i].offset &&
			      a->outputs[i].size == b->outputs[i].size,
			  "output %u", i);
	cr_assert(a->note_size == b->note_size && (!a->note_size || !memcmp(a->note, b->note, a->note_size)), "note");
}

static void assert_same_tables(const struct md_artifact *a, const struct md_artifact *b)
{
	cr_assert(a->alloc_count == b->alloc_count && a->arena_size == b->arena_size, "allocations");
	for (uint32_t i = 0; i < a->alloc_count; i++) { /* field by field: what lies between fields is anything */
		const struct md_artifact_alloc *x = &a->allocs[i], *y = &b->allocs[i];
		cr_assert(x->class == y->class && x->family == y->family && x->binding == y->binding &&
			      x->order == y->order && x->size == y->size && x->arena_offset == y->arena_offset &&
			      x->image == y->image,
			  "allocation %u", i);
		assert_text(x->variable, y->variable, "its variable");
	}
	cr_assert_eq(a->binding_count, b->binding_count, "bindings");
	for (uint32_t i = 0; i < a->binding_count; i++) {
		assert_text(a->bindings[i].name, b->bindings[i].name, "binding");
		cr_assert(a->bindings[i].size == b->bindings[i].size && a->bindings[i].role == b->bindings[i].role,
			  "binding");
	}
	cr_assert_eq(a->image_count, b->image_count, "images");
	for (uint32_t i = 0; i < a->image_count; i++) {
		const struct md_image *x = &a->images[i], *y = &b->images[i];
		cr_assert(md_hash_equal(&x->hash, &y->hash) && x->kind == y->kind && x->size == y->size &&
			      x->file_offset == y->file_offset,
			  "image %u", i);
		assert_text(x->path, y->path, "path");
		assert_text(x->build_id, y->build_id, "build id");
		assert_text(x->variable, y->variable, "variable");
		cr_assert(!x->data == !y->data && (!x->data || !memcmp(x->data, y->data, x->size)), "image %u: data",
			  i);
	}
	cr_assert_eq(a->kernel_count, b->kernel_count, "kernels");
	for (uint32_t i = 0; i < a->kernel_count; i++) {
		const struct md_kernel *x = &a->kernels[i], *y = &b->kernels[i];
		assert_text(x->name, y->name, "kernel");
		cr_assert(x->image == y->image && x->param_count == y->param_count, "kernel %u", i);
		cr_assert(!memcmp(x->params, y->params, x->param_count * sizeof(*x->params)), "parameters %u", i);
		cr_assert(!memcmp(&x->state, &y->state, sizeof(x->state)), "state of kernel %u", i);
	}
}

static void assert_same_rest(const struct md_artifact *a, const struct md_artifact *b)
{
	cr_assert(md_fingerprint_compare(&a->fingerprint, &b->fingerprint, NULL) == MD_OK, "fingerprint");
	cr_assert(md_fingerprint_compare_facts(&a->fingerprint, &b->fingerprint, NULL) == MD_OK, "facts");
	cr_assert_eq(b->fingerprint.fact_count, 2, "number of facts");
	cr_assert(a->fingerprint.library_count == b->fingerprint.library_count, "libraries");
	assert_text(a->fingerprint.libraries[0].path, b->fingerprint.libraries[0].path, "library");
	assert_text(a->fingerprint.libraries[0].build_id, b->fingerprint.libraries[0].build_id, "build id");
	cr_assert_eq(a->refusal_count, b->refusal_count, "refusals");
	assert_text(a->refusals[0].label, b->refusals[0].label, "refusal");
	assert_text(a->refusals[0].why, b->refusals[0].why, "refusal");
	cr_assert(a->content_count == b->content_count, "contents");
	const struct md_artifact_content *x = &a->contents[0], *y = &b->contents[0];
	cr_assert(x->alloc == y->alloc && x->offset == y->offset && x->size == y->size, "content");
	cr_assert(!memcmp(x->data, y->data, x->size) && x->pointer_count == y->pointer_count, "data of the content");
	assert_same_pointers(x->pointers, y->pointers, x->pointer_count);
	cr_assert(a->kv.present == b->kv.present && a->kv.blocks == b->kv.blocks && a->kv.peak == b->kv.peak &&
		      a->kv.utilization_ppm == b->kv.utilization_ppm,
		  "kv");
	assert_text(a->kv.key, b->kv.key, "kv key");
	assert_text(a->provenance.command, b->provenance.command, "command");
	assert_text(a->provenance.created, b->provenance.created, "created");
	assert_text(a->provenance.tool_version, b->provenance.tool_version, "tool version");
	cr_assert(a->provenance.capture_count == 2 && b->provenance.capture_count == 2, "captures");
	cr_assert(!memcmp(a->provenance.stages, b->provenance.stages, sizeof(struct md_stage_time)), "stages");
}

Test(artifact, every_field_comes_back, .init = setup, .fini = teardown)
{
	struct md_artifact before, after;
	struct md_artifact_sizes written, read;
	struct md_error err;
	sample_artifact(&before);
	cr_assert(md_artifact_write(&before, path, &written, &err) == MD_OK, "write: %s", err.message);
	cr_assert(md_artifact_read(path, &after, &read, &err) == MD_OK, "read: %s", err.message);
	cr_assert(written.file == read.file && written.section_count == SECTIONS && read.section_count == SECTIONS,
		  "sizes");
	cr_assert_eq(before.graph_count, after.graph_count, "graphs");
	for (uint32_t i = 0; i < before.graph_count; i++)
		assert_same_graph(&before.graphs[i], &after.graphs[i]);
	assert_same_tables(&before, &after);
	assert_same_rest(&before, &after);
	md_artifact_finish(&before);
	md_artifact_finish(&after);
}

/* The writer of an earlier version left them in. A start with another key is compared as one with that key. */
Test(artifact, secrets_of_an_earlier_version_are_not_shown, .init = setup, .fini = teardown)
{
	struct md_artifact before, after;
	struct md_error err = {0};
	sample_artifact(&before);
	sample_text(&before.fingerprint.arguments, "--api-key");
	sample_text(&before.fingerprint.arguments, "sk-1");
	sample_text(&before.fingerprint.vary, "--hf-token=hf_*");
	free(before.provenance.command);
	before.provenance.command = strdup("engine --api-key sk-1 -v");
	cr_assert(md_artifact_write(&before, path, NULL, &err) == MD_OK, "write: %s", err.message);
	cr_assert(md_artifact_read(path, &after, NULL, &err) == MD_OK, "read: %s", err.message);
	const struct md_argument_list *arguments = &after.fingerprint.arguments, *vary = &after.fingerprint.vary;
	cr_assert_str_eq(after.provenance.command, "engine --api-key REDACTED -v", "command");
	cr_assert_str_eq(arguments->items[arguments->count - 2].text, "--api-key", "the option");
	cr_assert_str_eq(arguments->items[arguments->count - 1].text, "REDACTED", "its value");
	cr_assert_str_eq(vary->items[vary->count - 1].text, "--hf-token=REDACTED", "a pattern");
	free(before.fingerprint.arguments.items[before.fingerprint.arguments.count - 1].text);
	before.fingerprint.arguments.items[before.fingerprint.arguments.count - 1].text = strdup("another");
	cr_assert(md_secret_hide_arguments(&before.fingerprint.arguments), "memory");
	cr_assert(md_arguments_compare(arguments, &before.fingerprint.arguments, vary, "it has", &err) == MD_OK, "%s",
		  err.message);
	md_artifact_finish(&before);
	md_artifact_finish(&after);
}

Test(artifact, an_empty_one_comes_back, .init = setup, .fini = teardown)
{
	struct md_artifact before = {0}, after;
	struct md_error err;
	cr_assert(md_artifact_write(&before, path, NULL, &err) == MD_OK, "write: %s", err.message);
	cr_assert(md_artifact_read(path, &after, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert(!after.graph_count && !after.alloc_count && !after.kv.present, "nothing in it");
	md_artifact_finish(&after);
}

Test(artifact, a_decode_step_takes_few_bytes_and_little_time, .init = setup, .fini = teardown)
{
	struct md_artifact before, after;
	struct md_artifact_sizes sizes;
	struct md_error err;
	uint64_t stored = 0;
	large_artifact(&before);
	cr_assert(md_artifact_write(&before, path, &sizes, &err) == MD_OK, "write: %s", err.message);
	uint64_t start = md_clock_ns();
	cr_assert(md_artifact_read(path, &after, NULL, &err) == MD_OK, "read: %s", err.message);
	uint64_t ns = md_clock_ns() - start;
	for (uint32_t i = 0; i < sizes.section_count; i++) {
		if (!strcmp(sizes.sections[i].name, "graphs") || !strcmp(sizes.sections[i].name, "pointers")) {
			stored += sizes.sections[i].stored;
			printf("%s: %lu bytes of %lu\n", sizes.sections[i].name,
			       (unsigned long)sizes.sections[i].stored, (unsigned long)sizes.sections[i].raw);
		}
	}
	double per_node = (double)stored / (LARGE_GRAPHS * LARGE_NODES);
	printf("%.2f bytes a node; read in %.2f ms, %.0f ns a node\n", per_node, (double)ns / 1e6,
	       (double)ns / (LARGE_GRAPHS * LARGE_NODES));
	cr_assert(per_node <= 20, "%.2f bytes a node", per_node);
	for (uint32_t i = 0; i < before.graph_count; i++)
		assert_same_graph(&before.graphs[i], &after.graphs[i]);
#ifndef __SANITIZE_ADDRESS__
	cr_assert(after.pool && after.graphs[0].pooled, "many nodes are read into a pool");
#endif
	md_artifact_finish(&before);
	md_artifact_finish(&after);
}

/* ---- damage ---- */

static enum md_status parse_copy(const void *data, size_t size, struct md_error *err)
{
	void *copy = malloc(size ? size : 1); /* exactly as large, for the sanitizer */
	struct md_artifact artifact;
	memcpy(copy, data, size);
	enum md_status status = md_artifact_parse(copy, size, &artifact, NULL, err);
	if (status == MD_OK)
		md_artifact_finish(&artifact);
	free(copy);
	return status;
}

static bool has_place(const char *message)
{
	return strstr(message, "header") || (strstr(message, "section \"") && strstr(message, "offset"));
}

Test(artifact, every_truncation_is_refused, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	for (size_t cut = 0; cut < size; cut++) {
		struct md_error err = {0};
		cr_assert(parse_copy(data, cut, &err) != MD_OK, "cut at %zu of %zu passes", cut, size);
		cr_assert(has_place(err.message), "cut at %zu: where? %s", cut, err.message);
	}
	free(data);
}

Test(artifact, every_flipped_bit_is_refused, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	for (size_t bit = 0; bit < size * 8; bit++) {
		struct md_error err = {0};
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert(parse_copy(data, size, &err) != MD_OK, "bit %zu of %zu flipped unnoticed", bit, size * 8);
		cr_assert(has_place(err.message), "bit %zu: where? %s", bit, err.message);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(data);
}

/* ---- forgery: well-formed files around mutated sections ---- */

enum { HEADER = 64, ROW = 64, IMAGES = 9 };

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof(value));
	return value;
}

static void seal(struct md_buf *file, uint32_t sections)
{
	struct md_buf both;
	uint64_t size = file->size;
	memcpy(file->data + 48, &size, 8);
	md_buf_init(&both);
	md_buf_put(&both, file->data, 56);
	md_buf_put(&both, file->data + HEADER, (size_t)sections * ROW);
	uint64_t checksum = md_hash_checksum(both.data, both.size);
	memcpy(file->data + 56, &checksum, 8);
	md_buf_finish(&both);
}

/* The file again, with the raw bytes of section `which` replaced. */
static void forge(const uint8_t *data, uint32_t which, const void *raw, size_t raw_size, struct md_buf *out)
{
	uint32_t sections;
	memcpy(&sections, data + 32, 4);
	md_buf_init(out);
	md_buf_put(out, data, HEADER + (size_t)sections * ROW);
	for (uint32_t i = 0; i < sections; i++) {
		const uint8_t *row = data + HEADER + (size_t)i * ROW;
		uint64_t at = out->size, stored, size = get_u64(row + 32), checksum;
		if (i == which) {
			cr_assert(md_zip_append(out, raw, raw_size, 1, false, NULL) == MD_OK, "compress");
			size = raw_size;
		} else {
			md_buf_put(out, data + get_u64(row + 16), get_u64(row + 24));
		}
		stored = out->size - at;
		checksum = md_hash_checksum(out->data + at, stored);
		uint8_t *fresh = out->data + HEADER + (size_t)i * ROW;
		memcpy(fresh + 16, &at, 8);
		memcpy(fresh + 24, &stored, 8);
		memcpy(fresh + 32, &size, 8);
		memcpy(fresh + 40, &checksum, 8);
	}
	seal(out, sections);
}

static uint8_t *raw_section(const uint8_t *data, uint32_t which, size_t *size)
{
	const uint8_t *row = data + HEADER + (size_t)which * ROW;
	*size = get_u64(row + 32);
	uint8_t *raw = malloc(*size);
	cr_assert(md_zip_expand(data + get_u64(row + 16), get_u64(row + 24), raw, *size, NULL) == MD_OK, "expand");
	return raw;
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

Test(artifact, forged_sections_never_crash, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	uint64_t state = 88172645463325252;
	int refused = 0;
	for (int round = 0; round < 3000; round++) {
		size_t raw_size;
		uint32_t which = round % 3 ? 6 + (uint32_t)round % 2 : (uint32_t)(random_next(&state) % 10);
		uint8_t *raw = raw_section(data, which, &raw_size);
		for (int i = 0, n = 1 + (int)(random_next(&state) % 3); i < n; i++)
			raw[random_next(&state) % raw_size] = (uint8_t)random_next(&state);
		struct md_buf file;
		struct md_error err = {0};
		forge(data, which, raw, raw_size, &file);
		enum md_status status = parse_copy(file.data, file.size, &err);
		cr_assert(status == MD_OK || has_place(err.message), "round %d: where? %s", round, err.message);
		refused += status != MD_OK;
		md_buf_finish(&file);
		free(raw);
	}
	cr_assert(refused > 1000, "only %d of 3000 forgeries were refused", refused);
	free(data);
}

Test(artifact, announced_sizes_are_not_believed, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	struct md_buf file;
	struct md_error err = {0};
	uint64_t huge = 5ull << 30;
	md_buf_init(&file);
	md_buf_put(&file, data, size);
	memcpy(file.data + HEADER + 32, &huge, 8);
	seal(&file, SECTIONS);
	cr_assert_eq(parse_copy(file.data, file.size, &err), MD_ERR_TOO_LARGE, "%s", err.message);
	cr_assert(strstr(err.message, "section \"fingerprint\" at offset"), "%s", err.message);
	huge = 1 << 20;
	memcpy(file.data + HEADER + 32, &huge, 8);
	seal(&file, SECTIONS);
	cr_assert_eq(parse_copy(file.data, file.size, &err), MD_ERR_CORRUPT, "%s", err.message);
	cr_assert(strstr(err.message, "were announced"), "%s", err.message);
	md_buf_finish(&file);
	free(data);
}

static void assert_header_refused(uint8_t *data, size_t size, size_t at, uint8_t value, enum md_status expected,
				  const char *message)
{
	struct md_buf file;
	struct md_error err = {0};
	md_buf_init(&file);
	md_buf_put(&file, data, size);
	file.data[at] = value;
	seal(&file, SECTIONS);
	cr_assert_eq(parse_copy(file.data, file.size, &err), expected, "%s", err.message);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
	md_buf_finish(&file);
}

Test(artifact, versions_and_features, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	assert_header_refused(data, size, 12, 9, MD_ERR_VERSION, "needs a reader of version 9");
	assert_header_refused(data, size, 19, 1, MD_ERR_VERSION, "needs features 0x1000000");
	assert_header_refused(data, size, 0, 'm', MD_ERR_CORRUPT, "not an artifact");
	assert_header_refused(data, size, HEADER, 'x', MD_ERR_CORRUPT, "section \"fingerprint\" is missing");
	struct md_buf file;
	struct md_error err = {0};
	md_buf_init(&file);
	md_buf_put(&file, data, size);
	file.data[8] = 7;  /* a newer version that this reader may still read */
	file.data[26] = 1; /* with an optional feature that nobody knows */
	seal(&file, SECTIONS);
	cr_assert(parse_copy(file.data, file.size, &err) == MD_OK, "%s", err.message);
	md_buf_finish(&file);
	free(data);
}

/* msgpack, as this writer puts it: the key, then the number. Gives the place of the number's first byte. */
static size_t number_after(const uint8_t *raw, size_t size, const char *key)
{
	uint8_t *found = memmem(raw, size, key, strlen(key));
	cr_assert(found, "no key %s", key);
	return (size_t)(found - raw) + strlen(key);
}

static void assert_frame_refused(const uint8_t *data, const char *key, uint64_t value, enum md_status wanted,
				 const char *message)
{
	size_t size, at;
	uint8_t *raw = raw_section(data, IMAGES, &size), number[9] = {0xcf};
	struct md_buf section, file;
	struct md_error err = {0};
	at = number_after(raw, size, key);
	for (int i = 0; i < 8; i++)
		number[1 + i] = (uint8_t)(value >> (56 - 8 * i));
	static const uint8_t lengths[] = {[0xcc - 0xcc] = 1, 2, 4, 8};
	size_t old = raw[at] >= 0xcc && raw[at] <= 0xcf ? 1u + lengths[raw[at] - 0xcc] : 1;
	md_buf_init(&section);
	md_buf_put(&section, raw, at);
	md_buf_put(&section, number, sizeof(number));
	md_buf_put(&section, raw + at + old, size - at - old);
	forge(data, IMAGES, section.data, section.size, &file);
	cr_assert_eq(parse_copy(file.data, file.size, &err), wanted, "%s %llu: %s", key, (unsigned long long)value,
		     err.message);
	cr_assert(strstr(err.message, message) && has_place(err.message), "%s %llu: \"%s\" lacks \"%s\"", key,
		  (unsigned long long)value, err.message, message);
	md_buf_finish(&section);
	md_buf_finish(&file);
	free(raw);
}

Test(artifact, should_fail_frames_that_lie, .init = setup, .fini = teardown)
{
	size_t size;
	uint8_t *data = sample_file(&size);
	assert_frame_refused(data, "frame_offset", 1 << 20, MD_ERR_CORRUPT, "image 1: frame of");
	assert_frame_refused(data, "frame_offset", UINT64_MAX, MD_ERR_CORRUPT, "image 1: frame of");
	assert_frame_refused(data, "frame_offset", 1, MD_ERR_CORRUPT, "image 1: frame of");
	assert_frame_refused(data, "frame_size", UINT64_MAX, MD_ERR_CORRUPT, "image 1: frame of");
	assert_frame_refused(data, "frame_size", 1, MD_ERR_CORRUPT, "checksum differs");
	assert_frame_refused(data, "frame_size", 0, MD_ERR_CORRUPT, "a frame of no bytes");
	assert_frame_refused(data, "frame_checksum", 1, MD_ERR_CORRUPT, "checksum differs");
	free(data);
}

/* ---- writing ---- */

Test(artifact, a_failed_write_leaves_the_old_file, .init = setup, .fini = teardown)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "%s", err.message);
	struct rlimit before, small;
	cr_assert(getrlimit(RLIMIT_FSIZE, &before) == 0, "limits");
	small = (struct rlimit){100, before.rlim_max};
	cr_assert(setrlimit(RLIMIT_FSIZE, &small) == 0, "files of 100 bytes");
	cr_assert_eq(md_artifact_write(&artifact, path, NULL, &err), MD_ERR_OUTPUT, "a full disk");
	cr_assert(setrlimit(RLIMIT_FSIZE, &before) == 0, "as it was");
	cr_assert(strstr(err.message, "File too large"), "%s", err.message);
	struct md_artifact after;
	cr_assert(md_artifact_read(path, &after, NULL, &err) == MD_OK, "the old one is there: %s", err.message);
	md_artifact_finish(&after);
	cr_assert_eq(md_artifact_write(&artifact, "/nonexistent/a", NULL, &err), MD_ERR_OUTPUT, "no such folder");
	md_artifact_finish(&artifact);
	cr_assert_eq(md_artifact_read("/nonexistent/a", &after, NULL, &err), MD_ERR_NOT_FOUND, "no such file");
}
