/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-swap: starts an engine whose device memory can be taken away and given back, and does both. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "tools/engine_device.h"
#include "tools/options.h"
#include "tools/run.h"
#include "tools/stop.h"
#include "tools/swap_ask.h"
#include "tools/swap_carrier.h"
#include "tools/swap_driver.h"
#include "tools/swap_process.h"
#include "tools/swap_serve.h"

#define DEADLINE_S "10"

static const char *name, *pool_size, *pool_fd, *spill, *spill_size, *spill_fd, *artifact, *device, *method, *gpu,
    *deadline;
static bool verify, overlap, neighbours, peers, share_constant, stays_out, full, freeze, unshared, json;

static const struct md_option options[] = {
    {.name = "name", .argument = "NAME", .value = &name, .help = "run: what the engine is called; default: CMD-PID."},
    {.name = "pool-bytes",
     .argument = "BYTES",
     .value = &pool_size,
     .help = "run: host memory for what goes out, such as 64G; default: half of what is available."},
    {.name = "pool-fd",
     .argument = "N",
     .value = &pool_fd,
     .help = "run: use the pool that this descriptor has, which several engines share."},
    {.name = "spill",
     .argument = "DIR",
     .value = &spill,
     .help = "run: a file there takes what the pool has no room for."},
    {.name = "spill-bytes",
     .argument = "BYTES",
     .value = &spill_size,
     .help = "run: the most that the file takes; default: half of what is free in DIR."},
    {.name = "spill-fd",
     .argument = "N",
     .value = &spill_fd,
     .help = "run: with --pool-fd, the descriptor of that pool's spill file."},
    {.name = "artifact",
     .argument = "X.medusa",
     .value = &artifact,
     .help = "run: restore CUDA graphs from it, as medusa-restore does."},
    {.name = "deadline",
     .argument = "SECONDS",
     .value = &deadline,
     .help = "out: how long the engine's work on the GPU may take to end; default: " DEADLINE_S "."},
    {.name = "verify", .flag = &verify, .help = "in: hash the memory that has come back, and compare."},
    {.name = "overlap", .flag = &overlap, .help = "in: let the engine run while its memory fills."},
    {.name = "gpu-neighbours",
     .flag = &neighbours,
     .help = "in: over links of other GPUs, too; run: have that prepared."},
    {.name = "gpu-peers",
     .flag = &peers,
     .help = "in: from engines on other GPUs that have the same blocks; run: lend to such engines."},
    {.name = "share-constant",
     .flag = &share_constant,
     .help = "run: constant memory that other engines hold as well is one, which medusa-backbone has."},
    {.name = "stays-out",
     .flag = &stays_out,
     .help = "run: if it is killed or told to end while the memory is out, that does not come back by itself."},
    {.name = "method",
     .argument = "checkpoint",
     .value = &method,
     .help = "out, in, status: by the CUDA driver alone, for processes that run has not started."},
    {.name = "full", .flag = &full, .help = "out: the CUDA driver takes what is left, such as contexts."},
    {.name = "gpu",
     .argument = "GPU",
     .value = &gpu,
     .help = "in: after out --full, come back on this GPU; after out --method checkpoint, OLD:NEW."},
    {.name = "freeze", .flag = &freeze, .help = "out, checkpoint: freeze the processes until they are in."},
    {.name = "unshared",
     .flag = &unshared,
     .help = "out, checkpoint: several processes may go, since they share no device memory."},
    {.name = "json", .flag = &json, .help = "out, in, release, status, list: the answer, or refusal, as JSON."},
    MD_DEVICE_OPTION(device),
};

static const struct md_command command = {
    .name = "medusa-swap",
    .usage = "run [OPTION...] -- CMD [ARG...] | out NAME | in NAME | status NAME | list | release NAME",
    .summary = "Takes an engine's device memory away, and gives it back at the same addresses.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .words = "run out in status list release",
    .exit_notes = "run: once CMD has been started, the exit code is its own.\n"
		  "out, in, release: 0 also if the memory is there already; 1 means refused, and nothing has changed; "
		  "3 means that "
		  "there is no such engine to ask; 6 (out): refused, because the pool has too little room, or its "
		  "spill file cannot be written.\n",
};

