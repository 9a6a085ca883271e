/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the environment names, opened at once: an engine may give up its rights before it uses the device. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/environment.h"
#include "restore/restore.h"
#include "restore/restore_bundle.h"
#include "restore/restore_early.h"

static struct early {
	const char *variable;
	int flags, needed;
	struct md_descriptor file;
} early[] = {
    {"MEDUSA_ARTIFACT", O_RDONLY, R_OK, {.fd = -1}},
    {"MEDUSA_VERIFY_REPORT", O_WRONLY | O_APPEND, W_OK, {.fd = -1}},
    {"MEDUSA_TRUSTED_KEYS", O_RDONLY, R_OK, {.fd = -1}},
};

static unsigned few_files; /* the limit of open files, if it leaves none for us; 0: it is high enough */

/* A bundle's ranks write one report each, though all have the same environment. */
static bool own_path(const char *variable, char path[PATH_MAX])
{
	char artifact[PATH_MAX];
	if (!md_environment_path(variable, path, PATH_MAX))
		return false;
	return strcmp(variable, "MEDUSA_VERIFY_REPORT") ||
	       !md_environment_path("MEDUSA_ARTIFACT", artifact, sizeof(artifact)) ||
	       md_own_report(artifact, path, PATH_MAX);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void open_early(void)
{
	char path[PATH_MAX];
	if (md_descriptor_scarce(&few_files))
		return;
	for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++)
		if (own_path(early[i].variable, path))
			md_descriptor_keep(&early[i].file, md_descriptor_open(path, early[i].flags, 0));
}

/* The opened file is needed only if the path no longer leads to it. */
static char *reachable(struct early *file, const char *path)
{
	char *link = NULL;
	if (!faccessat(AT_FDCWD, path, file->needed, AT_EACCESS) || !md_descriptor_is_ours(&file->file)) {
		md_descriptor_drop(&file->file);
		return strdup(path);
	}
	return asprintf(&link, "/proc/self/fd/%d", file->file.fd) < 0 ? NULL : link;
}

char *md_restore_path(const char *variable)
{
	char path[PATH_MAX];
	if (!own_path(variable, path))
		return NULL;
	for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++)
		if (!strcmp(early[i].variable, variable))
			return reachable(&early[i], path);
	return strdup(path);
}

enum md_status md_restore_files_check(struct md_error *err)
{
	if (!few_files)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_UNSUPPORTED,
	    "this process was started with a limit of %u open files (ulimit -n), and Medusa leaves them to "
	    "the engine: at least %d are needed",
	    few_files, MD_DESCRIPTORS_LEAST);
}
