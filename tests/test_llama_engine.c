/* SPDX-License-Identifier: Apache-2.0 */
/* The reference engine end to end on hostcuda: a tiny seeded model, its graphs against eager, its
 * report, its refusals. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_BYTES 65536

struct outcome {
	int exit_code;
	char output[OUTPUT_BYTES]; /* stdout */
	char errors[OUTPUT_BYTES]; /* stderr */
};

/* The build folder: this program lies in BUILD/tests. */
static void build_path(char path[PATH_MAX], const char *rest)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	cr_assert_gt(length, 0);
	self[length] = 0;
	for (int i = 0; i < 2; i++)
		*strrchr(self, '/') = 0;
	cr_assert_lt(snprintf(path, PATH_MAX, "%s/%s", self, rest), PATH_MAX);
}

static void slurp(FILE *file, char *out)
{
	rewind(file);
	out[fread(out, 1, OUTPUT_BYTES - 1, file)] = 0;
	fclose(file);
}

static char **engine_environment(char setting[PATH_MAX + 32])
{
	static char *environment[64];
	char path[PATH_MAX];
	size_t count = 0;
	build_path(path, "lib/hostcuda");
	snprintf(setting, PATH_MAX + 32, "LD_LIBRARY_PATH=%s", path);
	for (char **entry = environ; *entry && count < 62; entry++)
		if (strncmp(*entry, "LD_LIBRARY_PATH=", 16) && strncmp(*entry, "HOSTCUDA_", 9))
			environment[count++] = *entry;
	environment[count++] = setting;
	environment[count] = NULL;
	return environment;
}

static struct outcome *run_engine(char *const *arguments)
{
	static struct outcome outcome;
	static char engine[PATH_MAX], setting[PATH_MAX + 32];
	char *argv[40] = {engine};
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status;
	FILE *output = tmpfile(), *errors = tmpfile();
	for (int i = 0; arguments[i]; i++)
		argv[i + 1] = arguments[i];
	build_path(engine, "models/llama/llama-engine");
	cr_assert(!access(engine, X_OK), "%s is not built", engine);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fileno(output), 1);
	posix_spawn_file_actions_adddup2(&actions, fileno(errors), 2);
	cr_assert_eq(posix_spawn(&child, engine, &actions, NULL, argv, engine_environment(setting)), 0);
	posix_spawn_file_actions_destroy(&actions);
	cr_assert_eq(waitpid(child, &status, 0), child);
	outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	slurp(output, outcome.output);
	slurp(errors, outcome.errors);
	return &outcome;
}

#define RUN(...) run_engine((char *const[]){__VA_ARGS__, NULL})
#define TINY "--recipe", "models/recipes/tiny.yaml", "--kv-blocks", "64"

static void assert_ran(const struct outcome *outcome)
{
	cr_assert_eq(outcome->exit_code, 0, "exit code %d: %s", outcome->exit_code, outcome->errors);
}

Test(llama_engine, every_graph_equals_eager)
{
	const struct outcome *outcome = RUN(TINY, "--batches", "1,2,3,5,8,16", "--check", "--tokens", "0");
	assert_ran(outcome);
	cr_assert(strstr(outcome->output, "check: 6 of 6 graphs bit-equal to eager"), "%s%s", outcome->output,
		  outcome->errors);
}

Test(llama_engine, graphs_generate_what_eager_generates)
{
	static char eager[OUTPUT_BYTES];
	const struct outcome *outcome = RUN(TINY, "--tokens", "20", "--no-graphs", "--batches", "4", "--prompt", "a",
					    "--prompt", "b", "--prompt", "c");
	assert_ran(outcome);
	strcpy(eager, outcome->output);
	cr_assert_gt(strlen(eager), 60, "three lines of twenty tokens");
	outcome = RUN(TINY, "--tokens", "20", "--batches", "1,2,4", "--prompt", "a", "--prompt", "b", "--prompt", "c");
	assert_ran(outcome);
	cr_assert_str_eq(outcome->output, eager, "the batch and its idle rows must not change a sequence");
}