/* ---- which option belongs to which verb ---- */

static const struct {
	const char *option;
	const char *engine;  /* verbs of engines that medusa-swap run has started */
	const char *process; /* verbs of other processes */
} uses[] = {
    {"name", "run", ""},
    {"pool-bytes", "run", ""},
    {"pool-fd", "run", ""},
    {"spill", "run", ""},
    {"spill-bytes", "run", ""},
    {"spill-fd", "run", ""},
    {"artifact", "run", ""},
    {"deadline", "out", "out"},
    {"verify", "in", ""},
    {"overlap", "in", ""},
    {"gpu-neighbours", "run in", ""},
    {"gpu-peers", "run in", ""},
    {"share-constant", "run", ""},
    {"stays-out", "run", ""},
    {"method", "", "out in status"},
    {"full", "out", ""},
    {"gpu", "in", "in"},
    {"freeze", "", "out"},
    {"unshared", "", "out"},
    {"json", "out in release status list", "out in status"},
    {"device", "run", "out in status"},
};

static bool has_word(const char *words, const char *word)
{
	size_t size = strlen(word);
	for (const char *at = words; (at = strstr(at, word)) != NULL; at += size)
		if ((at == words || at[-1] == ' ') && (at[size] == ' ' || !at[size]))
			return true;
	return false;
}

static bool is_given(const char *option)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (!strcmp(options[i].name, option))
			return options[i].flag ? *options[i].flag : *options[i].value != NULL;
	return false;
}

/* -1 to go on, else an exit code. */
static int check_options(const char *verb, bool process)
{
	for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++)
		if (is_given(uses[i].option) && !has_word(process ? uses[i].process : uses[i].engine, verb))
			return md_options_usage_error(
			    &command, "%s%s: --%s has no meaning there: leave it out", verb,
			    process ? " of a process that medusa-swap run has not started" : "", uses[i].option);
	return -1;
}

/* ---- run ---- */

/* A number with K, M, G or T, of 1024 each; 0: none. */
static uint64_t parse_bytes(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (errno || end == text || *text == '-' || (unit ? end[1] : *end) || value > UINT64_MAX >> shift)
		return 0;
	return value << shift;
}

static uint64_t half_of_free(void)
{
	uint64_t kilobytes = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	char line[256];
	while (file && fgets(line, sizeof(line), file) && sscanf(line, "MemAvailable: %" SCNu64 " kB", &kilobytes) != 1)
		;
	if (file)
		fclose(file);
	return kilobytes ? kilobytes * 512 : 1ull << 30;
}

/* Processes that CMD has left behind, and that use a GPU, keep the pool. */
static enum md_run_left look_for_engine(void *user, pid_t *pid)
{
	return md_swap_serve_has_engine(user, pid) ? MD_RUN_AT_WORK : MD_RUN_OVER;
}

static int run_engine(char *const argv[], struct md_swap_server *server, const char *path)
{
	char control[PATH_MAX + 32], restored[PATH_MAX + 32], absolute[PATH_MAX] = "";
	const char *const env[] = {control, restored};
	struct md_error error = {0};
	struct md_run run = {.preload = "libmedusa-swap.so",
			     .env = env,
			     .env_count = artifact ? 2 : 1,
			     .argv = argv,
			     .left = look_for_engine,
			     .user = server};
	int code = 0;
	if (artifact && (!realpath(artifact, absolute) || access(absolute, R_OK))) {
		md_options_say(&command, "%s: %s", artifact, strerror(errno));
		return MD_EXIT_INPUT;
	}
	snprintf(control, sizeof(control), "MEDUSA_SWAP_CONTROL=%s", path);
	snprintf(restored, sizeof(restored), "MEDUSA_ARTIFACT=%s", absolute);
	if (md_run_child(&run, &code, &error) == MD_OK)
		return code;
	md_options_say(&command, "%s", error.message);
	return MD_EXIT_COMMAND;
}

