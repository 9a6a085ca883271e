/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs, notes and facts in an artifact: older files have none, older readers are kept out, bad ones are refused. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "format/artifact/artifact.h"
#include "base/file.h"
#include "tests/artifact_samples.h"

static char path[64];

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/medusa-said-%d.medusa", (int)getpid());
}

static void teardown(void)
{
	unlink(path);
}

static uint64_t write_and_get_required(const struct md_artifact *artifact)
{
	struct md_file_bytes map;
	struct md_error err;
	uint64_t required;
	cr_assert(md_artifact_write(artifact, path, NULL, &err) == MD_OK, "write: %s", err.message);
	cr_assert(md_file_read(path, UINT64_MAX, &map, NULL) == MD_OK, "map");
	memcpy(&required, (const uint8_t *)map.data + 16, 8);
	md_file_release(&map);
	return required;
}

static void drop_facts(struct md_artifact *artifact)
{
	for (uint32_t i = 0; i < artifact->fingerprint.fact_count; i++) {
		free(artifact->fingerprint.facts[i].name);
		free(artifact->fingerprint.facts[i].value);
	}
	artifact->fingerprint.fact_count = 0;
}

static char *print(const struct md_artifact *artifact, size_t *size)
{
	char *text = NULL;
	struct md_error err;
	FILE *out = open_memstream(&text, size);
	cr_assert(md_artifact_print_text(artifact, out, &err) == MD_OK, "print: %s", err.message);
	fclose(out);
	return text;
}

Test(artifact_said, facts_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact;
	sample_artifact(&artifact);
	cr_assert_eq(write_and_get_required(&artifact), 3, "stored images and facts");
	drop_facts(&artifact);
	cr_assert_eq(write_and_get_required(&artifact), 65, "stored images, and arguments that count now");
	md_artifact_finish(&artifact);
}

/* Who did not know of the variable would take any copy of its image. */
Test(artifact_said, variables_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.images[0].variable = strdup("scale");
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "and a file: %s", err.message);
	cr_assert(strstr(err.message, "image 0: its variable"), "%s", err.message);
	free(artifact.images[0].path);
	artifact.images[0].path = NULL;
	cr_assert_eq(write_and_get_required(&artifact), 11, "stored images, facts and a variable");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert_str_eq(read.images[0].variable, "scale");
	cr_assert(!read.images[1].variable, "of the other image");
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

/* Who did not know of addresses in variables would set them to nothing, or to somewhere. */
Test(artifact_said, addresses_in_variables_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	sample_artifact(&artifact);
	sample_addresses(&artifact);
	cr_assert_eq(write_and_get_required(&artifact), 1283, "stored images, facts, values and addresses");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	const struct md_image_value *value = &read.images[1].values[0];
	cr_assert(value->pointer_count == 2 && value->pointers[1].at == 8 && value->pointers[1].alloc == 1, "words");
	cr_assert(read.allocs[1].class == MD_CLASS_VARIABLE && read.allocs[1].image == 1, "a variable");
	cr_assert_str_eq(read.allocs[1].variable, "table");
	md_artifact_finish(&read);
	artifact.images[1].values[0].pointers[1].at = 4;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "words that overlap");
	cr_assert(strstr(err.message, "image 1: value 0: pointer 1 at 4 of 24"), "%s", err.message);
	artifact.images[1].values[0].pointers[1].at = 8;
	artifact.allocs[1].image = 7;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "of no image");
	cr_assert(strstr(err.message, "allocation 1: variable \"table\" of image 7"), "%s", err.message);
	md_artifact_finish(&artifact);
}

static void assert_hashes(const struct md_artifact *artifact)
{
	struct md_hash hash = md_hash_bytes("weights", 7);
	cr_assert(artifact->bindings[0].hashed && artifact->bindings[0].varied, "the first binding varied");
	cr_assert(md_hash_equal(&artifact->bindings[0].hash, &hash), "its hash");
	cr_assert(!artifact->bindings[1].hashed && !artifact->bindings[1].varied, "none of the other");
	cr_assert(artifact->contents[0].compared, "contents that were compared");
}

