/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect: tables and JSON say what the artifact holds; bad input has its exit code. */
#include "tools/inspect.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analyze/analyze.h"
#include "base/json.h"
#include "simulator/report/table.h"
#include "tests/trace_builder.h"

/* ---- a checker of JSON, strict where writers go wrong: commas, quotes, escapes, nesting ---- */

static const char *skip_space(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

static const char *check_string(const char *at)
{
	if (*at++ != '"')
		return NULL;
	for (; *at && *at != '"'; at++) {
		if ((unsigned char)*at < 0x20)
			return NULL;
		if (*at == '\\' && !strchr("\"\\/bfnrtu", *++at))
			return NULL;
	}
	return *at ? at + 1 : NULL;
}

/* Returns what follows the value, or NULL. */
static const char *check_value(const char *at)
{
	at = skip_space(at);
	if (*at == '"')
		return check_string(at);
	if (*at == '{' || *at == '[') {
		bool object = *at == '{';
		char close = object ? '}' : ']';
		at = skip_space(at + 1);
		if (*at == close)
			return at + 1;
		for (;; at++) {
			if (object) {
				at = check_string(skip_space(at));
				at = at ? skip_space(at) : NULL;
				if (!at || *at++ != ':')
					return NULL;
			}
			at = check_value(at);
			at = at ? skip_space(at) : NULL;
			if (!at || (*at != ',' && *at != close))
				return NULL;
			if (*at == close)
				return at + 1;
		}
	}
	size_t word = strspn(at, "0123456789+-.eEtrufalsn");
	return word ? at + word : NULL;
}

static void assert_json(const char *text)
{
	const char *end = check_value(text);
	cr_assert(end, "valid JSON: %s", text);
	cr_assert(*skip_space(end) == 0, "nothing behind the JSON: '%s'", end);
}

static void assert_says(const char *text, const char *part)
{
	cr_assert(strstr(text, part), "says '%s': %s", part, text);
}

/* ---- an artifact with one of everything ---- */

static void build(struct builder *b)
{
	const uint64_t base = 0x700000000000;
	uint64_t words[2] = {base + 0x110, 3};
	uint32_t kernel;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, base, 0x1000);
	builder_alloc(b, MD_ALLOC_DEVICE, base + 0x10000, 0x300);
	builder_bind(b, "model.\"embed\"", base + 0x100, 0x200, MD_BIND_CONSTANT);
	kernel = builder_kernel(b, builder_image(b, 1), "rms_norm", 16);
	builder_graph(b, "decode", 4);
	builder_launch(b, kernel, words, 16);
	builder_node(b, MD_NODE_MEMSET)->memset =
	    (struct md_memset){.dst = base + 0x10000, .width = 16, .height = 1, .element_size = 4};
	builder_edge(b, 0, 1);
	builder_last(b)->edges[0].type = 1;
	struct md_trace_output *outputs =
	    builder_grow(&builder_last(b)->outputs, &builder_last(b)->output_count, sizeof(*outputs));
	*outputs = (struct md_trace_output){base + 0x10100, 64};
	builder_last(b)->note = (uint8_t *)builder_text("a note");
	builder_last(b)->note_size = 6;
	cr_assert(md_fingerprint_set_fact(&b->trace.fingerprint, "torch", "2.11 \"x\"", NULL) == MD_OK, "a fact");
	builder_graph(b, "decode", 8);
	builder_last(b)->refused = builder_text("host node at index 12");
	struct md_stage_time *stage = builder_grow(&b->trace.stages, &b->trace.stage_count, sizeof(*stage));
	strcpy(stage->name, "warmup");
	stage->ns = 1500000;
	b->trace.kv = (struct md_kv){.present = true,
				     .baseline_free = 16384,
				     .kv_bytes = 8192,
				     .blocks = 2,
				     .block_bytes = 4096,
				     .utilization_ppm = 900000};
}

static void make(struct md_artifact *artifact)
{
	struct builder b;
	struct md_error err;
	build(&b);
	cr_assert(md_analyze(&b.trace, NULL, NULL, artifact, &err) == MD_OK, "%s", err.message);
	builder_finish(&b);
}

