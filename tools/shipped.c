/* SPDX-License-Identifier: Apache-2.0 */
/* Finds shipped files from the place of the command: installed in PREFIX/share/medusa, or in the source tree. */
#include "tools/shipped.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define SUFFIX ".yaml"

/* Seen from the command's folder: where it is installed, and where it is built (BUILD may be a folder of build/). */
static const char *const places[] = {"../share/medusa", "../../simulator", "../../../simulator"};

/* The folder of this kind, or "". */
static void find_folder(const char *kind, char folder[PATH_MAX])
{
	char program[PATH_MAX];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[size < 0 ? 0 : size] = '\0';
	const char *slash = strrchr(program, '/');
	for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
		int length = snprintf(folder, PATH_MAX, "%.*s/%s/%s", (int)(slash - program), program, places[i], kind);
		if (length < PATH_MAX && !access(folder, R_OK))
			return;
	}
	*folder = '\0';
}

static int is_yaml(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return length > strlen(SUFFIX) && strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) == 0;
}

char *md_shipped_names(const char *kind)
{
	char folder[PATH_MAX], *names = NULL;
	struct dirent **entries = NULL;
	size_t size = 0;
	find_folder(kind, folder);
	int count = *folder ? scandir(folder, &entries, is_yaml, alphasort) : 0;
	FILE *out = open_memstream(&names, &size);
	for (int i = 0; i < count; i++) {
		if (out)
			fprintf(out, "%s%.*s", i ? ", " : "", (int)(strlen(entries[i]->d_name) - strlen(SUFFIX)),
				entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	if (out && fclose(out) == 0)
		return names;
	free(names);
	return NULL;
}

static enum md_status not_found(const char *kind, const char *given, struct md_error *err)
{
	MD_AUTO_FREE char *names = md_shipped_names(kind);
	if (!names || !*names)
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s: no such file", given);
	return md_error_set(err, MD_ERR_NOT_FOUND, "%s: neither a file nor one of the %s by name: %s", given, kind,
			    names);
}

enum md_status md_shipped_find(const char *kind, const char *given, char **path, struct md_error *err)
{
	char folder[PATH_MAX];
	int length = -1;
	*path = NULL;
	if (access(given, F_OK) == 0 || strchr(given, '/')) {
		*path = strdup(given);
		return *path ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", given);
	}
	find_folder(kind, folder);
	if (*folder)
		length = asprintf(path, "%s/%s" SUFFIX, folder, given);
	if (length >= 0 && access(*path, F_OK) == 0)
		return MD_OK;
	if (length >= 0)
		free(*path);
	*path = NULL;
	return not_found(kind, given, err);
}
