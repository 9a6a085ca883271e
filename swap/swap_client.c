/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of medusa/swap.h, in each library with those of medusa.h: commands for medusa-swap run. */
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/arguments.h"
#include "base/uncancelled.h"
#include "medusa/swap.h"
#include "swap/ask.h"
#include "swap/swap_place.h"

#define NS_PER_MS 1000000u

/* ---- structs of callers ---- */

static enum md_status check_size(const char *function, const char *what, size_t size, struct md_error *err)
{
	if (size >= sizeof(size))
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "%s: the size of %s is %zu; set it by sizeof", function, what, size);
}

/* Fields that the caller's release does not have are left out, and those that this release does not have are 0. */
static void hand_over(void *out, size_t size, void *made, size_t made_size)
{
	size_t common = size < made_size ? size : made_size;
	memcpy(made, &common, sizeof(common)); /* each begins with its size */
	memcpy(out, made, common);
	memset((char *)out + common, 0, size - common);
}

static bool is_zero(const unsigned char *bytes, size_t from, size_t to)
{
	for (size_t at = from; at < to; at++)
		if (bytes[at])
			return false;
	return true;
}

/* What only the other function does, or only for another process, must not be lost silently. */
static enum md_status check_full(const char *function, bool out, bool own, const struct medusa_swap_options *options,
				 struct md_error *err)
{
	if (options->full && !out)
		return md_error_set(err, MD_ERR_INVALID, "%s: options->full is set, which is for medusa_swap_out",
				    function);
	if (options->gpu && out)
		return md_error_set(err, MD_ERR_INVALID, "%s: options->gpu is set, which is for medusa_swap_in",
				    function);
	if (options->gpu_neighbours && out)
		return md_error_set(err, MD_ERR_INVALID,
				    "%s: options->gpu_neighbours is set, which is for medusa_swap_in", function);
	if (options->full && own)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%s: options->full is set, and name is NULL: a process cannot wait for a checkpoint "
		    "of itself; let another process ask, by the engine's name",
		    function);
	if (options->gpu && own)
		return md_error_set(err, MD_ERR_INVALID,
				    "%s: options->gpu is set, and name is NULL: an engine changes its GPU as a whole; "
				    "let another process ask, by the engine's name",
				    function);
	return MD_OK;
}

static enum md_status take_options(const char *function, const struct medusa_swap_options *given,
				   struct md_swap_question *question, struct md_error *err)
{
	struct medusa_swap_options options = {.deadline_ns = MD_SWAP_DEADLINE_S * 1000000000ull};
	if (given) {
		MD_FORWARD(check_size(function, "options", given->size, err));
		size_t known = given->size < sizeof(options) ? given->size : sizeof(options);
		if (!is_zero((const unsigned char *)given, known, given->size))
			return md_error_set(err, MD_ERR_INVALID,
					    "%s: options has fields that this library does not know: set them to 0, or "
					    "use a later release",
					    function);
		options = (struct medusa_swap_options){0};
		memcpy(&options, given, known);
	}
	if (options.deadline_ns > (uint64_t)MD_SWAP_DEADLINE_MOST_MS * NS_PER_MS)
		return md_error_set(err, MD_ERR_INVALID, "%s: options->deadline_ns is %llu; at most %llu are allowed",
				    function, (unsigned long long)options.deadline_ns,
				    (unsigned long long)MD_SWAP_DEADLINE_MOST_MS * NS_PER_MS);
	MD_FORWARD(check_full(function, !strcmp(question->verb, "out"), question->process != 0, &options, err));
	if (options.verify && options.overlap)
		return md_error_set(err, MD_ERR_INVALID, "%s: options->verify and overlap are set: choose one",
				    function);
	question->deadline_ms = (options.deadline_ns + NS_PER_MS - 1) / NS_PER_MS;
	if (options.gpu_neighbours && options.overlap)
		return md_error_set(err, MD_ERR_INVALID, "%s: options->gpu_neighbours and overlap are set: choose one",
				    function);
	question->verify = options.verify != 0;
	question->neighbours = options.gpu_neighbours != 0;
	question->overlap = options.overlap != 0;
	question->full = options.full != 0;
	question->gpu = options.gpu;
	return MD_OK;
}

