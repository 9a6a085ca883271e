/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the folders of engines' caches: by environment variables that name them, or by the compilers' defaults. */
#include "tools/cache_place.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* ---- variables that Medusa knows ---- */

static const char *setting(const char *name)
{
	const char *value = secure_getenv(name);
	return value && *value ? value : NULL;
}

static bool below_home(const char *rest, char folder[PATH_MAX])
{
	const char *home = setting("HOME");
	return home && snprintf(folder, PATH_MAX, "%s/%s", home, rest) < PATH_MAX;
}

static bool vllm_folder(char folder[PATH_MAX])
{
	const char *caches = setting("XDG_CACHE_HOME");
	return caches ? snprintf(folder, PATH_MAX, "%s/vllm", caches) < PATH_MAX : below_home(".cache/vllm", folder);
}

/* Computed as by Python's getpass and tempfile, which Inductor asks. */
static bool inductor_folder(char folder[PATH_MAX])
{
	static const char *const names[] = {"LOGNAME", "USER", "LNAME", "USERNAME"};
	const char *user = NULL, *temporary = setting("TMPDIR");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !user; i++)
		user = setting(names[i]);
	struct passwd *entry = user ? NULL : getpwuid(getuid());
	user = user ? user : entry ? entry->pw_name : NULL;
	return user &&
	       snprintf(folder, PATH_MAX, "%s/torchinductor_%s", temporary ? temporary : "/tmp", user) < PATH_MAX;
}

static bool triton_folder(char folder[PATH_MAX])
{
	const char *home = setting("TRITON_HOME");
	return home ? snprintf(folder, PATH_MAX, "%s/.triton/cache", home) < PATH_MAX
		    : below_home(".triton/cache", folder);
}

static bool cuda_folder(char folder[PATH_MAX])
{
	return below_home(".nv/ComputeCache", folder);
}

static const struct {
	const char *variable;
	bool (*otherwise)(char folder[PATH_MAX]); /* where the compiler looks if the variable is not set */
} known[] = {
    {"VLLM_CACHE_ROOT", vllm_folder},
    {"TORCHINDUCTOR_CACHE_DIR", inductor_folder},
    {"TRITON_CACHE_DIR", triton_folder},
    {"CUDA_CACHE_PATH", cuda_folder},
};

bool md_cache_place_known(const char *variable, char folder[PATH_MAX])
{
	const char *value = setting(variable);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].variable, variable) != 0)
			continue;
		return value ? snprintf(folder, PATH_MAX, "%s", value) < PATH_MAX : known[i].otherwise(folder);
	}
	return false;
}

/* ---- describing a folder ---- */

bool md_cache_place_split(const char *wish, char name[PATH_MAX], const char **folder)
{
	size_t size = strcspn(wish, "=/");
	if (wish[size] != '=' || !size || size >= PATH_MAX)
		return false;
	memcpy(name, wish, size);
	name[size] = 0;
	*folder = wish + size + 1;
	return true;
}

/* The part of `path` below `folder`: "" if they are the same, NULL if it lies elsewhere. Both are real paths. */
static const char *rest_of(const char *path, const char *folder)
{
	size_t size = strlen(folder);
	if (strncmp(path, folder, size) != 0)
		return NULL;
	return path[size] == '/' ? path + size + 1 : path[size] ? NULL : path + size;
}

static const char *rest_behind(const char *path, const char *named)
{
	char folder[PATH_MAX];
	return realpath(named, folder) ? rest_of(path, folder) : NULL;
}

/* The variable that names the folder, or the closest one around it. NULL: none. */
static const char *find_variable(const char *path, const char **inside)
{
	const char *found = NULL;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		char folder[PATH_MAX];
		const char *rest = md_cache_place_known(known[i].variable, folder) ? rest_behind(path, folder) : NULL;
		if (!rest || (found && strlen(rest) >= strlen(*inside)))
			continue;
		found = known[i].variable;
		*inside = rest;
	}
	return found;
}

static enum md_status name_folder(const char *variable, struct md_cache_folder *out, struct md_error *err)
{
	const char *inside = "", *name = variable, *slash = strrchr(out->path, '/');
	if (variable && setting(variable)) {
		inside = rest_behind(out->path, setting(variable));
		inside = inside ? inside : "";
	} else if (!variable) {
		name = find_variable(out->path, &inside);
	}
	out->variable = name != NULL;
	out->name = strdup(name ? name : slash ? slash + 1 : "");
	out->inside = strdup(inside);
	if (!out->name || !out->inside)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its name", out->path);
	if (out->variable ? !md_cache_variable_valid(out->name) : !*out->name || strchr(out->name, '='))
		return md_error_set(err, MD_ERR_INVALID, "%s: \"%s\" cannot be its name; write VARIABLE=DIR", out->path,
				    out->name);
	return MD_OK;
}

enum md_status md_cache_place_describe(const char *wish, struct md_cache_folder *out, struct md_error *err)
{
	char variable[PATH_MAX];
	const char *folder = wish;
	struct stat info;
	bool given = md_cache_place_split(wish, variable, &folder);
	*out = (struct md_cache_folder){.path = realpath(folder, NULL)};
	if (!out->path || stat(out->path, &info) != 0)
		return md_error_set(err, errno == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%s: %s", folder,
				    strerror(errno));
	if (!S_ISDIR(info.st_mode))
		return md_error_set(err, MD_ERR_INVALID, "%s: not a folder", folder);
	return name_folder(given ? variable : NULL, out, err);
}
