/* SPDX-License-Identifier: Apache-2.0 */
/* The text twin: there and back gives the same file bit for bit, and a bad text is refused with its line. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "format/artifact/artifact.h"
#include "base/file.h"
#include "tests/artifact_samples.h"

static char folder[64], first[128], second[128];

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-text-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(first, sizeof(first), "%s/1.medusa", folder);
	snprintf(second, sizeof(second), "%s/2.medusa", folder);
}

static void teardown(void)
{
	unlink(first);
	unlink(second);
	rmdir(folder);
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

static enum md_status parse(const char *text, size_t size, struct md_artifact *artifact, struct md_error *err)
{
	FILE *in = size ? fmemopen((void *)text, size, "r") : fopen("/dev/null", "r");
	enum md_status status = md_artifact_parse_text(in, artifact, err);
	fclose(in);
	return status;
}

static void write_ok(const struct md_artifact *artifact, const char *path)
{
	struct md_error err;
	cr_assert(md_artifact_write(artifact, path, NULL, &err) == MD_OK, "write: %s", err.message);
}

static void assert_same_files(void)
{
	struct md_file_bytes a, b;
	cr_assert(md_file_read(first, UINT64_MAX, &a, NULL) == MD_OK &&
		      md_file_read(second, UINT64_MAX, &b, NULL) == MD_OK,
		  "both are there");
	cr_assert(a.size == b.size && !memcmp(a.data, b.data, a.size), "%zu and %zu bytes differ", a.size, b.size);
	md_file_release(&a);
	md_file_release(&b);
}

static void assert_round_trip(struct md_artifact *artifact)
{
	struct md_artifact read, parsed;
	struct md_error err;
	size_t size;
	write_ok(artifact, first);
	cr_assert(md_artifact_read(first, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	char *text = print(&read, &size);
	cr_assert(parse(text, size, &parsed, &err) == MD_OK, "parse: %s", err.message);
	write_ok(&parsed, second);
	assert_same_files();
	free(text);
	md_artifact_finish(&read);
	md_artifact_finish(&parsed);
}

Test(text_twin, there_and_back_gives_the_same_file, .init = setup, .fini = teardown)
{
	struct md_artifact artifact;
	sample_artifact(&artifact);
	assert_round_trip(&artifact);
	md_artifact_finish(&artifact);
	large_artifact(&artifact);
	assert_round_trip(&artifact);
	md_artifact_finish(&artifact);
	assert_round_trip(&artifact); /* an empty one */
}

/* A signature is the signed file's own: it fits after the way there and back, and nothing else. */
Test(text_twin, a_signed_one_comes_back_too, .init = setup, .fini = teardown)
{
	static const struct md_secret_key key = {{1, 2, 3}};
	struct md_artifact read, parsed;
	struct md_error err = {0};
	size_t size;
	sample_artifact(&read);
	write_ok(&read, first);
	md_artifact_finish(&read);
	cr_assert(md_artifact_sign(first, first, &key, &err) == MD_OK, "sign: %s", err.message);
	cr_assert(md_artifact_read(first, &read, NULL, &err) == MD_OK, "read: %s", err.message);
	char *text = print(&read, &size), *line = strstr(text, "\n[signature] key=");
	cr_assert(line && strstr(line, " value=") && strchr(line + 1, '\n') == text + size - 1, "the last line: %s",
		  text);
	cr_assert(parse(text, size, &parsed, &err) == MD_OK, "parse: %s", err.message);
	write_ok(&parsed, second);
	assert_same_files();
	md_artifact_finish(&parsed);
	/* without the line it is the artifact as it was before */
	cr_assert(parse(text, (size_t)(line + 1 - text), &parsed, &err) == MD_OK, "parse: %s", err.message);
	cr_assert(!parsed.signature.present, "not signed");
	md_artifact_finish(&parsed);
	/* another one, or a section behind it, is refused */
	line[strlen("\n[signature] key=")] ^= 1;
	cr_assert(parse(text, size, &parsed, &err) == MD_OK, "parse: %s", err.message);
	cr_assert_eq(md_artifact_write(&parsed, second, NULL, &err), MD_ERR_INVALID, "another key: %s", err.message);
	md_artifact_finish(&parsed);
	memcpy(line, "\n[signaturf]", 12);
	cr_assert(parse(text, size, &parsed, &err) != MD_OK, "a section that is not known");
	cr_assert(strstr(err.message, "nothing may follow the last section, but there is [signaturf]"), "%s",
		  err.message);
	free(text);
	md_artifact_finish(&read);
}

