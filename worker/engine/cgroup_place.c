/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/cgroup_place.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME_ROOM 300 /* below the place: a folder of an engine, and a file of it */
#define MODEL_CHARACTERS 40

/* ---- /proc/PID/cgroup ---- */

static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

/* The line of version 2 is "0::PATH", beside those of version 1 on a host that has both. */
static enum md_status find_own(const char *cgroups, char own[PATH_MAX], struct md_error *err)
{
	static const char deleted[] = " (deleted)";
	const char *at = cgroups;
	while (at && strncmp(at, "0::", 3) != 0)
		at = (at = strchr(at, '\n')) ? at + 1 : NULL;
	if (!at)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the kernel has no cgroups of version 2");
	size_t size = strcspn(at += 3, "\n");
	if (*at != '/' || size >= PATH_MAX - NAME_ROOM)
		return md_error_set(err, MD_ERR_INVALID, "the cgroup of the process has no path, or a long one");
	memcpy(own, at, size);
	own[size] = '\0';
	if (goes_up(own))
		return md_error_set(err, MD_ERR_INVALID,
				    "the process is in cgroup %.200s, outside of its namespace of cgroups", own);
	if (size >= strlen(deleted) && !strcmp(own + size - strlen(deleted), deleted))
		return md_error_set(err, MD_ERR_INVALID, "the cgroup of the process was removed: %.200s", own);
	return MD_OK;
}

/* ---- /proc/self/mountinfo ---- */

/* ID, parent, device, root, mount point, options, [more ...], "-", type, source, options of the file system */
struct mount {
	char *root, *point, *options, *type, *more;
};

static char *next_word(char **line)
{
	char *word;
	do
		word = strsep(line, " ");
	while (word && !*word);
	return word;
}

static bool read_mount(char *line, struct mount *mount)
{
	char *word;
	for (unsigned i = 0; i < 3; i++)
		next_word(&line);
	mount->root = next_word(&line);
	mount->point = next_word(&line);
	mount->options = next_word(&line);
	while ((word = next_word(&line)) && strcmp(word, "-") != 0)
		;
	mount->type = word ? next_word(&line) : NULL;
	next_word(&line);
	mount->more = next_word(&line);
	return mount->options && mount->more;
}

static bool is_octal(char digit)
{
	return digit >= '0' && digit <= '7';
}

/* The kernel writes a space as \040, and a tab, a line break and a backslash likewise. */
static void unescape(char *text)
{
	char *to = text;
	for (const char *at = text; *at; to++)
		if (*at == '\\' && is_octal(at[1]) && is_octal(at[2]) && is_octal(at[3])) {
			*to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
			at += 4;
		} else {
			*to = *at++;
		}
	*to = '\0';
}

static bool has_option(const char *options, const char *wanted)
{
	size_t size = strlen(wanted);
	for (const char *at = options; at; at = (at = strchr(at, ',')) ? at + 1 : NULL)
		if (!strncmp(at, wanted, size) && (at[size] == ',' || !at[size]))
			return true;
	return false;
}

/* What is left of `own` below the root of the mount; NULL: it is not in there. */
static const char *below(const char *own, const char *root)
{
	size_t size = strcmp(root, "/") != 0 ? strlen(root) : 0;
	if (strncmp(own, root, size) != 0 || (own[size] && own[size] != '/'))
		return NULL;
	return own[size] && own[size + 1] ? own + size : "";
}

/* False: the line is not of a mount of version 2 in which the cgroup is. */
static bool use_mount(char *line, const char *own, char path[PATH_MAX], bool *read_only)
{
	struct mount mount;
	const char *rest;
	if (!read_mount(line, &mount) || strcmp(mount.type, "cgroup2") != 0)
		return false;
	unescape(mount.root);
	unescape(mount.point);
	if (*mount.point != '/' || !(rest = below(own, mount.root)) ||
	    strlen(mount.point) + strlen(rest) >= PATH_MAX - NAME_ROOM)
		return false;
	*read_only = has_option(mount.options, "ro") || has_option(mount.more, "ro");
	snprintf(path, PATH_MAX, "%s%s", mount.point, rest);
	return true;
}

enum md_status md_cgroup_place(const char *cgroups, const char *mounts, char path[PATH_MAX], struct md_error *err)
{
	char own[PATH_MAX], found[PATH_MAX], line[2 * PATH_MAX];
	bool read_only = false, any = false;
	MD_FORWARD(find_own(cgroups, own, err));
	for (const char *at = mounts; at && *at; at = (at = strchr(at, '\n')) ? at + 1 : NULL) {
		size_t size = strcspn(at, "\n");
		if (size >= sizeof(line))
			continue;
		memcpy(line, at, size);
		line[size] = '\0';
		if (!use_mount(line, own, found, &read_only))
			continue;
		any = true;
		if (read_only)
			continue;
		memcpy(path, found, sizeof(found));
		return MD_OK;
	}
	if (any)
		return md_error_set(err, MD_ERR_INVALID, "cgroups of version 2 are mounted read-only at %.200s", found);
	return md_error_set(err, MD_ERR_NOT_FOUND, "no mount of cgroups of version 2 has cgroup %.200s in it", own);
}

/* ---- names ---- */

size_t md_cgroup_name_prefix(const char *tag, char prefix[MD_CGROUP_NAME_BYTES])
{
	return (size_t)snprintf(prefix, MD_CGROUP_NAME_BYTES, "medusa-%.32s-", tag);
}

/* No dot: names that end in .service or .slice would be systemd's. */
static bool may_stand(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

void md_cgroup_name(const char *tag, const char *model, unsigned long long number, char name[MD_CGROUP_NAME_BYTES])
{
	size_t used = md_cgroup_name_prefix(tag, name);
	for (size_t i = 0; i < MODEL_CHARACTERS && model[i]; i++)
		name[used++] = may_stand(model[i]) ? model[i] : '_';
	snprintf(name + used, MD_CGROUP_NAME_BYTES - used, "-%llx", number);
}
