/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/adopt_record.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "worker/engine/adopt_adapters.h"
#include "worker/engine/adopt_file.h"
#include "worker/engine/port_owner.h"
#include "worker/engine/process_facts.h"
#include "worker/engine/template.h"

#define VERSION 1u
#define BYTES_MAX 16384u
#define FIELDS_MAX 16u
#define PREFIX MD_ADOPT_FILE_PREFIX
#define SUFFIX ".json"

/* ---- fields ---- */

/* Each is there once, and there are no others; an optional one may be missing, and is empty then. */
struct text_field {
	const char *key;
	size_t offset, size;
};

#define TEXT(member)                                                                                                   \
	{                                                                                                              \
#member, offsetof(struct md_adopt_record, member), sizeof(((struct md_adopt_record *)0)->member)       \
	}

static const struct text_field texts[] = {TEXT(model),     TEXT(boot),  TEXT(command),  TEXT(mark),  TEXT(template),
					  TEXT(swap_name), TEXT(state), TEXT(gpu_uuid), TEXT(cgroup)};
static const char *const numbers[] = {"version", "pid", "began", "gpu"};
#define TEXTS (sizeof(texts) / sizeof(*texts))
#define OPTIONAL 1u /* the last of the texts */
#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return false;
	return true;
}

static enum md_status take_text(const struct text_field *field, const struct md_json_field *given,
				struct md_adopt_record *record, struct md_error *err)
{
	if (given->kind != MD_JSON_TEXT || given->exact || !is_plain(given->text))
		return md_error_set(err, MD_ERR_CORRUPT, "%s is no text without control characters", field->key);
	if (strlen(given->text) >= field->size)
		return md_error_set(err, MD_ERR_CORRUPT, "%s has %zu bytes, and %zu are allowed", field->key,
				    strlen(given->text), field->size - 1);
	memcpy((char *)record + field->offset, given->text, strlen(given->text) + 1);
	return MD_OK;
}

static enum md_status take_number(size_t which, const struct md_json_field *given, struct md_adopt_record *record,
				  struct md_error *err)
{
	static const uint64_t most[NUMBERS] = {VERSION, INT32_MAX, UINT64_MAX, 1023};
	static const uint64_t least[NUMBERS] = {VERSION, 2, 1, 0};
	uint64_t value = given->number;
	if (given->kind != MD_JSON_NUMBER || value < least[which] || value > most[which])
		return md_error_set(err, which ? MD_ERR_CORRUPT : MD_ERR_VERSION, "%s is no number from %llu to %llu",
				    numbers[which], (unsigned long long)least[which], (unsigned long long)most[which]);
	if (which == 1)
		record->pid = (pid_t)value;
	else if (which == 2)
		record->began = value;
	else if (which == 3)
		record->gpu = (uint32_t)value;
	return MD_OK;
}

/* The reader refuses a key that is there twice. */
static enum md_status take_field(const struct md_json_field *given, struct md_adopt_record *record,
				 struct md_error *err)
{
	for (size_t i = 0; i < TEXTS; i++)
		if (!strcmp(given->key, texts[i].key))
			return take_text(&texts[i], given, record, err);
	for (size_t i = 0; i < NUMBERS; i++)
		if (!strcmp(given->key, numbers[i]))
			return take_number(i, given, record, err);
	return md_error_set(err, MD_ERR_CORRUPT, "%.100s is no key of a record", given->key);
}

/* ---- files ---- */

bool md_adopt_record_is_name(const char *name)
{
	size_t size = strlen(name);
	return size > strlen(PREFIX SUFFIX) && !strncmp(name, PREFIX, strlen(PREFIX)) &&
	       !strcmp(name + size - strlen(SUFFIX), SUFFIX);
}

static char *make_line(const struct md_adopt_record *record, size_t *size)
{
	char *text = NULL;
	struct md_json json;
	FILE *out = open_memstream(&text, size);
	if (!out)
		return NULL;
	md_json_init_line(&json, out);
	md_json_object(&json, NULL);
	md_json_number(&json, "version", VERSION);
	md_json_number(&json, "pid", (uint64_t)record->pid);
	md_json_number(&json, "began", record->began);
	md_json_number(&json, "gpu", record->gpu);
	for (size_t i = 0; i < TEXTS; i++) {
		const char *value = (const char *)record + texts[i].offset;
		if (*value || i < TEXTS - OPTIONAL)
			md_json_text(&json, texts[i].key, value);
	}
	md_json_end(&json);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

enum md_status md_adopt_record_write(const char *folder, const struct md_adopt_record *record, struct md_error *err)
{
	size_t size;
	MD_AUTO_FREE char *line = make_line(record, &size);
	if (!line)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the record of engine %d",
				    (int)record->pid);
	return md_adopt_file_write(folder, record->pid, SUFFIX, line, size, err);
}