/* ---- answers ---- */

static void read_report(const struct md_swap_message *answer, struct medusa_swap_report *report)
{
	*report = (struct medusa_swap_report){
	    .bytes = md_swap_message_number(answer, "bytes"),
	    .copied = md_swap_message_number(answer, "copied"),
	    .hashed_equal = md_swap_message_number(answer, "hashed_equal"),
	    .zero = md_swap_message_number(answer, "zero"),
	    .discarded = md_swap_message_number(answer, "discarded"),
	    .stays = md_swap_message_number(answer, "resident"),
	    .coming = md_swap_message_number(answer, "coming_at_open"),
	    .quiesce_ns = md_swap_message_number(answer, "ns_quiesce"),
	    .hash_ns = md_swap_message_number(answer, "ns_hash"),
	    .lock_ns = md_swap_message_number(answer, "ns_lock"),
	    .copy_ns = md_swap_message_number(answer, "ns_copy"),
	    .unmap_ns = md_swap_message_number(answer, "ns_unmap"),
	    .map_ns = md_swap_message_number(answer, "ns_map"),
	    .total_ns = md_swap_message_number(answer, "ns_total"),
	    .driver_lock_ns = md_swap_message_number(answer, "ns_driver_lock"),
	    .checkpoint_ns = md_swap_message_number(answer, "ns_checkpoint"),
	    .restore_ns = md_swap_message_number(answer, "ns_restore"),
	    .driver_unlock_ns = md_swap_message_number(answer, "ns_unlock"),
	    .neighbour_bytes = md_swap_message_number(answer, "copied_by_neighbours"),
	    .spilled = md_swap_message_number(answer, "spilled"),
	    .spill_ns = md_swap_message_number(answer, "ns_spill"),
	};
}

static void read_engine(const struct md_swap_message *answer, struct medusa_swap_engine *engine)
{
	const char *state = md_swap_message_text(answer, "state");
	*engine = (struct medusa_swap_engine){
	    .size = sizeof(*engine),
	    .pid = md_swap_message_number(answer, "pid"),
	    .processes = md_swap_message_number(answer, "engines"),
	    .processes_out = md_swap_message_number(answer, "engines_out"),
	    .moving = !strcmp(state, "going out") || !strcmp(state, "coming in"),
	    .released = !strcmp(state, "released"),
	    .swappable = md_swap_message_number(answer, "swappable"),
	    .out = md_swap_message_number(answer, "out"),
	    .stays = md_swap_message_number(answer, "stays"),
	    .coming = md_swap_message_number(answer, "coming"),
	    .pool_bytes = md_swap_message_number(answer, "pool_bytes"),
	    .pool_held = md_swap_message_number(answer, "pool_held"),
	    .pool_cached = md_swap_message_number(answer, "pool_cached"),
	    .outs = md_swap_message_number(answer, "outs"),
	    .ins = md_swap_message_number(answer, "ins"),
	    .processes_silent = md_swap_message_number(answer, "engines_silent"),
	    .full = md_swap_message_number(answer, "full") != 0,
	    .in_file = md_swap_message_number(answer, "in_file"),
	    .spill_bytes = md_swap_message_number(answer, "spill_bytes"),
	    .spill_held = md_swap_message_number(answer, "spill_held"),
	};
	const char *name = md_swap_message_text(answer, "name");
	size_t length = strnlen(name, sizeof(engine->name) - 1);
	memcpy(engine->name, name, length);
}

/* An engine that has ended before it answered is no longer there. */
static int fail(struct md_error *err)
{
	if (err->status == MD_ERR_TRUNCATED)
		err->status = MD_ERR_NOT_FOUND;
	return md_api_fail(err);
}

