/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a bundle, written and read. */
#include "ranks/rank_bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#define MANIFEST_MOST 65536u /* bytes */
#define LINE_ROOM 80

static bool manifest_of(const char *folder, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/" MD_BUNDLE_MANIFEST, folder) < PATH_MAX;
}

bool md_bundle_is(const char *path)
{
	char manifest[PATH_MAX];
	struct stat info;
	return manifest_of(path, manifest) && !stat(manifest, &info) && S_ISREG(info.st_mode);
}

bool md_bundle_artifact(const char *folder, uint32_t rank, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/rank-%u.medusa", folder, rank) < PATH_MAX;
}

enum md_status md_bundle_check_launched(const char *folder, struct md_error *err)
{
	uint32_t rank, ranks;
	MD_FORWARD(md_rank_said(&rank, &ranks, err));
	if (ranks < 2)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "%s is a bundle, and this command has been started as rank %u of %u: start it once, with the "
	    "launcher behind --",
	    folder, rank, ranks);
}

static void put_head(uint32_t line, uint32_t ranks, char out[LINE_ROOM])
{
	if (line == 0)
		snprintf(out, LINE_ROOM, "medusa-bundle %u", MD_BUNDLE_VERSION);
	else
		snprintf(out, LINE_ROOM, "ranks %u", ranks);
}

/* ---- reading ---- */

/* The next line, without its end; NULL: there is none, or it is not whole. */
static char *take_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');
	if (!end)
		return NULL;
	*end = 0;
	*at = end + 1;
	return line;
}

/* The lines are compared with those that would be written: there is one way to write a manifest. */
static enum md_status take_head(char **at, uint32_t *ranks, struct md_error *err)
{
	char wanted[LINE_ROOM];
	const char *line = take_line(at);
	put_head(0, 0, wanted);
	if (line && !strncmp(line, "medusa-bundle ", 14) && strcmp(line, wanted))
		return md_error_set(err, MD_ERR_VERSION, "line 1: \"%.40s\", and this version of Medusa reads \"%s\"",
				    line, wanted);
	if (!line || strcmp(line, wanted))
		return md_error_set(err, MD_ERR_CORRUPT, "line 1 is not \"%s\"", wanted);
	line = take_line(at);
	unsigned long said = line && !strncmp(line, "ranks ", 6) ? strtoul(line + 6, NULL, 10) : 0;
	put_head(1, (uint32_t)said, wanted);
	if (said < 2 || said > MD_RANKS_MOST || strcmp(line, wanted))
		return md_error_set(err, MD_ERR_CORRUPT, "line 2 is no number of ranks from 2 to %u", MD_RANKS_MOST);
	*ranks = (uint32_t)said;
	return MD_OK;
}

/* Only as it is written, in small letters. */
static bool take_hash(const char *text, struct md_hash *out)
{
	char written[MD_HASH_TEXT_BYTES];
	if (!md_hash_parse(text, out))
		return false;
	md_hash_format(out, written);
	return !strcmp(text, written);
}

static enum md_status parse(char *text, size_t size, struct md_bundle *out, struct md_error *err)
{
	char *at = text, prefix[LINE_ROOM];
	if (strlen(text) != size)
		return md_error_set(err, MD_ERR_CORRUPT, "not a text");
	MD_FORWARD(take_head(&at, &out->ranks, err));
	for (uint32_t i = 0; i < out->ranks; i++) {
		const char *line = take_line(&at);
		size_t length = (size_t)snprintf(prefix, sizeof(prefix), "rank %u ", i);
		if (!line || strncmp(line, prefix, length) || !take_hash(line + length, &out->artifacts[i]))
			return md_error_set(err, MD_ERR_CORRUPT, "line %u is not \"rank %u\" and a hash", i + 3, i);
	}
	if (*at)
		return md_error_set(err, MD_ERR_CORRUPT, "something follows the last of %u ranks", out->ranks);
	return MD_OK;
}

enum md_status md_bundle_read(const char *folder, struct md_bundle *out, struct md_error *err)
{
	char path[PATH_MAX];
	struct md_file_bytes file;
	struct stat info;
	*out = (struct md_bundle){0};
	if (!manifest_of(folder, path))
		return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", folder);
	if (stat(path, &info) && errno == ENOENT)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%s: not a regular file but a folder, and no bundle: it has no file " MD_BUNDLE_MANIFEST, folder);
	MD_FORWARD(md_file_read(path, MANIFEST_MOST, &file, err));
	enum md_status status = parse((char *)file.data, file.size, out, err);
	md_file_release(&file);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", path);
}

/* ---- writing ---- */

static char *print(const struct md_bundle *bundle)
{
	char *text = malloc((size_t)LINE_ROOM * (bundle->ranks + 2)), line[LINE_ROOM], hash[MD_HASH_TEXT_BYTES];
	char *at = text;
	for (uint32_t i = 0; at && i < 2; i++) {
		put_head(i, bundle->ranks, line);
		at += snprintf(at, LINE_ROOM, "%s\n", line);
	}
	for (uint32_t i = 0; at && i < bundle->ranks; i++) {
		md_hash_format(&bundle->artifacts[i], hash);
		at += snprintf(at, LINE_ROOM, "rank %u %s\n", i, hash);
	}
	return text;
}

enum md_status md_bundle_write(const struct md_bundle *bundle, const char *folder, struct md_error *err)
{
	char path[PATH_MAX];
	MD_AUTO_FREE char *text = print(bundle);
	MD_AUTO_FD int fd = -1;
	if (!text)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the manifest of a bundle");
	if (!manifest_of(folder, path))
		return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", folder);
	MD_FORWARD(md_file_create(path, 0644, &fd, err));
	MD_FORWARD(md_file_write(fd, text, strlen(text), path, err));
	if (fsync(fd))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	return MD_OK;
}