static const char *name_of(const char *program)
{
	static char made[64];
	const char *last = strrchr(program, '/');
	snprintf(made, sizeof(made), "%.32s-%d", last ? last + 1 : program, (int)getpid());
	for (char *at = made; *at; at++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *at))
			*at = '_';
	made[0] = made[0] == '.' || made[0] == '-' ? '_' : made[0];
	md_options_say(&command, "the engine is called %s", made);
	return made;
}

/* -1 to go on, else an exit code. */
static int choose_pool(struct md_swap_serve_pool *pool)
{
	if (pool_size && pool_fd)
		return md_options_usage_error(&command, "--pool-bytes and --pool-fd: choose one");
	if (pool_fd && (spill || spill_size))
		return md_options_usage_error(
		    &command, "--spill and --spill-bytes are for a pool of its own: with --pool-fd, give "
			      "--spill-fd");
	if (spill_fd && !pool_fd)
		return md_options_usage_error(&command, "--spill-fd: only with --pool-fd");
	if (spill_size && !spill)
		return md_options_usage_error(&command, "--spill-bytes: only with --spill");
	pool->bytes = pool_size ? parse_bytes(pool_size) : half_of_free();
	if (!pool->bytes)
		return md_options_usage_error(&command, "--pool-bytes: \"%s\" is not a number of bytes, such as 64G",
					      pool_size);
	pool->spill = spill;
	pool->spill_bytes = spill_size ? parse_bytes(spill_size) : 0;
	if (spill_size && !pool->spill_bytes)
		return md_options_usage_error(&command, "--spill-bytes: \"%s\" is not a number of bytes, such as 500G",
					      spill_size);
	/* the engine does not inherit them: its processes get both when they ask for them */
	int result = md_options_take_descriptor(&command, "--pool-fd", pool_fd, &pool->fd);
	return result >= 0 ? result : md_options_take_descriptor(&command, "--spill-fd", spill_fd, &pool->spill_fd);
}

static int report_start(struct md_error *err)
{
	bool bad = err->status == MD_ERR_CORRUPT || err->status == MD_ERR_VERSION || err->status == MD_ERR_INVALID;
	if (pool_fd && bad)
		md_error_prefix(err, "--pool-fd %s", pool_fd);
	return md_options_report(&command, err);
}

static int start_engine(char *const argv[])
{
	struct md_swap_serve_pool pool = {.fd = -1,
					  .spill_fd = -1,
					  .populated = pool_size != NULL,
					  .neighbours = neighbours,
					  .peers = peers,
					  .share_constant = share_constant,
					  .stays_out = stays_out};
	struct md_swap_server *server = NULL;
	struct md_error err = {0};
	const char *path = NULL;
	int result;
	result = check_options("run", false);
	if (result >= 0)
		return result;
	if (!argv || !argv[0])
		return md_options_usage_error(&command, "put the command that starts the engine after --");
	result = choose_pool(&pool);
	if (result < 0)
		result = md_device_choose(&command, device);
	if (result >= 0)
		return result;
	bool mine = md_stop_watch();
	if (md_swap_serve_start(name ? name : name_of(argv[0]), &pool, &server, &path, &err) != MD_OK)
		return report_start(&err);
	result = run_engine(argv, server, path);
	md_swap_serve_stop(server);
	if (mine)
		md_stop_unwatch();
	return result;
}

/* ---- the others ---- */

static void print_refusal(const struct md_error *err)
{
	struct md_json out;
	md_json_init(&out, stdout);
	md_json_object(&out, NULL);
	md_json_bool(&out, "ok", false);
	md_json_text(&out, "status", md_status_name(err->status));
	md_json_text(&out, "message", err->message);
	md_json_end(&out);
}

static int report(const struct md_error *err)
{
	md_options_say(&command, "%s", err->message);
	if (json)
		print_refusal(err);
	switch (err->status) {
	case MD_ERR_NO_MEMORY:
		return MD_EXIT_ROOM;
	case MD_ERR_NOT_FOUND:
	case MD_ERR_INVALID:
		return MD_EXIT_INPUT;
	case MD_ERR_IO:
	case MD_ERR_TRUNCATED:
	case MD_ERR_OUTPUT:
		return MD_EXIT_COMMAND;
	default:
		return MD_EXIT_FAILED;
	}
}

