/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that all commands share: exit codes, and options with --help and --version. */
#ifndef MD_TOOLS_OPTIONS_H
#define MD_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arguments.h"
#include "base/status.h"

/* The same in every command, so that a build pipeline can tell them apart. */
enum md_exit {
	MD_EXIT_OK = 0,
	MD_EXIT_FAILED = 1,  /* verification failed, or something could not be materialized */
	MD_EXIT_USAGE = 2,   /* the command line */
	MD_EXIT_INPUT = 3,   /* an input file is bad or cannot be read */
	MD_EXIT_COMMAND = 4, /* the command could not be run, or failed itself */
	MD_EXIT_EMPTY = 5,   /* nothing to do: no graphs */
	MD_EXIT_ROOM = 6,    /* refused, because there is too little room */
	MD_EXIT_PARTIAL = 7, /* what was asked for was printed, and some of it is missing */
};

/* An option has a value (argument names it in the help) or is a flag; exactly one of value, flag and list is set. */
struct md_option {
	const char *name;     /* long name, without dashes */
	char letter;          /* short name, or 0 */
	const char *argument; /* "FILE"; NULL for a flag */
	const char *help;     /* one line */
	const char **value;
	bool *flag;
	struct md_argument_list *list; /* of an option that may be given several times: every value, in order */
};

struct md_command {
	const char *name;    /* "medusa-verify" */
	const char *usage;   /* what follows the name: "X.medusa [OPTION...] -- CMD [ARG...]" */
	const char *summary; /* one sentence */
	const struct md_option *options;
	size_t option_count;
	const char *exit_codes; /* all of them, whole lines; NULL: those of enum md_exit */
	const char *exit_notes; /* more about exit codes, whole lines; or NULL */
	bool once;              /* an option that is given twice is refused; otherwise the last one counts */
	const char *words;      /* what the first argument may be, "keygen sign check"; NULL: a file */
};

/* Files stand before "--", among the options; the command line of the engine behind it. Both are NULL-terminated. */
struct md_arguments {
	char **files;
	size_t file_count;
	char **command; /* NULL when there is no "--" */
};

/*
 * Returns -1 when the command should go on, else its exit code: --help, --version and --completion SHELL (of which
 * the help says nothing: it is for make install) have been printed to stdout, or
 * what is wrong, and what to do about it, to stderr. argv is permuted.
 */
int md_options_parse(const struct md_command *command, int argc, char *argv[], struct md_arguments *out);

/*
 * Prints "NAME: message" to stderr. In this function and those below, bytes that a terminal would act upon are shown as
 * \xHH, because labels, reasons and paths are foreign text.
 */
void md_options_say(const struct md_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Checks that everything printed to stdout was written: 0, or MD_EXIT_COMMAND (with a message) if not, because of a
 * full disk or a closed descriptor. After md_options_parse this is also checked when the process exits, which then ends
 * with that code.
 */
int md_options_flush(const struct md_command *command);

/* Prints "NAME: message" and "Try 'NAME --help'", returns MD_EXIT_USAGE. */
int md_options_usage_error(const struct md_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints "NAME: message" and returns the exit code that fits the status of a file or of the machine. */
int md_options_report(const struct md_command *command, const struct md_error *err);
/* The same, with the file's path in front unless the message begins with it. */
int md_options_report_file(const struct md_command *command, const char *path, const struct md_error *err);

/*
 * Takes a descriptor that was inherited, by its number, so that no process inherits it further. text: NULL if the option was not
 * given. Returns -1 when the command should go on, else its exit code.
 */
int md_options_take_descriptor(const struct md_command *command, const char *option, const char *text, int *taken);

/* Options of the commands that analyze. */
#define MD_PROCESS_VALUES_HELP "Keep graphs with a number parameter that differs between the captures."
#define MD_STOP_HELP "End CMD at --until, for servers, which do not end by themselves."
/* MEDUSA_UNTIL where the user has not said when a run may end. */
#define MD_UNTIL_COMPLETE "mark=complete"
#define MD_STOP_USAGE "--stop: --until mark=NAME or graphs=N says when the command may be ended"
#define MD_REFUSE_UNSET_HELP "Refuse graphs in which bytes inside of struct parameters differ."

#endif