/* A sequence's tokens do not depend on what decodes beside it, nor on waves. */
Test(llama_engine, sequences_do_not_touch_each_other)
{
	static char together[OUTPUT_BYTES];
	const struct outcome *outcome =
	    RUN(TINY, "--tokens", "12", "--batches", "4", "--prompt", "a", "--prompt", "b", "--prompt", "c");
	assert_ran(outcome);
	strcpy(together, outcome->output);
	outcome = RUN(TINY, "--tokens", "12", "--batches", "1", "--prompt", "a", "--prompt", "b", "--prompt", "c");
	assert_ran(outcome);
	cr_assert_str_eq(outcome->output, together, "one by one and together");
}

Test(llama_engine, seeds_matter)
{
	static char first[OUTPUT_BYTES];
	strcpy(first, RUN(TINY, "--tokens", "24", "--batches", "1", "--seed", "1")->output);
	const struct outcome *outcome = RUN(TINY, "--tokens", "24", "--batches", "1", "--seed", "2");
	assert_ran(outcome);
	cr_assert_str_neq(outcome->output, first, "another seed, another model");
	strcpy(first,
	       RUN(TINY, "--tokens", "24", "--batches", "1", "--temperature", "2", "--sample-seed", "3")->output);
	outcome = RUN(TINY, "--tokens", "24", "--batches", "1", "--temperature", "2", "--sample-seed", "4");
	assert_ran(outcome);
	cr_assert_str_neq(outcome->output, first, "another sample seed, other draws");
}

Test(llama_engine, writes_its_report)
{
	char path[] = "/tmp/llama-report-XXXXXX", text[OUTPUT_BYTES];
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	const struct outcome *outcome =
	    RUN(TINY, "--tokens", "5", "--batches", "1,2", "--report", path, "--bench-replay", "3");
	assert_ran(outcome);
	FILE *file = fopen(path, "r");
	slurp(file, text);
	close(fd);
	unlink(path);
	static const char *const parts[] = {
	    "\"mode\": \"none\"",      "\"batch\": 2, \"source\": \"live\", \"nodes\": ",
	    "\"replay_ms\": ",         "\"blocks\": 64",
	    "\"tokens\": 5",           "\"logits_xxh3\": \"",
	    "\"first_graph_ready\": ", "\"medusa\": null"};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		cr_assert(strstr(text, parts[i]), "the report lacks %s:\n%s", parts[i], text);
}

Test(llama_engine, measures_kv_capacity)
{
	const struct outcome *outcome =
	    RUN("--recipe", "models/recipes/tiny.yaml", "--max-kv-bytes", "1048576", "--batches", "1", "--tokens", "3");
	assert_ran(outcome);
	cr_assert(strstr(outcome->errors, "kv: 128 blocks, 1.0 MB"), "%s", outcome->errors);
}

static void assert_refused(const struct outcome *outcome, int code, const char *words)
{
	cr_assert_eq(outcome->exit_code, code, "exit code %d: %s", outcome->exit_code, outcome->errors);
	cr_assert(strstr(outcome->errors, words), "\"%s\" does not say \"%s\"", outcome->errors, words);
	cr_assert_str_empty(outcome->output);
}

Test(llama_engine, should_fail)
{
	assert_refused(RUN("--tokens", "3"), 2, "give either --model FILE.gguf or --recipe FILE.yaml");
	assert_refused(RUN(TINY, "--colour", "3"), 2, "unknown option --colour");
	assert_refused(RUN(TINY, "--batches", "1,x"), 2, "--batches: \"x\" is not an integer");
	assert_refused(RUN(TINY, "--tokens"), 2, "--tokens needs a value");
	assert_refused(RUN(TINY, "--max-context", "4096"), 2, "the model has 128");
	assert_refused(RUN("--recipe", "/nonexistent.yaml"), 1, "/nonexistent.yaml: No such file");
	assert_refused(RUN("--model", "models/recipes/tiny.yaml"), 1, "not a GGUF file");
	assert_refused(RUN("--recipe", "models/recipes/tiny.yaml", "--kv-blocks", "2", "--tokens", "100"), 1,
		       "a sequence needs");
}
