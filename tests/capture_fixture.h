/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the capture subject under libmedusa-capture.so on hostcuda, and finds things in what it printed and recorded. */
#ifndef TESTS_CAPTURE_FIXTURE_H
#define TESTS_CAPTURE_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/trace/trace.h"

#define OUTPUT_BYTES 65536

struct run {
	char folder[64];
	char trace[128];
	char output[OUTPUT_BYTES];
	char errors[OUTPUT_BYTES];
	int status; /* of waitpid */
};

static inline const char *build(void)
{
	const char *folder = getenv("MEDUSA_BUILD");
	return folder ? folder : "build";
}

static inline void set_up_child(const struct run *run, const char *const *env, bool preload, const int *out,
				const int *err)
{
	char path[4096];
	dup2(out[1], 1);
	dup2(err[1], 2);
	snprintf(path, sizeof(path), "%s/lib/hostcuda", build());
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("MEDUSA_TRACE", run->trace, 1);
	for (; env && *env; env++)
		putenv(strdup(*env));
	snprintf(path, sizeof(path), "%s/lib/libmedusa-capture.so", build());
	if (preload)
		setenv("LD_PRELOAD", path, 1);
}

static inline void drain(int fd, char *to)
{
	size_t size = 0;
	ssize_t got;
	while (size < OUTPUT_BYTES - 1 && (got = read(fd, to + size, OUTPUT_BYTES - 1 - size)) > 0)
		size += (size_t)got;
	to[size] = '\0';
	close(fd);
}

static inline void run_subject(struct run *run, const char *const *words, const char *const *env, bool preload,
			       bool no_place)
{
	char program[4096], image[4096], part[160];
	const char *argv[8] = {program, image};
	int out[2], err[2];
	pid_t child;
	memset(run, 0, sizeof(*run));
	strcpy(run->folder, "/tmp/medusa-capture-XXXXXX");
	cr_assert_not_null(mkdtemp(run->folder));
	snprintf(run->trace, sizeof(run->trace), "%s/x.mtrace", run->folder);
	snprintf(program, sizeof(program), "%s/tests/subjects/capture_subject", build());
	snprintf(image, sizeof(image), "%s/tests/images/capture_kernels.host.so", build());
	if (no_place) {
		/* A folder stands where the trace is written. */
		snprintf(part, sizeof(part), "%s.part", run->trace);
		cr_assert_eq(mkdir(part, 0700), 0);
	}
	for (int i = 0; words && words[i]; i++)
		argv[2 + i] = words[i];
	cr_assert_eq(pipe(out) | pipe(err), 0);
	fflush(NULL);
	child = fork();
	cr_assert_geq(child, 0);
	if (!child) {
		set_up_child(run, env, preload, out, err);
		execv(program, (char *const *)argv);
		_exit(127);
	}
	close(out[1]);
	close(err[1]);
	drain(out[0], run->output);
	drain(err[0], run->errors);
	cr_assert_eq(waitpid(child, &run->status, 0), child);
}

static inline void clean_up(const struct run *run)
{
	char path[256];
	unlink(run->trace);
	snprintf(path, sizeof(path), "%s.part", run->trace);
	remove(path);
	rmdir(run->folder);
}

static inline void assert_succeeded(const struct run *run)
{
	cr_assert(WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0, "subject: status %x, %s", run->status,
		  run->errors);
}

static inline void read_trace(const char *path, struct md_trace *trace)
{
	struct md_error err = {0};
	cr_assert_eq(md_trace_read(path, trace, &err), MD_OK, "%s", err.message);
}

/* The lines of the output that start with "result": what the engine computed. */
static inline void results_of(const char *output, char *to)
{
	*to = '\0';
	for (const char *line = output; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		if (!strncmp(line, "result ", 7))
			strncat(to, line, strcspn(line, "\n") + 1);
	}
}

static inline void assert_same_results(const struct run *a, const struct run *b)
{
	static char first[OUTPUT_BYTES], second[OUTPUT_BYTES];
	results_of(a->output, first);
	results_of(b->output, second);
	cr_assert_gt(strlen(first), 100, "no results in: %s", a->output);
	cr_assert_str_eq(first, second, "the engine computes something else under capture");
}

static inline uint64_t address_of(const struct run *run, const char *name)
{
	char key[64];
	const char *at;
	unsigned long long address = 0;
	snprintf(key, sizeof(key), "alloc %s ", name);
	at = strstr(run->output, key);
	cr_assert_not_null(at, "no %s in: %s", key, run->output);
	cr_assert_eq(sscanf(at + strlen(key), "%llx", &address), 1);
	return address;
}

static inline const struct md_trace_alloc *find_alloc(const struct md_trace *trace, uint64_t address)
{
	for (uint32_t i = 0; i < trace->alloc_count; i++) {
		if (trace->allocs[i].address == address)
			return &trace->allocs[i];
	}
	return NULL;
}

static inline const struct md_trace_graph *find_graph(const struct md_trace *trace, const char *label)
{
	for (uint32_t i = 0; i < trace->graph_count; i++) {
		if (trace->graphs[i].label && !strcmp(trace->graphs[i].label, label))
			return &trace->graphs[i];
	}
	cr_assert_fail("no graph %s among %u", label, trace->graph_count);
	return NULL;
}

static inline const struct md_kernel *kernel_of(const struct md_trace *trace, const struct md_node *node)
{
	cr_assert_eq(node->type, MD_NODE_KERNEL);
	cr_assert_lt(node->kernel, trace->kernel_count);
	return &trace->kernels[node->kernel];
}

static inline uint64_t word_at(const struct md_node *node, uint32_t at)
{
	uint64_t word;
	cr_assert_leq(at + 8, node->params_size);
	memcpy(&word, node->params + at, 8);
	return word;
}

static inline const struct md_node *node_of(const struct md_trace *trace, const struct md_trace_graph *graph,
					    const char *kernel)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct md_node *node = &graph->nodes[i];
		if (node->type == MD_NODE_KERNEL && !strcmp(kernel_of(trace, node)->name, kernel))
			return node;
	}
	cr_assert_fail("no node of %s", kernel);
	return NULL;
}

static inline unsigned count_types(const struct md_trace_graph *graph, uint8_t type)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < graph->node_count; i++)
		count += graph->nodes[i].type == type;
	return count;
}

static inline bool is_saved(const struct md_trace *trace, uint64_t address, uint64_t size, const void *data)
{
	for (uint32_t i = 0; i < trace->content_count; i++) {
		const struct md_trace_content *content = &trace->contents[i];
		if (address >= content->address && address + size <= content->address + content->size)
			return !memcmp(content->data + (address - content->address), data, size);
	}
	return false;
}

#endif