/* ---- asking ---- */

static enum md_status ask(const char *name, struct md_swap_question *question, struct md_swap_message *answer,
			  struct md_error *err)
{
	return name ? md_swap_ask_engine(name, question, answer, err) : md_swap_ask_own(question, answer, err);
}

static int swap(const char *function, const char *verb, const char *name, const struct medusa_swap_options *options,
		struct medusa_swap_report *report)
{
	struct md_swap_question question = {.verb = verb, .process = name ? 0 : getpid()};
	struct md_swap_message answer;
	struct medusa_swap_report made;
	struct md_error err = {0};
	enum md_status status = take_options(function, options, &question, &err);
	if (status == MD_OK && report)
		status = check_size(function, "report", report->size, &err);
	if (status == MD_OK)
		status = ask(name, &question, &answer, &err);
	if (status != MD_OK)
		return fail(&err);
	read_report(&answer, &made);
	if (report)
		hand_over(report, report->size, &made, sizeof(made));
	if (!md_swap_message_number(&answer, "already"))
		return md_api_ok();
	md_error_set(&err, MD_OK, "%s: %s", name ? name : "this process", md_swap_message_text(&answer, "message"));
	return md_api_ok_but(err.message);
}

MD_EXPORT int medusa_swap_out(const char *name, const struct medusa_swap_options *options,
			      struct medusa_swap_report *report)
{
	MD_UNCANCELLED;
	return swap("medusa_swap_out", "out", name, options, report);
}

MD_EXPORT int medusa_swap_in(const char *name, const struct medusa_swap_options *options,
			     struct medusa_swap_report *report)
{
	MD_UNCANCELLED;
	return swap("medusa_swap_in", "in", name, options, report);
}

MD_EXPORT int medusa_swap_release(const char *name)
{
	MD_UNCANCELLED;
	struct md_swap_question question = {.verb = "release", .deadline_ms = MD_SWAP_DEADLINE_S * 1000};
	struct md_swap_message answer;
	struct md_error err = {0};
	return ask(name, &question, &answer, &err) == MD_OK ? md_api_ok() : fail(&err);
}

MD_EXPORT int medusa_swap_status(const char *name, struct medusa_swap_engine *out)
{
	MD_UNCANCELLED;
	struct md_swap_question question = {.verb = "status"};
	struct md_swap_message answer;
	struct medusa_swap_engine made;
	struct md_error err = {0};
	if (!out)
		return md_api_refuse(MD_ERR_INVALID, "medusa_swap_status: out is NULL");
	if (check_size("medusa_swap_status", "out", out->size, &err) != MD_OK ||
	    ask(name, &question, &answer, &err) != MD_OK)
		return fail(&err);
	read_engine(&answer, &made);
	hand_over(out, out->size, &made, sizeof(made));
	return md_api_ok();
}

/* False: each() wants no more. */
static bool show(const char *name, int (*each)(const struct medusa_swap_engine *, void *), void *user)
{
	struct md_swap_question question = {.verb = "status"};
	struct md_swap_message answer;
	struct medusa_swap_engine engine;
	struct md_error none = {0};
	if (md_swap_ask_engine(name, &question, &answer, &none) != MD_OK)
		return true;
	read_engine(&answer, &engine);
	return each(&engine, user) == 0;
}

MD_EXPORT int medusa_swap_list(int (*each)(const struct medusa_swap_engine *engine, void *user), void *user)
{
	MD_UNCANCELLED;
	struct md_argument_list names = {0};
	struct md_error err = {0};
	if (!each)
		return md_api_refuse(MD_ERR_INVALID, "medusa_swap_list: each is NULL");
	if (md_swap_place_names(&names, &err) != MD_OK)
		return fail(&err);
	for (uint32_t i = 0; i < names.count && show(names.items[i].text, each, user); i++)
		;
	md_arguments_finish(&names);
	return md_api_ok();
}