static const struct md_artifact_sizes sizes = {
    .file = 2048, .section_count = 2, .sections = {{"graphs", 100, 300}, {"pointers", 20, 40}}};

Test(inspect, summary)
{
	struct md_artifact artifact;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	make(&artifact);
	md_inspect_print("x.medusa", &artifact, &sizes, out);
	fclose(out);
	assert_says(text, "x.medusa: 1 graphs, 2 nodes, 1 left out");
	assert_says(text, "decode      4      2      1         2");
	assert_says(text, "        1   6 B  unproven");
	assert_says(text, "\nfact     torch 2.11 \"x\"\n");
	assert_says(text, "decode/8: host node at index 12");
	assert_says(text, "rms_norm");
	assert_says(text, "stored");
	assert_says(text, "constant  512 B");
	assert_says(text, "private memory  1.0 KiB in 1 allocations");
	assert_says(text, "8.0 KiB in 2 blocks");
	assert_says(text, "60.0 bytes a node");
	assert_says(text, "1.500 ms");
	free(text);
	md_artifact_finish(&artifact);
}

Test(inspect, json)
{
	struct md_artifact artifact;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	make(&artifact);
	md_inspect_json("x.medusa", &artifact, &sizes, out);
	fclose(out);
	assert_json(text);
	assert_says(text, "\"name\": \"model.\\\"embed\\\"\"");
	assert_says(text, "\"bytes_per_node\": 60");
	assert_says(text, "\"why\": \"host node at index 12\"");
	assert_says(text, "\"name\": \"torch\"");
	assert_says(text, "\"value\": \"2.11 \\\"x\\\"\"");
	assert_says(text, "\"outputs\": 1");
	assert_says(text, "\"note_bytes\": 6");
	free(text);
	md_artifact_finish(&artifact);
}

Test(inspect, one_graph)
{
	struct md_artifact artifact;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	make(&artifact);
	cr_assert(!md_inspect_find(&artifact, "decode/5") && !md_inspect_find(&artifact, "decode") &&
		      !md_inspect_find(&artifact, "decod/4") && !md_inspect_find(&artifact, "decode/4x"),
		  "names that are none");
	cr_assert(md_inspect_find(&artifact, "decode/4"), "the graph's name");
	md_inspect_graph(&artifact, md_inspect_find(&artifact, "decode/4"), out);
	fclose(out);
	assert_says(text, "    0  rms_norm  grid 4,1,1  block 128,1,1  shared 0  parameters 16 bytes");
	assert_says(text, "byte 0    -> model.\"embed\"+16");
	assert_says(text, "    1  memset  16 x 1 elements of 4 bytes");
	assert_says(text, "after 0 (type 1, ports 0 to 0)");
	assert_says(text, "byte 0    -> private 1+0");
	assert_says(text, "\noutput 0: 64 bytes at private 1+256\nnote of 6 bytes\n");
	free(text);
	out = open_memstream(&text, &size);
	md_inspect_graph_json(&artifact, md_inspect_find(&artifact, "decode/4"), out);
	fclose(out);
	assert_json(text);
	assert_says(text, "\"kernel\": \"rms_norm\"");
	assert_says(text, "\"size\": 64");
	assert_says(text, "\"note_bytes\": 6");
	free(text);
	md_artifact_finish(&artifact);
}

Test(inspect, trace)
{
	struct builder b;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	build(&b);
	md_inspect_trace("t.mtrace", &b.trace, out);
	fclose(out);
	assert_says(text, "2 graphs, 2 nodes");
	assert_says(text, "device      2                2  4.8 KiB");
	assert_says(text, "\nfact     torch 2.11 \"x\"\n");
	assert_says(text, "decode      4      2      1        1   6 B  not tested");
	free(text);
	out = open_memstream(&text, &size);
	md_inspect_trace_json("t.mtrace", &b.trace, out);
	fclose(out);
	assert_json(text);
	assert_says(text, "\"name\": \"torch\"");
	assert_says(text, "\"note_bytes\": 6");
	free(text);
	builder_finish(&b);
}

/* ---- the helpers ---- */

