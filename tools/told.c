/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what plug-ins have said about themselves in the file MEDUSA_TELL. */
#include "tools/told.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#define READ_BYTES 65536u

struct word {
	const char *text;
	int size;
};

struct said {
	struct word plugin, version, process;
	const char *text;
};

/* Up to the next space, behind which the line goes on. False: there is none. */
static bool next_word(const char **line, struct word *out)
{
	*out = (struct word){*line, (int)strcspn(*line, " ")};
	*line += out->size;
	*line += **line == ' ';
	return out->size > 0;
}

static bool parse(const char *line, struct said *out)
{
	bool found =
	    next_word(&line, &out->plugin) && next_word(&line, &out->version) && next_word(&line, &out->process);
	out->text = line;
	return found && *line && strspn(out->process.text, "0123456789") == (size_t)out->process.size;
}

/* Each process of an engine may say the same. */
static bool is_known(const struct said *all, unsigned count, const struct said *said)
{
	for (unsigned i = 0; i < count; i++)
		if (all[i].plugin.size == said->plugin.size &&
		    !strncmp(all[i].plugin.text, said->plugin.text, (size_t)said->plugin.size) &&
		    !strcmp(all[i].text, said->text))
			return true;
	return false;
}

static void take_lines(char *text, struct md_told *out)
{
	struct said all[MD_TOLD_MOST];
	for (char *line = text, *end; out->count < MD_TOLD_MOST && (end = strchr(line, '\n')); line = end + 1) {
		struct said *said = &all[out->count];
		*end = 0;
		if (!parse(line, said) || is_known(all, out->count, said))
			continue;
		snprintf(out->lines[out->count++], MD_TOLD_BYTES, "%.*s %.*s in process %.*s: %s", said->plugin.size,
			 said->plugin.text, said->version.size, said->version.text, said->process.size,
			 said->process.text, said->text);
	}
}

/* The file may grow while it is read, and the engine may have put anything in its place. */
void md_told_read(const char *path, struct md_told *out)
{
	static char text[READ_BYTES + 1];
	MD_AUTO_FD int fd = -1;
	uint64_t bytes;
	size_t size = 0;
	*out = (struct md_told){0};
	if (md_file_open(path, UINT64_MAX, &fd, &bytes, NULL) != MD_OK)
		return;
	for (ssize_t got; size < READ_BYTES && (got = read(fd, text + size, READ_BYTES - size)) > 0;)
		size += (size_t)got;
	text[size] = 0;
	take_lines(text, out);
}