void md_adopt_record_remove(const char *folder, pid_t pid)
{
	char path[PATH_MAX];
	md_adopt_adapters_remove(folder, pid);
	md_adopt_file_path(folder, pid, SUFFIX, path);
	unlink(path);
}

static enum md_status read_line(struct md_file_bytes *bytes, struct md_adopt_record *record, struct md_error *err)
{
	struct md_json_field fields[FIELDS_MAX];
	size_t count;
	while (bytes->size && bytes->data[bytes->size - 1] == '\n')
		bytes->data[--bytes->size] = '\0';
	if (!bytes->size)
		return md_error_set(err, MD_ERR_TRUNCATED, "it is empty");
	MD_FORWARD(md_json_read_line((char *)bytes->data, bytes->size, fields, FIELDS_MAX, &count, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(take_field(&fields[i], record, err));
	count += !*record->cgroup;
	if (count != TEXTS + NUMBERS)
		return md_error_set(err, MD_ERR_CORRUPT, "it has %zu keys, and a record has %zu", count,
				    TEXTS + NUMBERS);
	return MD_OK;
}

enum md_status md_adopt_record_read(const char *folder, const char *name, struct md_adopt_record *record,
				    struct md_error *err)
{
	char path[PATH_MAX], own[PATH_MAX];
	struct md_file_bytes bytes = {0};
	*record = (struct md_adopt_record){0};
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	MD_FORWARD(md_adopt_file_read(path, BYTES_MAX, &bytes, err));
	enum md_status status = read_line(&bytes, record, err);
	md_file_release(&bytes);
	if (status != MD_OK)
		return md_error_prefix(err, "%.300s", path);
	md_adopt_file_path(folder, record->pid, SUFFIX, own);
	if (strcmp(own, path) != 0)
		return md_error_set(err, MD_ERR_CORRUPT, "%.300s: it is the record of process %d", path,
				    (int)record->pid);
	return MD_OK;
}

/* ---- the process ---- */

static enum md_status check_process(const struct md_adopt_record *record, struct md_error *err)
{
	bool forked = *record->template != '\0';
	const char *variable = forked ? MD_ENGINE_TEMPLATE_SOCKET : MD_ENGINE_MARK;
	const char *wanted = forked ? record->template : record->mark;
	char mark[sizeof(record->template) + 1];
	int pid = (int)record->pid;
	if (!md_process_is_own(record->pid))
		return md_error_set(err, MD_ERR_MISMATCH, "process %d is another user's", pid);
	if (md_process_began(record->pid) != record->began)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "process %d began at tick %llu, and the engine at tick %llu: it is another one",
				    pid, (unsigned long long)md_process_began(record->pid),
				    (unsigned long long)record->began);
	if (getpgid(record->pid) != record->pid)
		return md_error_set(err, MD_ERR_MISMATCH, "process %d does not lead its process group", pid);
	md_process_variable(record->pid, variable, mark, sizeof(mark));
	if (!*wanted || strcmp(mark, wanted) != 0)
		return md_error_set(err, MD_ERR_MISMATCH, "process %d has %s=%s, and not %s", pid, variable,
				    *mark ? mark : "(none)", *wanted ? wanted : "(none)");
	return MD_OK;
}

/* The descriptor comes first: what is read afterwards is about its process, or that one has ended. */
enum md_status md_adopt_record_find(const struct md_adopt_record *record, int *pidfd, struct md_error *err)
{
	char boot[sizeof(record->boot)];
	md_process_boot(boot, sizeof(boot));
	if (strcmp(boot, record->boot) != 0)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process %d ended with the machine's last boot",
				    (int)record->pid);
	MD_AUTO_FD int fd = md_process_open(record->pid);
	if (fd < 0)
		return md_error_set(err, errno == ESRCH ? MD_ERR_NOT_FOUND : MD_ERR_IO, "process %d: %s",
				    (int)record->pid, errno == ESRCH ? "it has ended" : strerror(errno));
	struct pollfd gone = {.fd = fd, .events = POLLIN};
	if (poll(&gone, 1, 0) > 0)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process %d: it has ended", (int)record->pid);
	MD_FORWARD(check_process(record, err));
	*pidfd = md_steal_fd(&fd);
	return MD_OK;
}