Test(inspect, json_escapes)
{
	static const struct {
		const char *value, *written;
	} cases[] = {
	    {"plain", "\"plain\"\n"},
	    {"a\"b\\c", "\"a\\\"b\\\\c\"\n"},
	    {"line\nbell\a", "\"line\\nbell\\u0007\"\n"},
	    {"caf\xc3\xa9", "\"caf\xc3\xa9\"\n"},
	    {"bad \xff\xc3", "\"bad \\ufffd\\ufffd\"\n"},
	    {"over \xc0\xaf", "\"over \\ufffd\\ufffd\"\n"},
	    {NULL, "null\n"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_json json;
		char *text = NULL;
		size_t size;
		FILE *out = open_memstream(&text, &size);
		md_json_init(&json, out);
		md_json_text(&json, NULL, cases[i].value);
		fputc('\n', out);
		fclose(out);
		cr_assert(strcmp(text, cases[i].written) == 0, "case %zu: %s", i, text);
		free(text);
	}
}

Test(inspect, tables_align)
{
	struct md_table table;
	char *text = NULL, bytes[MD_TABLE_BYTES_TEXT];
	size_t size;
	FILE *out = open_memstream(&text, &size);
	md_table_init(&table, "NAME|>N");
	md_table_cell(&table, "long name");
	md_table_cell(&table, "7");
	md_table_print(&table, 2, out);
	md_table_init(&table, "NAME|>N");
	md_table_print(&table, 2, out);
	fclose(out);
	cr_assert(strcmp(text, "  NAME       N\n  long name  7\n  -\n") == 0, "aligned: '%s'", text);
	free(text);
	cr_assert(strcmp(md_table_format_bytes(1023, bytes), "1023 B") == 0, "%s", bytes);
	cr_assert(strcmp(md_table_format_bytes(1536, bytes), "1.5 KiB") == 0, "%s", bytes);
	cr_assert(strcmp(md_table_format_bytes(UINT64_MAX, bytes), "16777216.0 TiB") == 0, "%s", bytes);
}

/* ---- the command ---- */

static char folder[] = "/tmp/medusa-inspect-XXXXXX";

static int run(const char *arguments)
{
	const char *build_folder = getenv("MEDUSA_BUILD");
	char line[1024];
	int status;
	snprintf(line, sizeof(line), "%s/bin/medusa-inspect %s >/dev/null 2>&1", build_folder ? build_folder : "build",
		 arguments);
	status = system(line);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_text_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	cr_assert(file, "a file for the test");
	fputs(text, file);
	fclose(file);
}

Test(inspect, exit_codes_and_text_twin)
{
	struct md_artifact artifact;
	struct md_error err;
	char path[128], line[512];
	if (run("--help") != 0)
		cr_skip_test("medusa-inspect is not built");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(path, sizeof(path), "%s/bad.medusa", folder);
	write_text_file(path, "no artifact at all");
	cr_assert(run("") == 2, "no file is a usage error");
	cr_assert(run("--nonsense") == 2, "so is an unknown option");
	cr_assert(run("--json --text x") == 2, "and a contradiction");
	cr_assert(run("/nonexistent.medusa") == 3, "a file that is not there");
	cr_assert(run(path) == 3, "a file that is none");
	unlink(path);

	make(&artifact);
	snprintf(path, sizeof(path), "%s/x.medusa", folder);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	cr_assert(run(path) == 0, "an artifact");
	snprintf(line, sizeof(line), "--graph decode/5 %s", path);
	cr_assert(run(line) == 2, "a graph it does not have");
	snprintf(line, sizeof(line),
		 "cd %s && b=$OLDPWD/${MEDUSA_BUILD:-build}/bin/medusa-inspect; case $MEDUSA_BUILD in /*) "
		 "b=$MEDUSA_BUILD/bin/medusa-inspect;; esac; $b --text x.medusa >a.txt && "
		 "$b --from-text a.txt -o y.medusa && cmp x.medusa y.medusa",
		 folder);
	cr_assert(system(line) == 0, "an artifact goes through its text twin unchanged");
	snprintf(line, sizeof(line), "rm -r %s", folder);
	cr_assert(system(line) == 0, "cleaning up");
}
