/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options by getopt_long, from one table, from which the help text is made, too. */
#include "tools/options.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plain.h"
#include "ranks/rank_bundle.h"
#include "tools/completion.h"

#define OPTIONS_MAX 64
#define FIRST_CODE 1000 /* beyond every letter's code */
#define CODE_HELP (FIRST_CODE + OPTIONS_MAX)
#define CODE_VERSION (CODE_HELP + 1)
#define CODE_COMPLETION (CODE_HELP + 2)
#define COMMON 4 /* these, and the end of the table */

static void print_option(const struct md_option *option)
{
	char left[64], letter[8] = "    ";
	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
		 option->argument ? option->argument : "");
	printf("  %-30s %s\n", left, option->help);
}

static const char exit_codes[] = "  0  all good\n"
				 "  1  verification failed, or something could not be materialized\n"
				 "  2  usage\n"
				 "  3  an input file is bad or cannot be read\n"
				 "  4  the command could not be run or failed itself, or output could not be written\n"
				 "  5  nothing to do: no graphs\n";

static void print_help(const struct md_command *command)
{
	static const struct md_option common[] = {
	    {.name = "help", .letter = 'h', .help = "Print this text."},
	    {.name = "version", .help = "Print the version."},
	};
	printf("Usage: %s %s\n%s\n\nOptions:\n", command->name, command->usage, command->summary);
	for (size_t i = 0; i < command->option_count; i++)
		print_option(&command->options[i]);
	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		print_option(&common[i]);
	printf("\nExit codes:\n%s%s", command->exit_codes ? command->exit_codes : exit_codes,
	       command->exit_notes ? command->exit_notes : "");
}

void md_options_say(const struct md_command *command, const char *format, ...)
{
	va_list args;
	char *text = NULL;
	size_t size = 0;
	FILE *line = open_memstream(&text, &size), *out = line ? line : stderr;
	fprintf(out, "%s: ", command->name);
	va_start(args, format);
	md_plain_vprint(out, format, args);
	va_end(args);
	fputc('\n', out);
	if (line && !fclose(line)) /* in one write: engines print lines of their own to the same place */
		fwrite(text, 1, size, stderr);
	free(text);
}

static const struct md_command *begun;
static bool output_lost_said;

int md_options_flush(const struct md_command *command)
{
	int why =
	    errno; /* errno of the failed write, unless another call has failed since; a flush that fails sets it anew */
	bool flushed = fflush(stdout) == 0;
	if (flushed && !ferror(stdout))
		return MD_EXIT_OK;
	why = flushed ? why : errno;
	output_lost_said = true;
	md_options_say(command, "writing the output: %s", why == EBADF ? "stdout is closed" : strerror(why));
	return MD_EXIT_COMMAND;
}

/* However a command ends, output that could not be written makes it fail. */
static void look_at_output(void)
{
	if (!output_lost_said && md_options_flush(begun) != MD_EXIT_OK)
		_exit(MD_EXIT_COMMAND);
}

