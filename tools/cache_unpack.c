/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks the caches of an artifact before an engine starts: decides whom to trust and where to unpack, and reports. */
#include "tools/cache_unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/environment.h"
#include "tools/cache_place.h"
#include "tools/cache_tree.h"
#include "tools/cache_write.h"

int md_cache_wish_check(const struct md_command *command, const struct md_cache_wish *wish)
{
	char name[PATH_MAX];
	const char *folder;
	for (uint32_t i = 0; i < wish->folders.count; i++)
		if (!md_cache_place_split(wish->folders.items[i].text, name, &folder) || !*folder)
			return md_options_usage_error(command, "--cache-dir: \"%s\" is not NAME=DIR",
						      wish->folders.items[i].text);
	return -1;
}

/* ---- whom to trust ---- */

/* As in the restore library, a variable that is set but empty trusts nobody. */
static enum md_status read_index(struct md_cache_source *source, const struct md_caches **out, struct md_error *err)
{
	char path[PATH_MAX];
	struct md_trust trust;
	const char *value = md_environment_get("MEDUSA_TRUSTED_KEYS");
	if (!value)
		return md_cache_source_index(source, NULL, out, err);
	if (!md_environment_path("MEDUSA_TRUSTED_KEYS", path, sizeof(path)))
		return md_error_set(err, MD_ERR_MISMATCH,
				    "MEDUSA_TRUSTED_KEYS is set but empty, or too long, so no key is trusted");
	if (md_trust_read(path, &trust, err) != MD_OK)
		return md_error_prefix(err, "MEDUSA_TRUSTED_KEYS");
	enum md_status status = md_cache_source_index(source, &trust, out, err);
	md_trust_finish(&trust);
	return status;
}

/* ---- where to ---- */

static bool make_absolute(const char *path, char out[PATH_MAX])
{
	char here[PATH_MAX];
	if (*path == '/')
		return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
	return getcwd(here, sizeof(here)) && snprintf(out, PATH_MAX, "%s/%s", here, path) < PATH_MAX;
}

static const char *wished(const struct md_cache_wish *wish, const char *name)
{
	char named[PATH_MAX];
	const char *folder, *found = NULL;
	for (uint32_t i = 0; i < wish->folders.count; i++)
		if (md_cache_place_split(wish->folders.items[i].text, named, &folder) && !strcmp(named, name))
			found = folder;
	return found;
}

/*
 * The artifact never names a folder, because its writer could then choose which files of the user are made. The artifact
 * names a variable. Unless the user names a folder, only variables that Medusa knows as names of caches are used.
 */
static bool find_place(const struct md_cache_wish *wish, const struct md_cache_folder *folder, char out[PATH_MAX])
{
	char named[PATH_MAX];
	const char *there = wished(wish, folder->name);
	if (!there && folder->variable && md_cache_place_known(folder->name, named))
		there = named;
	return there && make_absolute(there, out);
}

/* Tells the engine, too, which folder the user has named for the cache. */
static void tell_engine(const struct md_command *command, const struct md_cache_wish *wish,
			const struct md_cache_folder *folder)
{
	char place[PATH_MAX];
	const char *there = wished(wish, folder->name);
	if (there && folder->variable && (!make_absolute(there, place) || setenv(folder->name, place, 1) != 0))
		md_options_say(command, "%s cannot be set for the command", folder->name);
}

static void check_names(const struct md_command *command, const struct md_cache_wish *wish,
			const struct md_caches *caches)
{
	for (uint32_t i = 0; i < wish->folders.count; i++) {
		char name[PATH_MAX];
		const char *folder;
		bool found = false;
		md_cache_place_split(wish->folders.items[i].text, name, &folder);
		for (uint32_t k = 0; k < caches->folder_count; k++)
			found |= !strcmp(caches->folders[k].name, name);
		if (!found)
			md_options_say(command,
				       "--cache-dir: the artifact has no cache named %s (medusa-inspect "
				       "lists them)",
				       name);
	}
}

/* ---- one folder ---- */

