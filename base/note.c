/* SPDX-License-Identifier: Apache-2.0 */
/* Notes as lines, each written by one call, so that only whole lines remain however the process ends. */
#define MD_LOG_DOMAIN "note"
#include "base/note.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"

#define FIELDS 7
#define PARK_SECONDS 30
#define BYTES_MOST (64u << 20)

static const char *const events[] = {"begun", "ended", "broke", "hung", "left-out", "stopped"};
#define EVENTS (sizeof(events) / sizeof(events[0]))

/* ---- lines ---- */

static void print_field(FILE *out, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
		if (*c > ' ' && *c < 0x7f && *c != '%')
			putc(*c, out);
		else
			fprintf(out, "%%%02x", *c);
	}
	if (!text || !*text)
		putc('%', out); /* an empty text */
	putc('\t', out);
}

bool md_note_write(FILE *out, const struct md_note *note)
{
	fprintf(out, "%ld\t%s\t", note->pid, events[note->event]);
	print_field(out, note->of.test);
	print_field(out, note->of.label);
	fprintf(out, "%u\t%llu\t", note->of.batch, (unsigned long long)note->of.graph);
	print_field(out, note->why);
	putc('\n', out);
	return !ferror(out);
}

/* Decodes %XX in place. False: the text is not a valid field. */
static bool unescape(char *text)
{
	char *to = text, digits[3] = "";
	if (!strcmp(text, "%"))
		*text = 0;
	for (; *text; *to++ = *text++) {
		if (*text != '%')
			continue;
		if (!isxdigit((unsigned char)text[1]) || !isxdigit((unsigned char)text[2]))
			return false;
		memcpy(digits, text + 1, 2);
		text += 2;
		*text = (char)strtol(digits, NULL, 16);
	}
	*to = 0;
	return true;
}

static bool take_event(const char *text, enum md_note_event *event)
{
	for (size_t i = 0; i < EVENTS; i++) {
		if (strcmp(text, events[i]))
			continue;
		*event = (enum md_note_event)i;
		return true;
	}
	return false;
}

static bool parse(char *line, struct md_note *out)
{
	char *fields[FIELDS];
	for (size_t i = 0; i < FIELDS; i++) {
		fields[i] = line;
		line = strchr(line, '\t');
		if (!line)
			return false;
		*line++ = 0;
	}
	if (*line != '\n' || !take_event(fields[1], &out->event) || !unescape(fields[2]) || !unescape(fields[3]) ||
	    !unescape(fields[6]))
		return false;
	out->pid = strtol(fields[0], NULL, 10);
	out->of = (struct md_note_of){fields[2], *fields[3] ? fields[3] : NULL, (unsigned)strtoul(fields[4], NULL, 10),
				      strtoull(fields[5], NULL, 10)};
	out->why = fields[6];
	return true;
}

bool md_note_read(FILE *in, struct md_note *out)
{
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, in) > 0) {
		if (!parse(line, out))
			continue;
		out->text = line;
		return true;
	}
	free(line);
	return false;
}

static enum md_status add_note(struct md_note **list, size_t *count, struct md_note *note, struct md_error *err)
{
	if (!MD_ARRAY_EXTEND(*list, *count)) {
		md_note_finish(note);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for notes");
	}
	(*list)[(*count)++] = *note;
	return MD_OK;
}

enum md_status md_note_list(const char *path, struct md_note **list, size_t *count, struct md_error *err)
{
	struct md_file_bytes bytes = {0};
	struct md_note *found = NULL, note;
	enum md_status status = md_file_read(path, BYTES_MOST, &bytes, err);
	FILE *in = status == MD_OK && bytes.size ? fmemopen(bytes.data, bytes.size, "r") : NULL;
	size_t found_count = 0;
	if (status == MD_OK && bytes.size && !in)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for notes");
	while (in && status == MD_OK && md_note_read(in, &note))
		status = add_note(&found, &found_count, &note, err);
	if (in)
		fclose(in);
	md_file_release(&bytes);
	if (status != MD_OK) {
		md_note_list_finish(found, found_count);
		return status;
	}
	*list = found;
	*count = found_count;
	return MD_OK;
}

void md_note_list_finish(struct md_note *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		md_note_finish(&list[i]);
	free(list);
}

void md_note_finish(struct md_note *note)
{
	free(note->text);
	*note = (struct md_note){0};
}