/* Every part can be there alone, empty or at its bounds. */
Test(text_twin, facts_outputs_and_notes_at_their_bounds, .init = setup, .fini = teardown)
{
	struct md_artifact artifact;
	char name[MD_FACT_NAME_MAX + 1], value[MD_FACT_VALUE_MAX + 1];
	sample_artifact(&artifact);
	memset(name, 'n', MD_FACT_NAME_MAX);
	for (int i = 0; i < MD_FACT_VALUE_MAX; i++)
		value[i] = (char)(1 + i % 255); /* every byte but NUL: quotes, line ends, no UTF-8 */
	name[MD_FACT_NAME_MAX] = value[MD_FACT_VALUE_MAX] = 0;
	sample_fact(&artifact.fingerprint, name, value);
	sample_fact(&artifact.fingerprint, " = \"\\#\n", "#");
	struct md_artifact_graph *graph = &artifact.graphs[0];
	graph->note_size = MD_NOTE_MAX;
	graph->note = sample_array(MD_NOTE_MAX, 1);
	graph->note[MD_NOTE_MAX - 1] = 7;
	graph->output_count = MD_OUTPUTS_MAX;
	graph->outputs = sample_array(MD_OUTPUTS_MAX, sizeof(*graph->outputs));
	for (uint32_t i = 0; i < MD_OUTPUTS_MAX; i++)
		graph->outputs[i] =
		    i % 3 ? (struct md_artifact_output){2, i, 1 + i % 7} : (struct md_artifact_output){MD_NONE, 0, 0};
	graph = &artifact.graphs[2];
	graph->note_size = 1;
	graph->note = sample_array(1, 1);
	graph->output_count = 1; /* one that was not given, alone */
	graph->outputs = sample_array(1, sizeof(*graph->outputs));
	graph->outputs[0].alloc = MD_NONE;
	assert_round_trip(&artifact);
	md_artifact_finish(&artifact);
}

Test(text_twin, it_can_be_read_by_people)
{
	struct md_artifact artifact;
	size_t size;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size);
	cr_assert(strstr(text, "\n[fingerprint] device_name=\"Test device\" compute_major=9"), "%s", text);
	cr_assert(strstr(text, "\nbinding name=\"weights \\\"0\\\"\\x0a\\\\\" size=1048576 role=1\n"), "%s", text);
	cr_assert(strstr(text, "\ngraph label=\"decode\" batch=2 proof=1"), "%s", text);
	cr_assert(strstr(text, "\npointer node=2 at=8 alloc=2 kind=0 offset=-16\n"), "%s", text);
	free(text);
	md_artifact_finish(&artifact);
}

static void assert_refused(const char *text, size_t size, const char *message)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	cr_assert(parse(text, size, &artifact, &err) != MD_OK, "accepted, but: %s", message);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
}

static void assert_edit_refused(const char *from, const char *to, const char *message)
{
	struct md_artifact artifact;
	size_t size;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size), *at = strstr(text, from), *edited = NULL;
	cr_assert(at, "%s is in the text", from);
	int length = asprintf(&edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	assert_refused(edited, (size_t)length, message);
	free(edited);
	free(text);
	md_artifact_finish(&artifact);
}

Test(text_twin, refusals_name_the_line)
{
	assert_refused("", 0, "line 0: the text ends where medusa-artifact-text belongs");
	assert_edit_refused("version=1", "version=2", "text of version 2");
	assert_edit_refused("[fingerprint]", "[fingerprints]", "line 2: expected [fingerprint]");
	assert_edit_refused("compute_major=9", "compute_major=nine", "line 2: not a number: compute_major");
	assert_edit_refused("compute_major=9", "compute_major=99999999999", "not a number of 32 bits");
	assert_edit_refused("compute_major=9", "", "line 2: ");
	assert_edit_refused("compute_major=9", "compute_major=9 colour=1", "line 2: unknown field colour");
	assert_edit_refused("compute_major=9", "compute_major=9 compute_major=9",
			    "line 2: unknown field compute_major");
	assert_edit_refused("\"Test device\"", "\"Test device", "line 2: bad field");
	assert_edit_refused("\"Test device\"", "\"Test\\q\"", "line 2: bad field device_name");
	assert_edit_refused("type=\"kernel\"", "type=\"host\"", "node type host is not known");
	assert_edit_refused("params_size=40", "params_size=41", "params has 80 digits, not 82");
	assert_edit_refused("params_size=40", "params_size=70000", "at most 65536");
	assert_edit_refused("kernel=1 grid", "kernel=9 grid", "kernel index 9 of 2");
	assert_edit_refused("data hex=5a", "data hex=5g", "not hexadecimal");
}

Test(text_twin, every_truncation_is_refused)
{
	struct md_artifact artifact;
	size_t size;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size);
	for (size_t cut = 0; cut + 1 < size; cut++) { /* the last line's end may be missing */
		struct md_artifact parsed;
		struct md_error err = {0};
		enum md_status status = parse(text, cut, &parsed, &err);
		cr_assert(status != MD_OK, "cut at %zu of %zu passes", cut, size);
		cr_assert(err.message[0], "cut at %zu: a message", cut);
	}
	free(text);
	md_artifact_finish(&artifact);
}

Test(text_twin, mutations_never_crash)
{
	struct md_artifact artifact;
	size_t size;
	uint64_t state = 0x853c49e6748fea9b;
	sample_artifact(&artifact);
	char *text = print(&artifact, &size), *copy = malloc(size);
	for (int round = 0; round < 2000; round++) {
		struct md_artifact parsed;
		struct md_error err = {0};
		memcpy(copy, text, size);
		for (int i = 0; i < 3; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			copy[(state >> 33) % size] = (char)(state >> 20);
		}
		if (parse(copy, size, &parsed, &err) == MD_OK)
			md_artifact_finish(&parsed);
		else
			cr_assert(err.message[0], "a message");
	}
	free(copy);
	free(text);
	md_artifact_finish(&artifact);
}

Test(text_twin, a_full_disk_is_an_error)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	FILE *out = fopen("/dev/full", "w");
	cr_assert_eq(md_artifact_print_text(&artifact, out, &err), MD_ERR_IO, "%s", err.message);
	fclose(out);
	md_artifact_finish(&artifact);
}