static enum md_status open_place(const char *place, const char *inside, int *fd, struct md_error *err)
{
	struct md_cache_walk *walk = malloc(sizeof(*walk));
	MD_AUTO_FD int root = -1;
	if (!walk)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a folder");
	enum md_status status = md_cache_tree_open(place, &root, err);
	if (status == MD_OK && *inside) {
		char below[MD_CACHE_PATH_MAX + 3];
		const char *name;
		int at;
		snprintf(below, sizeof(below), "%s/.", inside);
		md_cache_walk_begin(walk, root);
		status = md_cache_walk_to(walk, below, true, &at, &name, err);
		if (status == MD_OK && (*fd = fcntl(at, F_DUPFD_CLOEXEC, 0)) < 0)
			status = md_error_set(err, MD_ERR_IO, "%s: %s", inside, strerror(errno));
		md_cache_walk_finish(walk);
	} else if (status == MD_OK) {
		*fd = md_steal_fd(&root);
	}
	free(walk);
	return status;
}

static void say_others(const struct md_command *command, const struct md_cache_folder *folder,
		       const struct md_cache_written *written)
{
	char names[512] = "";
	size_t used = 0;
	for (uint32_t i = 0; i < written->others && i < MD_CACHE_OTHERS_MAX; i++)
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%.150s", i ? ", " : "",
						 folder->files[written->named[i]].path);
	if (written->others)
		md_options_say(command, "%s: %u files exist with other bytes, and stay: %s%s", folder->name,
			       written->others, names, written->others > MD_CACHE_OTHERS_MAX ? " ..." : "");
}

static void say_written(const struct md_command *command, const struct md_cache_folder *folder, const char *place,
			const struct md_cache_written *written, uint64_t ns)
{
	char moved[PATH_MAX + 32] = "", full[PATH_MAX + MD_CACHE_PATH_MAX + 2], real[PATH_MAX];
	snprintf(full, sizeof(full), "%s%s%s", place, *folder->inside ? "/" : "", folder->inside);
	if (!realpath(full, real) || strcmp(real, folder->path) != 0)
		snprintf(moved, sizeof(moved), " (captured in %s)", folder->path);
	md_options_say(command,
		       "%s: %u files with %" PRIu64 " bytes unpacked into %s%s, %u were there already, in %.3f s",
		       folder->name, written->files, written->bytes, full, moved, written->there, (double)ns / 1e9);
	if (written->unlocked)
		md_options_say(command,
			       "%s: not unpacked, because another start is still unpacking it after a long wait",
			       folder->name);
	say_others(command, folder, written);
}

static void unpack_folder(const struct md_command *command, struct md_cache_source *source,
			  const struct md_caches *caches, uint32_t index, const struct md_cache_wish *wish)
{
	const struct md_cache_folder *folder = &caches->folders[index];
	struct md_cache_written written;
	char place[PATH_MAX];
	struct md_error err = {0};
	uint64_t start = md_clock_ns();
	MD_AUTO_FD int fd = -1;
	tell_engine(command, wish, folder);
	if (!find_place(wish, folder, place)) {
		md_options_say(command,
			       "%s: nothing says where the engine looks for this cache; unpack it with "
			       "--cache-dir %s=DIR",
			       folder->name, folder->name);
		return;
	}
	enum md_status status = open_place(place, folder->inside, &fd, &err);
	if (status == MD_OK)
		status = md_cache_write(source, caches, index, fd, &written, &err);
	if (status == MD_OK)
		say_written(command, folder, place, &written, md_clock_ns() - start);
	else
		md_options_say(command, "%s: not unpacked into %s, and the engine starts without it: %s", folder->name,
			       place, err.message);
}

void md_cache_unpack(const struct md_command *command, const char *artifact, const struct md_cache_wish *wish)
{
	struct md_cache_source *source = NULL;
	const struct md_caches *caches;
	struct md_error err = {0};
	if (wish->none || md_cache_source_open(artifact, &source, &err) != MD_OK)
		return;
	if (!source) {
		check_names(command, wish, &(struct md_caches){0});
		return;
	}
	if (read_index(source, &caches, &err) != MD_OK) {
		md_options_say(command, "%s: no caches are unpacked: %s", artifact, err.message);
	} else {
		check_names(command, wish, caches);
		for (uint32_t i = 0; i < caches->folder_count; i++)
			unpack_folder(command, source, caches, i, wish);
	}
	md_cache_source_close(source);
}
