/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the arguments when the library is loaded, and passes them on to workers that have none of their own. */
#include "driver/process_arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/secret.h"
#include "driver/image.h"

#define HANDED_ON "MEDUSA_ARGUMENTS="

static char *joined; /* of this process; NULL: out of memory */

static const char *inherited(void)
{
	for (char **at = environ; at && *at; at++) /* not getenv: a shell defines its own, which is not ready yet */
		if (!strncmp(*at, HANDED_ON, strlen(HANDED_ON)))
			return *at + strlen(HANDED_ON);
	return NULL;
}

static bool is_python(const char *program)
{
	const char *slash = strrchr(program, '/');
	const char *name = slash ? slash + 1 : program;
	return !strncmp(name, "python", 6) || !strncmp(name, "pypy", 4);
}

static bool is_worker(int argc, char **argv)
{
	static const char helper[] = "from multiprocessing.";
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "-c"))
			return !strncmp(argv[i + 1], helper, strlen(helper));
	return false;
}

/* For arguments that are too many to keep: any difference still changes this text. */
static bool summarize(struct md_argument_list *list, size_t bytes)
{
	struct md_buf all;
	struct md_argument_list summary = {0};
	char text[128], hash[MD_HASH_TEXT_BYTES];
	md_buf_init(&all);
	for (uint32_t i = 1; i < list->count; i++)
		md_buf_put(&all, list->items[i].text, strlen(list->items[i].text) + 1);
	bool done = !all.failed && md_arguments_add(&summary, list->items[0].text);
	if (done) {
		struct md_hash digest = md_hash_bytes(all.data, all.size);
		md_hash_format(&digest, hash);
		snprintf(text, sizeof(text), "(%u arguments of %zu bytes, hash %s)", list->count - 1, bytes, hash);
		done = md_arguments_add(&summary, text);
	}
	md_buf_finish(&all);
	md_arguments_finish(list);
	*list = summary;
	return done;
}

/* Without secrets: the line goes into the environment and into traces, and a hash of a secret would help to guess it. */
static char *join(int argc, char **argv)
{
	struct md_argument_list list = {0};
	size_t bytes = 0;
	bool done = md_arguments_add(&list, argc > 0 ? argv[0] : "");
	for (int i = 1; done && i < argc; i++)
		done = md_arguments_add(&list, argv[i]);
	done = done && md_secret_hide_arguments(&list);
	for (uint32_t i = 1; done && i < list.count; i++)
		bytes += strlen(list.items[i].text) + 1;
	if (done && (bytes > MD_ARGUMENTS_BYTES || list.count > MD_ARGUMENTS_MAX))
		done = summarize(&list, bytes);
	char *line = done ? md_arguments_join(&list) : NULL;
	md_arguments_finish(&list);
	return line;
}

/* Replaces environ itself: setenv may be the program's own function, and not be ready yet. */
static void hand_on(const char *line)
{
	char *entry = NULL;
	size_t count = 0, kept = 0;
	while (environ && environ[count])
		count++;
	char **grown = calloc(count + 2, sizeof(*grown));
	if (!grown || asprintf(&entry, HANDED_ON "%s", line) < 0)
		return free(grown);
	for (size_t i = 0; i < count; i++)
		if (strncmp(environ[i], HANDED_ON, strlen(HANDED_ON)) != 0)
			grown[kept++] = environ[i];
	grown[kept] = entry;
	environ = grown; /* never freed, because the program uses it */
}

/* A program may have taken its arguments apart before it loads a library (CUDA_INJECTION64_PATH): a NULL among them ends them. */
static int count_arguments(int argc, char **argv)
{
	int count = 0;
	while (argv && count < argc && argv[count])
		count++;
	return count;
}

/* The dynamic linker passes main's arguments to the constructors of every library. */
__attribute__((constructor)) static void keep_arguments(int argc, char **argv)
{
	argc = count_arguments(argc, argv);
	const char *parent = argc > 0 && is_python(argv[0]) && is_worker(argc, argv) ? inherited() : NULL;
	joined = parent ? strdup(parent) : join(argc, argv);
	if (!parent && joined && argc > 0 && is_python(argv[0]))
		hand_on(joined);
}

/* ---- the program's files ---- */

#define MOST (64u << 20) /* bytes; a larger program or script is not hashed */

static void put_file(struct md_buf *all, const char *path)
{
	struct md_file_bytes bytes = {0};
	struct md_error err = {0};
	if (md_file_read(path, MOST, &bytes, &err) == MD_OK)
		md_buf_put(all, bytes.data, bytes.size);
	md_file_release(&bytes);
}

/* A program with a build-id is not read; another one is hashed. */
static void put_program(struct md_buf *all)
{
	struct md_image_home home = {0};
	struct md_error err = {0};
	md_image_home((const void *)getauxval(AT_PHDR), &home, &err);
	if (home.build_id_size)
		md_buf_put(all, home.build_id, home.build_id_size);
	else
		put_file(all, "/proc/self/exe");
}

static bool add_program(struct md_argument_list *arguments)
{
	uint32_t script = md_arguments_script(arguments);
	char hash[MD_HASH_TEXT_BYTES], text[sizeof(MD_ARGUMENTS_PROGRAM) + MD_HASH_TEXT_BYTES];
	struct md_buf all;
	md_buf_init(&all);
	put_program(&all);
	if (script)
		put_file(&all, arguments->items[script].text);
	bool done = !all.failed;
	if (done) {
		struct md_hash digest = md_hash_bytes(all.data, all.size);
		md_hash_format(&digest, hash);
		snprintf(text, sizeof(text), MD_ARGUMENTS_PROGRAM "%s)", hash);
		done = md_arguments_add(arguments, text);
	}
	md_buf_finish(&all);
	return done;
}

bool md_process_arguments(struct md_argument_list *out)
{
	const char *line = md_environment_is_fork() ? inherited() : joined;
	if (!line || !md_arguments_split(line, out))
		return false;
	if (md_secret_hide_arguments(out) && add_program(out)) /* a template does not hide them in what it hands on */
		return true;
	md_arguments_finish(out);
	return false;
}