bool md_note_same(const struct md_note_of *a, const struct md_note_of *b)
{
	if (strcmp(a->test, b->test) || !a->label != !b->label)
		return false;
	return a->label ? !strcmp(a->label, b->label) && a->batch == b->batch : a->graph == b->graph;
}

/* ---- in the engine's process ---- */

static struct md_descriptor kept = {.fd = -1};
static char path[PATH_MAX];
static struct md_note *left_out; /* owned until the process ends; read once */
static size_t left_out_count;
static struct md_note_of begun; /* test NULL: no test is under way */
static char *begun_label;       /* owned */
static char *begun_what;        /* owned; NULL: the whole test */

/* Runs before the engine changes its rights or its folder. */
__attribute__((constructor(MD_LOADED_SETTINGS))) static void open_notes(void)
{
	unsigned limit;
	if (!md_descriptor_scarce(&limit) && md_environment_path("MEDUSA_NOTES", path, sizeof(path)))
		md_descriptor_keep(&kept, md_descriptor_open(path, O_WRONLY | O_APPEND | O_NOFOLLOW, 0));
}

bool md_note_is_read(void)
{
	return *path != 0;
}

/* Opens the file again if the engine has closed its descriptor. */
static bool reopen(void)
{
	return md_descriptor_is_ours(&kept) ||
	       md_descriptor_keep(&kept, md_descriptor_open(path, O_WRONLY | O_APPEND | O_NOFOLLOW, 0));
}

static void put(const struct md_note *note)
{
	MD_AUTO_FREE char *line = NULL;
	size_t size = 0;
	FILE *out = *path ? open_memstream(&line, &size) : NULL;
	bool written;
	if (!out)
		return;
	written = md_note_write(out, note);
	if (!fclose(out) && written && reopen())
		md_descriptor_write(kept.fd, line, size);
}

/* Copies the subject: when the test ends, the graph and its label may be gone. */
static bool keep_begun(const struct md_note_of *of)
{
	char *label = of->label ? strdup(of->label) : NULL;
	if (of->label && !label)
		return false;
	free(begun_label);
	begun_label = label;
	begun = *of;
	begun.label = label;
	return true;
}

void md_note_begin(const struct md_note_of *of, const char *what)
{
	if (!*path || !keep_begun(of))
		return;
	free(begun_what);
	begun_what = what && *what ? strdup(what) : NULL;
	put(&(struct md_note){.pid = getpid(), .event = MD_NOTE_BEGUN, .of = begun, .why = what});
}

void md_note_phase(const char *what)
{
	const struct md_note_of of = begun;
	if (of.test)
		md_note_begin(&of, what);
}

void md_note_end(void)
{
	if (begun.test)
		put(&(struct md_note){.pid = getpid(), .event = MD_NOTE_ENDED, .of = begun});
	begun.test = NULL;
}

void md_note_stopped(const char *why)
{
	put(&(struct md_note){
	    .pid = getpid(), .event = MD_NOTE_STOPPED, .of = {.test = MD_NOTE_RECORDING}, .why = why});
}

static void park(void)
{
	struct timespec left = {.tv_sec = PARK_SECONDS};
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

void md_note_break(enum md_note_event event, const char *why)
{
	MD_AUTO_FREE char *both = NULL;
	if (!begun.test)
		return;
	if (begun_what && asprintf(&both, "%s: %s", begun_what, why) < 0)
		both = NULL;
	put(&(struct md_note){.pid = getpid(), .event = event, .of = begun, .why = both ? both : why});
	begun.test = NULL;
	park();
}

static void read_left_out(void)
{
	char file[PATH_MAX];
	struct md_error err = {0};
	if (md_environment_path("MEDUSA_LEAVE_OUT", file, sizeof(file)) &&
	    md_note_list(file, &left_out, &left_out_count, &err) != MD_OK)
		md_warn("MEDUSA_LEAVE_OUT: %s", err.message);
}

static void know_left_out(void)
{
	static bool known;
	if (!known)
		read_left_out();
	known = true;
}

const char *md_note_left_out(const struct md_note_of *of)
{
	know_left_out();
	for (size_t i = 0; i < left_out_count; i++)
		if (left_out[i].event == MD_NOTE_LEFT_OUT && md_note_same(&left_out[i].of, of))
			return left_out[i].why;
	return NULL;
}

unsigned md_note_left_out_count(const char *test)
{
	unsigned count = 0;
	know_left_out();
	for (size_t i = 0; i < left_out_count; i++)
		count += left_out[i].event == MD_NOTE_LEFT_OUT && !strcmp(left_out[i].of.test, test);
	return count;
}