/* Who did not know of the hash would hand out contents of other weights. */
Test(artifact_said, hashes_of_bindings_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	size_t size;
	sample_artifact(&artifact);
	artifact.contents[0].compared = true;
	artifact.bindings[0].varied = true;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "varied alone: %s", err.message);
	cr_assert(strstr(err.message, "binding 0 varied, but has no hash"), "%s", err.message);
	artifact.bindings[0].hashed = true;
	artifact.bindings[0].hash = md_hash_bytes("weights", 7);
	cr_assert_eq(write_and_get_required(&artifact), 131, "stored images, facts and hashes of bindings");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	assert_hashes(&read);
	char *text = print(&read, &size);
	md_artifact_finish(&read);
	FILE *in = fmemopen(text, size, "r");
	cr_assert(md_artifact_parse_text(in, &read, &err) == MD_OK, "parse: %s", err.message);
	assert_hashes(&read);
	fclose(in);
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

/* Who did not know of neighbours would take an end for a beginning. */
Test(artifact_said, neighbours_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	size_t size;
	sample_artifact(&artifact);
	artifact.bindings[1].adjoins = true;
	artifact.bindings[1].before = 1;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "itself: %s", err.message);
	cr_assert(strstr(err.message, "binding 1: its neighbour is binding 1 of "), "%s", err.message);
	artifact.bindings[1].before = artifact.binding_count;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "none: %s", err.message);
	artifact.bindings[1].before = 0;
	cr_assert_eq(write_and_get_required(&artifact), 515, "stored images, facts and neighbours");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	char *text = print(&read, &size);
	md_artifact_finish(&read);
	FILE *in = fmemopen(text, size, "r");
	cr_assert(md_artifact_parse_text(in, &read, &err) == MD_OK, "parse: %s", err.message);
	cr_assert(read.bindings[1].adjoins && read.bindings[1].before == 0, "of the text");
	cr_assert_not(read.bindings[0].adjoins);
	fclose(in);
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

