/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/adopt_adapters.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "worker/engine/adopt_file.h"

#define BYTES_MAX (4u << 20)
#define FIELDS_MAX 4u
#define SUFFIX ".adapters"

static char *make_line(uint64_t began, const char *name, const char *path, size_t *size)
{
	char *text = NULL;
	struct md_json json;
	FILE *out = open_memstream(&text, size);
	if (!out)
		return NULL;
	md_json_init_line(&json, out);
	md_json_object(&json, NULL);
	md_json_number(&json, "began", began);
	md_json_text(&json, "name", name);
	md_json_text(&json, "path", path);
	md_json_end(&json);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* What a full disk has cut off must not swallow the next line. */
enum md_status md_adopt_adapters_add(const char *folder, pid_t pid, uint64_t began, const char *name, const char *path,
				     struct md_error *err)
{
	char file[PATH_MAX];
	size_t size = 0;
	struct stat is;
	MD_AUTO_FREE char *line = make_line(began, name, path, &size);
	if (!line)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the adapters of engine %d", (int)pid);
	md_adopt_file_path(folder, pid, SUFFIX, file);
	MD_AUTO_FD int fd = md_file_open_append(file, true);
	if (fd < 0 || fstat(fd, &is) || fchmod(fd, 0600))
		return md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", file, strerror(errno));
	if (is.st_size + (off_t)size > (off_t)BYTES_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%.300s: more than %u bytes of adapters", file, BYTES_MAX);
	enum md_status status = md_file_write(fd, line, size, file, err);
	if (status != MD_OK && ftruncate(fd, is.st_size))
		unlink(file);
	return status;
}

static void take_line(char *line, uint64_t began, void (*take)(void *, const char *, const char *), void *context)
{
	struct md_json_field fields[FIELDS_MAX];
	struct md_error err = {0};
	const char *name = NULL, *path = NULL;
	uint64_t then = 0;
	size_t count;
	if (md_json_read_line(line, strlen(line), fields, FIELDS_MAX, &count, &err) != MD_OK)
		return;
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(fields[i].key, "began"))
			then = fields[i].number;
		else if (!strcmp(fields[i].key, "name"))
			name = fields[i].text;
		else if (!strcmp(fields[i].key, "path"))
			path = fields[i].text;
	}
	if (name && path && then == began)
		take(context, name, path);
}

enum md_status md_adopt_adapters_read(const char *folder, pid_t pid, uint64_t began,
				      void (*take)(void *context, const char *name, const char *path), void *context,
				      struct md_error *err)
{
	char file[PATH_MAX], *rest;
	struct md_error why = {0};
	struct md_file_bytes bytes = {0};
	md_adopt_file_path(folder, pid, SUFFIX, file);
	enum md_status status = md_adopt_file_read(file, BYTES_MAX, &bytes, &why);
	if (status == MD_ERR_NOT_FOUND)
		return MD_OK;
	if (status != MD_OK)
		return md_error_set(err, status, "%s", why.message);
	for (char *line = strtok_r((char *)bytes.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		take_line(line, began, take, context);
	md_file_release(&bytes);
	return MD_OK;
}

/* What stays in the file. */
struct rest {
	const char *without;
	uint64_t began;
	struct md_buf text;
	bool dropped, failed;
};

static void keep(void *context, const char *name, const char *path)
{
	struct rest *rest = context;
	size_t size = 0;
	if (!strcmp(name, rest->without)) {
		rest->dropped = true;
		return;
	}
	MD_AUTO_FREE char *line = make_line(rest->began, name, path, &size);
	rest->failed |= !line;
	if (line)
		md_buf_put(&rest->text, line, size);
}

enum md_status md_adopt_adapters_drop(const char *folder, pid_t pid, uint64_t began, const char *name,
				      struct md_error *err)
{
	struct rest rest = {.without = name, .began = began};
	md_buf_init(&rest.text);
	enum md_status status = md_adopt_adapters_read(folder, pid, began, keep, &rest, err);
	if (status == MD_OK && (rest.failed || rest.text.failed))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the adapters of engine %d", (int)pid);
	if (status == MD_OK && rest.dropped && !rest.text.size)
		md_adopt_adapters_remove(folder, pid);
	else if (status == MD_OK && rest.dropped)
		status = md_adopt_file_write(folder, pid, SUFFIX, (const char *)rest.text.data, rest.text.size, err);
	md_buf_finish(&rest.text);
	return status;
}

void md_adopt_adapters_remove(const char *folder, pid_t pid)
{
	char file[PATH_MAX];
	md_adopt_file_path(folder, pid, SUFFIX, file);
	unlink(file);
}
