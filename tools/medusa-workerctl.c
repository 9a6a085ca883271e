/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-workerctl: asks a medusa-worker that runs, and tells it what to do, over its control socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/options.h"
#include "tools/worker_bill.h"
#include "tools/worker_print.h"
#include "tools/worker_time.h"
#include "tools/worker_trace.h"
#include "worker/control/control_ask.h"

#define INTERVAL_S "2"

static const char *socket_path, *deadline, *interval, *rounds, *since, *folder, *gpu;
static bool json, csv, exits, all, by_node;

static const struct md_option options[] = {
    {.name = "socket",
     .argument = "PATH",
     .value = &socket_path,
     .help = "The daemon's control socket ($XDG_RUNTIME_DIR/medusa/worker.sock)."},
    {.name = "json", .flag = &json, .help = "The answer, or refusal, as JSON."},
    {.name = "all", .flag = &all, .help = "unload: all models."},
    {.name = "deadline",
     .argument = "SECONDS",
     .value = &deadline,
     .help = "drain: until requests that wait are refused; default: 30. cluster bill: for which a node may say "
	     "nothing; default: 10."},
    {.name = "gpu",
     .argument = "N",
     .value = &gpu,
     .help = "drain and resume: this GPU alone, by its number in status."},
    {.name = "exit", .flag = &exits, .help = "drain: the daemon ends when no request is left."},
    {.name = "interval",
     .argument = "SECONDS",
     .value = &interval,
     .help = "top: from one look to the next; default: " INTERVAL_S "."},
    {.name = "since",
     .argument = "TIME",
     .value = &since,
     .help =
	 "bill, cluster bill, trace: 30m, 24h or 7d ago, 2026-11-01 or 2026-11-01T12:30 (UTC), or seconds since 1970."},
    {.name = "to",
     .argument = "DIR",
     .value = &folder,
     .help = "trace: where to write node.yaml, functions.yaml and trace.csv."},
    {.name = "csv", .flag = &csv, .help = "bill, cluster bill: a table of comma-separated values."},
    {.name = "by-node", .flag = &by_node, .help = "cluster bill: of each node."},
    {.name = "count", .argument = "N", .value = &rounds, .help = "top: end after so many looks."},
};

static const struct md_command command = {
    .name = "medusa-workerctl",
    .usage =
	"status | models | load MODEL | unload MODEL | unload --all | drain | resume | reload | top | bill | trace | "
	"cluster WORD [MODEL] [NODE] [OPTION...]",
    .summary = "Asks a medusa-worker that runs, and tells it what to do.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .words = "status models load unload drain resume reload top bill trace cluster",
    .exit_notes = "1 means that the daemon has refused or could not do it, 3 that there is no such daemon or model, or "
		  "that the configuration is bad; 7, that a bill was printed which lacks a node.\n",
};

/* ---- which argument and option belongs to which verb ---- */

static const struct verb {
	const char *name;
	bool model;          /* takes the name of one */
	const char *options; /* of its own */
} verbs[] = {
    {"status", false, ""},
    {"models", false, ""},
    {"load", true, ""},
    {"unload", true, "all"},
    {"drain", false, "deadline exit gpu"},
    {"resume", false, "gpu"},
    {"reload", false, ""},
    {"top", false, "interval count"},
    {"bill", false, "since csv"},
    {"trace", false, "since to"},
    {"cluster", false, "since csv by-node deadline"},
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static bool is_given(const struct md_option *option)
{
	return option->flag ? *option->flag : *option->value != NULL;
}

/* -1 to go on, else an exit code. */
static int check_options(const struct verb *verb)
{
	for (size_t i = 2; i < sizeof(options) / sizeof(options[0]); i++)
		if (is_given(&options[i]) && !strstr(verb->options, options[i].name))
			return md_options_usage_error(&command, "%s: --%s has no meaning there: leave it out",
						      verb->name, options[i].name);
	return -1;
}

/* True: *value is a number from 0 to most. */
static bool parse_number(const char *text, double most, double *value)
{
	char *end;
	*value = strtod(text, &end);
	return end != text && !*end && *value >= 0 && *value <= most;
}

/* ---- answers ---- */

static int report(const struct md_error *err)
{
	md_options_say(&command, "%s", err->message);
	if (json)
		md_worker_print_json(json_pack("{s:b, s:s, s:s}", "ok", 0, "status", md_status_name(err->status),
					       "message", err->message));
	switch (err->status) {
	case MD_ERR_NOT_FOUND:
	case MD_ERR_INVALID:
	case MD_ERR_CORRUPT: /* of a configuration */
	case MD_ERR_TOO_LARGE:
		return MD_EXIT_INPUT;
	case MD_ERR_IO:
	case MD_ERR_OUTPUT:
		return MD_EXIT_COMMAND;
	default:
		return MD_EXIT_FAILED;
	}
}

static int ask(json_t *question)
{
	struct md_error err = {0};
	json_t *result = NULL;
	const char *verb = json_string_value(json_object_get(question, "verb"));
	const struct verb *known = find_verb(verb);
	if (md_control_ask(socket_path, question, &result, &err) != MD_OK)
		return report(&err);
	if (json)
		md_worker_print_json(json_incref(result));
	else if (!strcmp(known->name, "status"))
		md_worker_print_status(result);
	else if (!strcmp(known->name, "models"))
		md_worker_print_models(result);
	else if (!strcmp(known->name, "reload"))
		md_worker_print_reload(result);
	else if (!strcmp(known->name, "bill"))
		md_worker_print_bill(result, csv);
	else if (!strcmp(known->name, "cluster"))
		md_worker_print_cluster(result);
	json_decref(result);
	return md_options_flush(&command);
}

/* ---- top ---- */

static int look(struct md_error *err)
{
	json_t *status = NULL, *models = NULL;
	if (md_control_ask(socket_path, json_pack("{s:s}", "verb", "status"), &status, err) != MD_OK ||
	    md_control_ask(socket_path, json_pack("{s:s}", "verb", "models"), &models, err) != MD_OK) {
		json_decref(status);
		return report(err);
	}
	if (json) {
		json_object_update(status, models);
		md_worker_print_json(json_incref(status));
	} else {
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout); /* the upper left corner, and nothing below it */
		md_worker_print_status(status);
		putchar('\n');
		md_worker_print_models(models);
	}
	json_decref(status);
	json_decref(models);
	return md_options_flush(&command);
}

