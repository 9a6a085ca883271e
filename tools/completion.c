/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for bash, zsh and fish. */
#include "tools/completion.h"

#include <string.h>

/* True if another command's line follows "--". */
static bool takes_command(const struct md_command *command)
{
	return strstr(command->usage, "-- CMD") != NULL;
}

static bool takes_file(const struct md_option *option)
{
	static const char *const files[] = {"FILE", "OUT", "KEY"};
	for (size_t i = 0; option->argument && i < sizeof(files) / sizeof(files[0]); i++)
		if (!strncmp(option->argument, files[i], strlen(files[i])))
			return true;
	return false;
}

/* Prints in single quotes, with a backslash before each character of `special`. */
static void put_quoted(FILE *out, const char *text, const char *special, const char *quote)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs(quote, out);
			continue;
		}
		if (strchr(special, *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void put_head(const struct md_command *command, const char *shell, FILE *out)
{
	fprintf(out, "# Completion of %s(1) in %s, by %s --completion %s\n", command->name, shell, command->name,
		shell);
}

/* ---- bash ---- */

static void put_bash_words(const struct md_command *command, FILE *out)
{
	for (size_t i = 0; i < command->option_count; i++) {
		if (command->options[i].letter)
			fprintf(out, "-%c ", command->options[i].letter);
		fprintf(out, "--%s ", command->options[i].name);
	}
	fputs("-h --help --version", out);
}

/* The options after which files, or other values, are expected. */
static void put_bash_values(const struct md_command *command, bool files, FILE *out)
{
	const char *before = "\t";
	for (size_t i = 0; i < command->option_count; i++) {
		const struct md_option *option = &command->options[i];
		if (!option->argument || takes_file(option) != files)
			continue;
		fprintf(out, "%s--%s", before, option->name);
		if (option->letter)
			fprintf(out, "|-%c", option->letter);
		before = "|";
	}
	if (*before == '|')
		fputs(files ? ") _medusa_files; return ;;\n" : ") return ;;\n", out);
}

static void print_bash(const struct md_command *command, FILE *out)
{
	put_head(command, "bash", out);
	fprintf(out, "_medusa_%s()\n{\n", strchr(command->name, '-') + 1);
	fputs("\tlocal current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i\n"
	      "\t_medusa_files() {\n"
	      "\t\tcompopt -o filenames 2>/dev/null\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
	      "\t}\n"
	      "\tCOMPREPLY=()\n",
	      out);
	if (takes_command(command))
		fputs("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		      "\t\t[[ ${COMP_WORDS[i]} == -- ]] || continue\n"
		      "\t\tif declare -F _command_offset >/dev/null; then\n"
		      "\t\t\t_command_offset $((i + 1))\n"
		      "\t\telif ((COMP_CWORD == i + 1)); then\n"
		      "\t\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$current\")\n"
		      "\t\telse\n"
		      "\t\t\t_medusa_files\n"
		      "\t\tfi\n"
		      "\t\treturn\n"
		      "\tdone\n",
		      out);
	fputs("\t[[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
	      "\t[[ $current == = ]] && current=\n"
	      "\tcase $before in\n",
	      out);
	put_bash_values(command, true, out);
	put_bash_values(command, false, out);
	fputs("\tesac\n"
	      "\tif [[ $current == -* ]]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W '",
	      out);
	put_bash_words(command, out);
	fputs("' -- \"$current\")\n\t\treturn\n\tfi\n", out);
	if (command->words)
		fprintf(out,
			"\tif ((COMP_CWORD == 1)); then\n"
			"\t\tmapfile -t COMPREPLY < <(compgen -W '%s' -- \"$current\")\n"
			"\t\treturn\n"
			"\tfi\n",
			command->words);
	fprintf(out, "\t_medusa_files\n}\ncomplete -F _medusa_%s %s\n", strchr(command->name, '-') + 1, command->name);
}

/* ---- zsh ---- */

static void put_zsh_option(const struct md_option *option, FILE *out)
{
	if (option->letter)
		fprintf(out, " \\\n\t'(-%c --%s)'{-%c,--%s}'[", option->letter, option->name, option->letter,
			option->name);
	else
		fprintf(out, " \\\n\t'--%s[", option->name);
	put_quoted(out, option->help, "[]:\\", "'\\''");
	fputc(']', out);
	if (option->argument) {
		fputc(':', out);
		put_quoted(out, option->argument, "[]:\\", "'\\''");
		fputs(takes_file(option) ? ":_files" : ": ", out);
	}
	fputc('\'', out);
}

static void print_zsh(const struct md_command *command, FILE *out)
{
	static const struct md_option common[] = {{.name = "help", .letter = 'h', .help = "Print a summary."},
						  {.name = "version", .help = "Print the version."}};
	fprintf(out, "#compdef %s\n", command->name);
	put_head(command, "zsh", out);
	if (takes_command(command))
		fputs("local behind=${words[(i)--]}\n"
		      "if ((behind < CURRENT)); then\n"
		      "\tshift $behind words\n"
		      "\t((CURRENT -= behind))\n"
		      "\t_normal\n"
		      "\treturn\n"
		      "fi\n",
		      out);
	fputs("_arguments -s", out);
	for (size_t i = 0; i < command->option_count; i++)
		put_zsh_option(&command->options[i], out);
	put_zsh_option(&common[0], out);
	put_zsh_option(&common[1], out);
	if (command->words)
		fprintf(out, " \\\n\t'1:what to do:(%s)'", command->words);
	fputs(" \\\n\t'*:file:_files'\n", out);
}

/* ---- fish ---- */

static void put_fish_option(const struct md_command *command, const struct md_option *option, FILE *out)
{
	fprintf(out, "complete -c %s -n 'not contains -- -- (commandline -opc)' -l %s", command->name, option->name);
	if (option->letter)
		fprintf(out, " -s %c", option->letter);
	if (option->argument)
		fputs(takes_file(option) ? " -r -F" : " -x", out);
	fputs(" -d '", out);
	put_quoted(out, option->help, "\\", "\\'");
	fputs("'\n", out);
}

static void print_fish(const struct md_command *command, FILE *out)
{
	static const struct md_option common[] = {{.name = "help", .letter = 'h', .help = "Print a summary."},
						  {.name = "version", .help = "Print the version."}};
	put_head(command, "fish", out);
	for (size_t i = 0; i < command->option_count; i++)
		put_fish_option(command, &command->options[i], out);
	put_fish_option(command, &common[0], out);
	put_fish_option(command, &common[1], out);
	if (command->words)
		fprintf(out, "complete -c %s -n '__fish_is_first_arg' -f -a '%s'\n", command->name, command->words);
	if (takes_command(command))
		fprintf(out, "complete -c %s -n 'contains -- -- (commandline -opc)' -a '(__fish_complete_command)'\n",
			command->name);
}

/* ---- all ---- */

bool md_completion_print(const struct md_command *command, const char *shell, FILE *out)
{
	static const struct {
		const char *name;
		void (*print)(const struct md_command *command, FILE *out);
	} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (strcmp(shell, shells[i].name) != 0)
			continue;
		shells[i].print(command, out);
		return true;
	}
	return false;
}