int md_options_usage_error(const struct md_command *command, const char *format, ...)
{
	va_list args;
	fprintf(stderr, "%s: ", command->name);
	va_start(args, format);
	md_plain_vprint(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nUsage: %s %s\nTry '%s --help'.\n", command->name, command->usage, command->name);
	return MD_EXIT_USAGE;
}

static enum md_exit exit_of(enum md_status status)
{
	switch (status) {
	case MD_OK:
		return MD_EXIT_OK;
	case MD_ERR_UNPROVABLE:
	case MD_ERR_MISMATCH:
	case MD_ERR_AMBIGUOUS:
		return MD_EXIT_FAILED;
	case MD_ERR_IO:
	case MD_ERR_NOT_FOUND:
	case MD_ERR_TRUNCATED:
	case MD_ERR_CORRUPT:
	case MD_ERR_VERSION:
	case MD_ERR_TOO_LARGE:
	case MD_ERR_UNSUPPORTED:
	case MD_ERR_INVALID:
		return MD_EXIT_INPUT;
	case MD_ERR_OUTPUT:
	default:
		return MD_EXIT_COMMAND;
	}
}

int md_options_report(const struct md_command *command, const struct md_error *err)
{
	md_options_say(command, "%s", err->message);
	return (int)exit_of(err->status);
}

int md_options_report_file(const struct md_command *command, const char *path, const struct md_error *err)
{
	bool named = strncmp(err->message, path, strlen(path)) == 0;
	md_options_say(command, "%s%s%s", named ? "" : path, named ? "" : ": ", err->message);
	if (md_bundle_is(path))
		md_options_say(command, "%s is a bundle: name the artifact of one rank, %s/rank-0.medusa", path, path);
	return (int)exit_of(err->status);
}

static void fill_tables(const struct md_command *command, struct option longs[OPTIONS_MAX + COMMON],
			char letters[2 * OPTIONS_MAX + 4])
{
	size_t count = command->option_count;
	char *letter = letters;
	*letter++ = ':'; /* makes getopt tell a missing value from an unknown option */
	*letter++ = 'h';
	for (size_t i = 0; i < count; i++) {
		const struct md_option *option = &command->options[i];
		longs[i] = (struct option){option->name, option->argument ? required_argument : no_argument, NULL,
					   FIRST_CODE + (int)i};
		if (option->letter) {
			*letter++ = option->letter;
			if (option->argument)
				*letter++ = ':';
		}
	}
	*letter = '\0';
	longs[count] = (struct option){"help", no_argument, NULL, CODE_HELP};
	longs[count + 1] = (struct option){"version", no_argument, NULL, CODE_VERSION};
	longs[count + 2] = (struct option){"completion", required_argument, NULL, CODE_COMPLETION};
	longs[count + 3] = (struct option){0};
}

static const struct md_option *find_option(const struct md_command *command, int code)
{
	for (size_t i = 0; i < command->option_count; i++)
		if (code == FIRST_CODE + (int)i || (command->options[i].letter && code == command->options[i].letter))
			return &command->options[i];
	return NULL;
}

/* -1 to go on, else an exit code. */
static int take_option(const struct md_command *command, int code, char *argv[], bool seen[OPTIONS_MAX])
{
	const struct md_option *option = find_option(command, code);
	if (option) {
		if (command->once && seen[option - command->options])
			return md_options_usage_error(command, "--%s is given twice", option->name);
		seen[option - command->options] = true;
		if (option->list && !md_arguments_add(option->list, optarg))
			return md_options_usage_error(command, "--%s: out of memory for its value", option->name);
		else if (option->value)
			*option->value = optarg;
		else if (option->flag)
			*option->flag = true;
		return -1;
	}
	if (code == CODE_HELP || code == 'h') {
		print_help(command);
		return md_options_flush(command);
	}
	if (code == CODE_VERSION) {
		printf("%s %s\n", command->name, MD_VERSION);
		return md_options_flush(command);
	}
	if (code == CODE_COMPLETION) {
		if (!md_completion_print(command, optarg, stdout))
			return md_options_usage_error(command, "--completion: \"%s\" is none of bash, zsh, fish",
						      optarg);
		return md_options_flush(command);
	}
	if (code == ':')
		return md_options_usage_error(command, "%s needs a value", argv[optind - 1]);
	if (optopt && optopt < FIRST_CODE)
		return md_options_usage_error(command, "unknown option -%c", optopt);
	return md_options_usage_error(command, "unknown option %s", argv[optind - 1]);
}

/*
 * If the caller has closed a standard descriptor, the next file that is opened would get its number, and whatever is
 * printed would go into that file. So something that can be neither read nor written is opened there, and printing
 * fails (EBADF). The engine finds the descriptor closed, as the caller has left it.
 */
static void fill_standard(void)
{
	int fd;
	do
		fd = open("/", O_PATH | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int md_options_parse(const struct md_command *command, int argc, char *argv[], struct md_arguments *out)
{
	struct option longs[OPTIONS_MAX + COMMON];
	char letters[2 * OPTIONS_MAX + 4];
	bool seen[OPTIONS_MAX] = {false};
	int code, end = 1;
	assert(command->option_count <= OPTIONS_MAX);
	fill_standard();
	if (!begun)
		atexit(look_at_output);
	begun = command;
	while (end < argc && strcmp(argv[end], "--"))
		end++;
	*out = (struct md_arguments){.command = end < argc ? argv + end + 1 : NULL};
	argv[end] = NULL; /* files end here; options of the engine's command are not read */
	fill_tables(command, longs, letters);
	optind = 0; /* glibc: start anew, with permutation */
	opterr = 0;
	while ((code = getopt_long(end, argv, letters, longs, NULL)) != -1) {
		int result = take_option(command, code, argv, seen);
		if (result >= 0)
			return result;
	}
	out->files = argv + optind;
	out->file_count = (size_t)(end - optind);
	if (out->command && !*out->command)
		return md_options_usage_error(command, "the command after -- is missing");
	return -1;
}

int md_options_take_descriptor(const struct md_command *command, const char *option, const char *text, int *taken)
{
	char *end;
	if (!text)
		return -1;
	errno = 0;
	long fd = strtol(text, &end, 10);
	if (errno || end == text || *end || fd < 0 || fd > INT_MAX)
		return md_options_usage_error(command, "%s: \"%s\" is not a number of a descriptor", option, text);
	if (fcntl((int)fd, F_SETFD, FD_CLOEXEC)) {
		md_options_say(command, "%s %s: no such descriptor is open", option, text);
		return MD_EXIT_INPUT;
	}
	*taken = (int)fd;
	return -1;
}
