/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the traces of ranks by their names. */
#include "tools/capture_ranks.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MARK ".rank-"

void md_rank_trace(const char *trace, uint32_t rank, uint32_t ranks, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.*s" MARK "%u-of-%u", PATH_MAX - 64, trace, rank, ranks);
}

bool md_rank_is_own(void)
{
	uint32_t rank, ranks;
	return md_rank_said(&rank, &ranks, NULL) != MD_OK || ranks > 1;
}

/* The part of a name behind that of the trace. */
static bool parse(const char *name, uint32_t *rank, uint32_t *ranks)
{
	int end = 0;
	return sscanf(name, MARK "%u-of-%u%n", rank, ranks, &end) == 2 && end && *ranks <= MD_RANKS_MOST &&
	       *rank < *ranks && (!name[end] || !strcmp(name + end, ".part"));
}

/* Calls act for each file of a rank, until it fails. */
static enum md_status visit(const char *trace, struct md_rank_traces *out,
			    enum md_status (*act)(int folder, const char *name, uint32_t rank, uint32_t ranks,
						  struct md_rank_traces *out, struct md_error *err),
			    struct md_error *err)
{
	char folder[PATH_MAX];
	const char *base = strrchr(trace, '/');
	snprintf(folder, sizeof(folder), "%.*s", (int)(base - trace), trace);
	size_t length = strlen(++base);
	DIR *files = opendir(folder);
	enum md_status status = MD_OK;
	const struct dirent *entry;
	uint32_t rank, ranks;
	if (!files)
		return md_error_set(err, MD_ERR_IO, "%s: %s", folder, strerror(errno));
	while (status == MD_OK && (entry = readdir(files)))
		if (!strncmp(entry->d_name, base, length) && parse(entry->d_name + length, &rank, &ranks))
			status = act(dirfd(files), entry->d_name, rank, ranks, out, err);
	closedir(files);
	return status;
}

static enum md_status note(int folder, const char *name, uint32_t rank, uint32_t ranks, struct md_rank_traces *out,
			   struct md_error *err)
{
	(void)folder;
	(void)name;
	if (out->ranks && out->ranks != ranks)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "one rank says that there are %u, and another one that there are %u: capture one job at a "
		    "time",
		    out->ranks < ranks ? out->ranks : ranks, out->ranks < ranks ? ranks : out->ranks);
	out->ranks = ranks;
	out->there[rank] = true;
	return MD_OK;
}

static enum md_status forget(int folder, const char *name, uint32_t rank, uint32_t ranks, struct md_rank_traces *out,
			     struct md_error *err)
{
	(void)rank;
	(void)ranks;
	(void)out;
	(void)err;
	unlinkat(folder, name, 0);
	return MD_OK;
}

enum md_status md_rank_traces_find(const char *trace, struct md_rank_traces *out, struct md_error *err)
{
	*out = (struct md_rank_traces){0};
	return visit(trace, out, note, err);
}

void md_rank_traces_remove(const char *trace)
{
	visit(trace, NULL, forget, NULL);
}