static int top(void)
{
	struct md_error err = {0};
	double seconds, left = -1;
	if (!parse_number(interval ? interval : INTERVAL_S, 3600, &seconds) || seconds < 0.1)
		return md_options_usage_error(
		    &command, "--interval: \"%s\" is not a number of seconds from 0.1 to 3600", interval);
	if (rounds && (!parse_number(rounds, 1e9, &left) || left < 1))
		return md_options_usage_error(&command, "--count: \"%s\" is not a number from 1 on", rounds);
	struct timespec wait = {.tv_sec = (time_t)seconds,
				.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	for (;;) {
		int code = look(&err);
		if (code || (rounds && --left < 1))
			return code;
		nanosleep(&wait, NULL);
	}
}

/* ---- questions ---- */

/* Of one GPU, or (without --gpu) of the daemon; NULL: the number is none. */
static json_t *ask_gpu(const char *verb)
{
	double number = 0;
	if (gpu && (!parse_number(gpu, 1023, &number) || number != (double)(int)number))
		return NULL;
	return gpu ? json_pack("{s:s, s:i}", "verb", verb, "gpu", (int)number) : json_pack("{s:s}", "verb", verb);
}

static int refuse_gpu(void)
{
	return md_options_usage_error(&command, "--gpu: \"%s\" is not the number of a GPU", gpu);
}

static int resume(void)
{
	json_t *question = ask_gpu("resume");
	return question ? ask(question) : refuse_gpu();
}

static int drain(void)
{
	double seconds;
	json_t *question = ask_gpu("drain");
	if (!question)
		return refuse_gpu();
	if (gpu && (exits || deadline)) {
		json_decref(question);
		return md_options_usage_error(&command,
					      "--gpu and --%s: choose one: requests of a GPU end by themselves",
					      exits ? "exit" : "deadline");
	}
	json_object_set_new(question, "exit", json_boolean(exits));
	if (deadline && !parse_number(deadline, 86400, &seconds)) {
		json_decref(question);
		return md_options_usage_error(&command, "--deadline: \"%s\" is not a number of seconds from 0 to 86400",
					      deadline);
	}
	if (deadline)
		json_object_set_new(question, "deadline_s", json_real(seconds));
	return ask(question);
}

/* -1 to go on, else an exit code. */
static int parse_since(const char *verb, int64_t *from)
{
	if (!since)
		return md_options_usage_error(&command, "%s: --since TIME is missing", verb);
	if (!md_worker_time_parse(since, time(NULL), from))
		return md_options_usage_error(
		    &command, "--since: \"%s\" is no time such as 24h, 7d, 2026-11-01 or 2026-11-01T12:30", since);
	return -1;
}

static int bill(void)
{
	int64_t from;
	if (json && csv)
		return md_options_usage_error(&command, "--json and --csv: choose one");
	int code = parse_since("bill", &from);
	return code >= 0 ? code : ask(json_pack("{s:s, s:I}", "verb", "bill", "since", (json_int_t)from));
}

static int trace(void)
{
	struct md_error err = {0};
	json_t *answer = NULL;
	int64_t from;
	int code = parse_since("trace", &from);
	if (code >= 0)
		return code;
	if (!folder)
		return md_options_usage_error(&command, "trace: --to DIR is missing");
	if (json)
		return md_options_usage_error(&command, "trace: --json has no meaning there: leave it out");
	if (md_control_ask(socket_path, json_pack("{s:s}", "verb", "trace"), &answer, &err) == MD_OK)
		md_worker_trace_write(answer, from, folder, &err);
	json_decref(answer);
	return err.status != MD_OK ? report(&err) : md_options_flush(&command);
}

/* The options of the verb `cluster` are those of its bill. */
static int refuse_options(const char *word)
{
	const char *given = since ? "since" : csv ? "csv" : by_node ? "by-node" : deadline ? "deadline" : NULL;
	return given ? md_options_usage_error(&command, "cluster %s: --%s has no meaning there: leave it out", word,
					      given)
		     : -1;
}

static int bill_cluster(void)
{
	struct md_worker_bill wanted = {
	    .command = &command, .socket = socket_path, .by_node = by_node, .json = json, .csv = csv};
	struct md_error err = {0};
	double seconds = 10;
	bool complete = false;
	if (json && csv)
		return md_options_usage_error(&command, "--json and --csv: choose one");
	if (deadline && (!parse_number(deadline, 3600, &seconds) || seconds < 1))
		return md_options_usage_error(&command, "--deadline: \"%s\" is not a number of seconds from 1 to 3600",
					      deadline);
	int code = parse_since("cluster bill", &wanted.since);
	if (code >= 0)
		return code;
	wanted.deadline_s = (unsigned)seconds;
	if (md_worker_bill_cluster(&wanted, &complete, &err) != MD_OK)
		return report(&err);
	code = md_options_flush(&command);
	return code ? code : complete ? MD_EXIT_OK : MD_EXIT_PARTIAL;
}

/* cluster WORD [MODEL] [NODE] */
static int ask_cluster(const struct md_arguments *arguments)
{
	static const struct {
		const char *name;
		const char *arguments[2]; /* as the question names them */
		const char *help;
	} words[] = {{"status", {NULL}, "there are no arguments"},
		     {"nodes", {NULL}, "there are no arguments"},
		     {"models", {NULL}, "there are no arguments"},
		     {"tenants", {NULL}, "there are no arguments"},
		     {"drain", {"node"}, "give the name of one node"},
		     {"cordon", {"node"}, "give the name of one node"},
		     {"uncordon", {"node"}, "give the name of one node"},
		     {"move", {"model", "node"}, "give a model and the name of a node"},
		     {"release", {"model"}, "give one model"},
		     {"bill", {NULL}, "there are no arguments"},
		     {"forget", {"node"}, "give the name of one node that is gone, or the ID of a ledger"}};
	const char *word = arguments->file_count > 1 ? arguments->files[1] : "";
	size_t at = 0, wanted = 0;
	while (at < sizeof(words) / sizeof(words[0]) && strcmp(words[at].name, word) != 0)
		at++;
	if (at == sizeof(words) / sizeof(words[0]))
		return md_options_usage_error(&command,
					      "cluster: \"%s\" is not status, nodes, models, tenants, drain, cordon, "
					      "uncordon, move, release, bill or "
					      "forget",
					      word);
	while (wanted < 2 && words[at].arguments[wanted])
		wanted++;
	if (arguments->file_count != 2 + wanted)
		return md_options_usage_error(&command, "cluster %s: %s", word, words[at].help);
	if (!strcmp(word, "bill"))
		return bill_cluster();
	int code = refuse_options(word);
	if (code >= 0)
		return code;
	json_t *question = json_pack("{s:s, s:s}", "verb", "cluster", "do", word);
	for (size_t i = 0; i < wanted; i++) {
		json_t *name = json_string(arguments->files[2 + i]);
		if (!name) {
			json_decref(question);
			return md_options_usage_error(&command, "cluster %s: the name of a %s is UTF-8", word,
						      words[at].arguments[i]);
		}
		json_object_set_new(question, words[at].arguments[i], name);
	}
	return ask(question);
}

static int ask_about(const struct verb *verb, const char *model)
{
	json_t *question = json_pack("{s:s}", "verb", verb->name);
	json_t *name = model ? json_string(model) : NULL;
	if (model && !name) {
		json_decref(question);
		return md_options_usage_error(&command, "%s: the name of a model is UTF-8", verb->name);
	}
	if (name)
		json_object_set_new(question, "model", name);
	return ask(question);
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	int code = md_options_parse(&command, argc, argv, &arguments);
	if (code >= 0)
		return code;
	const char *name = arguments.file_count ? arguments.files[0] : "";
	const struct verb *verb = find_verb(name);
	if (!verb || arguments.command)
		return md_options_usage_error(
		    &command,
		    "\"%s\" is not status, models, load, unload, drain, resume, reload, top, bill, trace "
		    "or cluster",
		    name);
	code = check_options(verb);
	if (code >= 0)
		return code;
	if (!strcmp(verb->name, "cluster"))
		return ask_cluster(&arguments);
	if (arguments.file_count != (verb->model && !all ? 2u : 1u))
		return md_options_usage_error(&command, "%s: %s", verb->name,
					      verb->model ? "give the name of one model" : "there are no arguments");
	if (!strcmp(verb->name, "top"))
		return top();
	if (!strcmp(verb->name, "bill"))
		return bill();
	if (!strcmp(verb->name, "trace"))
		return trace();
	if (!strcmp(verb->name, "resume"))
		return resume();
	return !strcmp(verb->name, "drain") ? drain()
					    : ask_about(verb, arguments.file_count > 1 ? arguments.files[1] : NULL);
}