static void should_fail_to_write(const struct md_artifact *artifact, const char *why)
{
	struct md_error err = {0};
	cr_assert(md_artifact_write(artifact, path, NULL, &err) == MD_ERR_CORRUPT, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
}

/* Who did not know of places would restore pointers to the other one of two names of one memory. */
Test(artifact_said, places_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	size_t size;
	sample_artifact(&artifact);
	struct md_binding *binding = &artifact.bindings[1];
	binding->overlaps = true;
	binding->within = 1;
	should_fail_to_write(&artifact, "binding 1: it lies within binding 1 of ");
	binding->within = artifact.binding_count;
	should_fail_to_write(&artifact, "binding 1: it lies within binding ");
	binding->within = 0;
	artifact.bindings[0].overlaps = true;
	artifact.bindings[0].within = 1;
	should_fail_to_write(&artifact, "binding 0: it lies within binding 1 of ");
	artifact.bindings[0].overlaps = false;
	binding->distance = 12;
	cr_assert_eq(write_and_get_required(&artifact), 8195, "stored images, facts and places");
	binding->overlaps = false;
	binding->align = 24;
	should_fail_to_write(&artifact, "binding 1: aligned to 24 bytes");
	binding->align = 64;
	should_fail_to_write(&artifact, "binding 1: aligned to 64 bytes");
	binding->align = 16;
	cr_assert_eq(write_and_get_required(&artifact), 8195, "an alignment alone");
	binding->overlaps = true;
	cr_assert_eq(write_and_get_required(&artifact), 8195, "both");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	char *text = print(&read, &size);
	md_artifact_finish(&read);
	FILE *in = fmemopen(text, size, "r");
	cr_assert(md_artifact_parse_text(in, &read, &err) == MD_OK, "parse: %s", err.message);
	cr_assert(read.bindings[1].overlaps && read.bindings[1].within == 0 && read.bindings[1].distance == 12);
	cr_assert_eq(read.bindings[1].align, 16, "of the text");
	fclose(in);
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

/* Who did not know of them would make events that nobody waits for. */
Test(artifact_said, library_events_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	sample_artifact(&artifact);
	struct md_artifact_graph *graph = &artifact.graphs[0];
	struct md_node *node = &graph->nodes[graph->node_count - 1];
	*node = (struct md_node){.type = MD_NODE_EVENT_RECORD, .kernel = MD_NONE, .event = graph->node_count - 1};
	cr_assert_eq(write_and_get_required(&artifact), 7, "an event of the graph's own");
	node->event = graph->node_count + 65535;
	cr_assert_eq(write_and_get_required(&artifact), 16391, "the library's");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert_eq(read.graphs[0].nodes[graph->node_count - 1].event, graph->node_count + 65535);
	md_artifact_finish(&read);
	node->type = MD_NODE_EVENT_WAIT;
	cr_assert_eq(write_and_get_required(&artifact), 16391, "one that is waited for");
	node->event++;
	should_fail_to_write(&artifact, "event 65542, of a graph of 6 nodes");
	node->type = MD_NODE_EVENT_RECORD;
	should_fail_to_write(&artifact, "event 65542, of a graph of 6 nodes");
	md_artifact_finish(&artifact);
}

/* Who did not know of limits would hand out graphs whose kernels fault. */
Test(artifact_said, limits_keep_older_readers_out, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	size_t size;
	sample_artifact(&artifact);
	cr_assert_eq(write_and_get_required(&artifact), 3, "stored images and facts");
	artifact.fingerprint.limits[0] = 8192;
	artifact.fingerprint.limits[2] = UINT64_C(1) << 33;
	cr_assert_eq(write_and_get_required(&artifact), 4099, "limits as well");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	char *text = print(&read, &size);
	md_artifact_finish(&read);
	FILE *in = fmemopen(text, size, "r");
	cr_assert(md_artifact_parse_text(in, &read, &err) == MD_OK, "parse: %s", err.message);
	cr_assert_arr_eq(read.fingerprint.limits, artifact.fingerprint.limits, sizeof(read.fingerprint.limits));
	fclose(in);
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

/* Who did not know of requests would take the engine's allocations for what they are not. */
Test(artifact_said, requests_keep_older_readers_out, .init = setup, .fini = teardown)
{
	static const struct md_sequence_request requests[] = {{MD_ALLOC_DEVICE, MD_SEQUENCE_NONE, 2, 64},
							      {MD_ALLOC_PITCH, 0, MD_SEQUENCE_NONE, 512},
							      {MD_ALLOC_VMM, 1, 3, 4096}};
	struct md_artifact artifact, read;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.requests = malloc(sizeof(requests));
	memcpy(artifact.requests, requests, sizeof(requests));
	artifact.request_count = 3;
	cr_assert_eq(write_and_get_required(&artifact), 19, "stored images, facts and requests");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert_eq(read.request_count, 3);
	for (int i = 0; i < 3; i++)
		cr_assert(read.requests[i].family == requests[i].family && read.requests[i].size == requests[i].size &&
			      read.requests[i].below == requests[i].below &&
			      read.requests[i].freed == requests[i].freed,
			  "request %d", i);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

Test(artifact_said, should_fail_requests_that_cannot_be, .init = setup, .fini = teardown)
{
	static const struct {
		struct md_sequence_request request;
		const char *message;
	} cases[] = {
	    {{MD_ALLOC_DEVICE, 1, MD_SEQUENCE_NONE, 64}, "request 1: lies above request 1, which is no earlier one"},
	    {{MD_ALLOC_DEVICE, 0, 1, 64}, "request 1: freed when 1 had been made"},
	    {{MD_ALLOC_DEVICE, 0, 3, 64}, "request 1: freed when 3 of 2 had been made"},
	    {{MD_ALLOC_HOST + 2, 0, 2, 64}, "request 1: 64 bytes of family 7"},
	    {{MD_ALLOC_DEVICE, 0, 2, 0}, "request 1: 0 bytes of family 1"},
	    {{MD_ALLOC_DEVICE, 0, 2, 64}, "binding @allocation.1: no request of 64 bytes that was kept"},
	    {{MD_ALLOC_DEVICE, 0, MD_SEQUENCE_NONE, 65}, "binding @allocation.1: no request of 64 bytes that was kept"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct md_sequence_request requests[] = {{MD_ALLOC_DEVICE, MD_SEQUENCE_NONE, MD_SEQUENCE_NONE, 64},
							 cases[i].request};
		struct md_binding binding = {
		    .name = (char *)(uintptr_t) "@allocation.1", .size = 64, .role = MD_BIND_STATE};
		struct md_artifact artifact = {
		    .requests = requests, .request_count = 2, .bindings = &binding, .binding_count = 1};
		struct md_error err = {0};
		cr_assert_eq(md_artifact_write(&artifact, path, NULL, &err), MD_ERR_CORRUPT, "%s", cases[i].message);
		cr_assert(strstr(err.message, cases[i].message), "%s", err.message);
	}
}

/* What is not there takes no key: such a file is what an older writer made. */
Test(artifact_said, tolerances, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.graphs[1].accepted = (struct md_tolerance){true, 64, MD_ELEMENT_BF16};
	cr_assert_eq(write_and_get_required(&artifact), 3, "older readers may read it: it was accepted");
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert(!read.graphs[0].accepted.given && read.graphs[1].accepted.given, "of one graph");
	cr_assert(read.graphs[1].accepted.ulps == 64 && read.graphs[1].accepted.type == MD_ELEMENT_BF16,
		  "it comes back");
	md_artifact_finish(&read);
	artifact.graphs[1].accepted.type = MD_ELEMENT_UNKNOWN;
	cr_assert_eq(md_artifact_write(&artifact, path, NULL, &err), MD_ERR_CORRUPT, "of no type");
	cr_assert(strstr(err.message, "accepted within 64 ULP of type 0"), "%s", err.message);
	md_artifact_finish(&artifact);
}

Test(artifact_said, without_any_it_is_an_older_file, .init = setup, .fini = teardown)
{
	struct md_artifact artifact, read;
	struct md_error err;
	size_t size;
	sample_artifact(&artifact);
	drop_facts(&artifact);
	struct md_artifact_graph *graph = &artifact.graphs[1];
	graph->output_count = 0;
	free(graph->note);
	graph->note = NULL;
	graph->note_size = 0;
	write_and_get_required(&artifact);
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	cr_assert(!read.graphs[1].output_count && !read.graphs[1].note && !read.fingerprint.fact_count, "none");
	char *text = print(&read, &size);
	cr_assert(!strstr(text, "note") && !strstr(text, "\nfact ") && !strstr(text, "\noutput "), "%s", text);
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&artifact);
}

Test(artifact_said, the_text_shows_them)
{
	struct md_artifact artifact;
	size_t size;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size);
	cr_assert(strstr(text, "\nfact name=\"torch\" value=\"2.11.0+\\\"cu130\\\"\"\n"), "%s", text);
	cr_assert(strstr(text, "\nfact name=\"model\" value=\"\"\n"), "%s", text);
	cr_assert(strstr(text, "noise_words=1 note_size=256\n"), "%s", text);
	cr_assert(strstr(text, "\noutput alloc=2 offset=512 size=1024\noutput alloc=none offset=0 size=0\n"), "%s",
		  text);
	cr_assert(strstr(text, "\nnote hex=000102"), "%s", text);
	free(text);
	md_artifact_finish(&artifact);
}

/* ---- what must be refused ---- */

static void spoil_output_alloc(struct md_artifact *a)
{
	a->graphs[1].outputs[0].alloc = 4;
}
static void spoil_output_end(struct md_artifact *a)
{
	a->graphs[1].outputs[0].offset = (1 << 16) - 1023;
}
static void spoil_output_size(struct md_artifact *a)
{
	a->graphs[1].outputs[0].size = 0;
}
static void spoil_output_huge(struct md_artifact *a)
{
	a->graphs[1].outputs[0].size = UINT64_MAX;
}
static void spoil_note(struct md_artifact *a)
{
	a->graphs[1].note_size = MD_NOTE_MAX + 1;
}
static void spoil_note_none(struct md_artifact *a)
{
	free(a->graphs[1].note);
	a->graphs[1].note = NULL;
}
static void spoil_fact_order(struct md_artifact *a)
{
	a->fingerprint.facts[0].name[0] = 'z';
}
static void spoil_fact_twice(struct md_artifact *a)
{
	free(a->fingerprint.facts[0].name);
	a->fingerprint.facts[0].name = strdup("torch");
}
static void spoil_fact_name(struct md_artifact *a)
{
	a->fingerprint.facts[0].name[0] = 0;
}
static void spoil_fact_value(struct md_artifact *a)
{
	free(a->fingerprint.facts[1].value);
	a->fingerprint.facts[1].value = NULL;
}

Test(artifact_said, should_fail_what_the_format_does_not_allow, .init = setup, .fini = teardown)
{
	static const struct {
		void (*spoil)(struct md_artifact *artifact);
		const char *message;
	} spoils[] = {
	    {spoil_output_alloc, "section \"graphs\": output 0 of graph decode/2: allocation index 4 of 4"},
	    {spoil_output_end, "output 0 of graph decode/2: 1024 bytes at 64513 of an allocation of 65536"},
	    {spoil_output_size, "output 0 of graph decode/2: 0 bytes"},
	    {spoil_output_huge, "output 0 of graph decode/2: 18446744073709551615 bytes"},
	    {spoil_note, "graph decode/2: a note of 65537 bytes, at most 65536"},
	    {spoil_note_none, "graph decode/2: a note of 256 bytes"},
	    {spoil_fact_order, "section \"fingerprint\": fact torch is not behind the one before"},
	    {spoil_fact_twice, "fact torch is not behind the one before"},
	    {spoil_fact_name, "fact 0 has no name"},
	    {spoil_fact_value, "fact torch has no value"},
	};
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		spoils[i].spoil(&artifact);
		cr_assert(md_artifact_write(&artifact, path, NULL, &err) != MD_OK, "\"%s\" passes", spoils[i].message);
		cr_assert(strstr(err.message, spoils[i].message), "\"%s\" lacks \"%s\"", err.message,
			  spoils[i].message);
		if (spoils[i].spoil == spoil_note)
			artifact.graphs[1].note_size = 256;
		md_artifact_finish(&artifact);
	}
}

static void assert_edit_refused(const char *from, const char *to, const char *message)
{
	struct md_artifact artifact, parsed;
	struct md_error err = {0};
	size_t size;
	char *edited = NULL;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size), *at = strstr(text, from);
	cr_assert(at, "%s is in the text", from);
	int length = asprintf(&edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	FILE *in = fmemopen(edited, (size_t)length, "r");
	cr_assert(md_artifact_parse_text(in, &parsed, &err) != MD_OK, "accepted, but: %s", message);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
	fclose(in);
	free(edited);
	free(text);
	md_artifact_finish(&artifact);
}

Test(artifact_said, should_fail_texts_that_lie)
{
	assert_edit_refused("note_size=256", "note_size=65537", "a note of 65537 bytes, at most 65536");
	assert_edit_refused("note_size=256", "note_size=257", "expected note");
	assert_edit_refused(" note_size=256", "", "expected");
	assert_edit_refused("output alloc=2", "output alloc=9", "allocation index 9 of 4");
	assert_edit_refused("fact name=\"model\"", "fact name=\"zodel\"", "fact torch is not behind the one before");
}