static int usage_of_deadline(void)
{
	return md_options_usage_error(&command, "--deadline: \"%s\" is not a number of seconds from 0 to 3600",
				      deadline);
}

/* Seconds as milliseconds; false: the text is no number of seconds. */
static bool parse_deadline(uint64_t *ms)
{
	char *end;
	const char *text = deadline ? deadline : DEADLINE_S;
	double seconds = strtod(text, &end);
	bool good = !*end && end != text && seconds >= 0 && seconds <= 3600;
	*ms = good ? (uint64_t)(seconds * 1000) : 0;
	return good;
}

static int ask_process(const char *verb, const char *whom)
{
	struct md_swap_process_question question = {
	    .verb = verb, .whom = whom, .gpu = gpu, .freeze = freeze, .unshared = unshared, .json = json};
	struct md_error err = {0};
	if (!strcmp(verb, "release"))
		return md_options_usage_error(&command, "release: only for engines of medusa-swap run");
	int result = check_options(verb, true);
	if (result < 0)
		result = md_device_choose_driver(&command, device);
	if (result >= 0)
		return result;
	if (!parse_deadline(&question.deadline_ms))
		return usage_of_deadline();
	if (md_swap_process_ask(&question, &err) != MD_OK) {
		md_error_prefix(&err, "%s", whom);
		return report(&err);
	}
	return md_options_flush(&command);
}

static int ask(const char *verb, const char *whom)
{
	struct md_swap_question question = {.verb = verb,
					    .verify = verify,
					    .overlap = overlap,
					    .neighbours = neighbours,
					    .peers = peers,
					    .full = full,
					    .gpu = gpu};
	struct md_error err = {0};
	if (method && strcmp(method, "checkpoint") != 0)
		return md_options_usage_error(&command, "--method: \"%s\" is not checkpoint", method);
	if (method || md_swap_process_is_id(whom))
		return ask_process(verb, whom);
	if (freeze || unshared)
		return md_options_usage_error(&command, "--freeze and --unshared: only with --method checkpoint");
	int result = check_options(verb, false);
	if (result >= 0)
		return result;
	if (!parse_deadline(&question.deadline_ms))
		return usage_of_deadline();
	if (verify && overlap)
		return md_options_usage_error(&command, "--verify and --overlap: choose one");
	if (overlap && (neighbours || peers))
		return md_options_usage_error(&command, "--gpu-%s and --overlap: choose one",
					      peers ? "peers" : "neighbours");
	if (md_swap_ask(whom, &question, json, &err) != MD_OK)
		return report(&err);
	return md_options_flush(&command);
}

static int list(void)
{
	struct md_error err = {0};
	int result = check_options("list", false);
	if (result >= 0)
		return result;
	if (md_swap_ask_all(json, &err) != MD_OK)
		return report(&err);
	return md_options_flush(&command);
}

static bool is_verb(const char *verb)
{
	return !strcmp(verb, "out") || !strcmp(verb, "in") || !strcmp(verb, "status") || !strcmp(verb, "release");
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	if (argc == 2 && !strcmp(argv[1], MD_SWAP_DRIVER_WORD))
		return md_swap_driver_main();
	if (argc == 2 && !strcmp(argv[1], MD_SWAP_CARRIER_WORD))
		return md_swap_carrier_main();
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	const char *verb = arguments.file_count ? arguments.files[0] : "";
	if (!strcmp(verb, "run") && arguments.file_count == 1)
		return start_engine(arguments.command);
	if (!strcmp(verb, "run"))
		return md_options_usage_error(&command, "run: \"%s\" is before --: put the engine's command after --",
					      arguments.files[1]);
	if (arguments.command)
		return md_options_usage_error(&command, "%s: only run takes a command after --", verb);
	if (!strcmp(verb, "list") && arguments.file_count == 1)
		return list();
	if (is_verb(verb) && arguments.file_count == 2)
		return ask(verb, arguments.files[1]);
	if (is_verb(verb))
		return md_options_usage_error(&command, "%s: give the name of one engine", verb);
	return md_options_usage_error(&command, "\"%s\" is not run, out, in, status, list or release", verb);
}
