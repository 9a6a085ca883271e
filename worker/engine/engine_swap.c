/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's device memory goes and comes: medusa-swap is run for it, and its end is a step of the engine. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/engine/engine_steps.h"
#include "worker/engine/process.h"
#include "worker/engine/swap_order.h"

#define ADOPT_ASKS 60u /* medusa-swap is asked where the memory is: a swap that was under way may take its time */
#define ADOPT_ASK_MS 500u
#define SWAP_EXIT_NONE 3 /* of medusa-swap: there is no such engine or process */
#define SWAP_EXIT_ROOM 6 /* of medusa-swap out: the pool has too little room */

static void on_asked(struct md_engine *engine, bool done);

/* medusa-swap has found no process that a checkpoint could be of: an engine that is still being started. */
static bool uses_no_gpu(const struct md_engine *engine, int status)
{
	return engine->settings->swapping == MD_ENGINE_SWAP_CHECKPOINT && WIFEXITED(status) &&
	       WEXITSTATUS(status) == SWAP_EXIT_NONE;
}

/* Why medusa-swap has failed; it has ended. */
static void describe_failure(struct md_engine *engine, const char *verb, int status, char *why, size_t size)
{
	const struct md_engine_settings *settings = engine->settings;
	int answer = md_steal_fd(&engine->answer), output = engine->events->output(engine->context);
	md_swap_order_failed(verb, settings->name, status, answer, output, why, size);
	if (engine->late)
		snprintf(why, size, "medusa-swap %s took longer than %" PRIu64 " ms", verb, settings->checkpoint_ms);
}

/* medusa-swap out was refused, because the pool is full; nothing has changed. */
static bool has_no_room(const struct md_engine *engine, int status)
{
	return engine->settings->swapping == MD_ENGINE_SWAP_RUN && WIFEXITED(status) &&
	       WEXITSTATUS(status) == SWAP_EXIT_ROOM;
}

static void on_swap_ended(void *context, int status)
{
	struct md_engine *engine = context;
	bool leaving = engine->state == MD_ENGINE_LEAVING, done = WIFEXITED(status) && !WEXITSTATUS(status);
	char why[640];
	engine->helper = NULL;
	describe_failure(engine, leaving ? "out" : "in", status, why, sizeof(why));
	engine->late = false;
	if (!leaving && engine->state != MD_ENGINE_RETURNING)
		return;
	event_del(engine->deadline);
	if (engine->adopting) {
		on_asked(engine, done || (!leaving && uses_no_gpu(engine, status)));
	} else if (done) {
		md_engine_settle(engine, leaving ? MD_ENGINE_SWAPPED : MD_ENGINE_READY);
	} else if (leaving && has_no_room(engine, status)) {
		engine->events->crowded(engine->context);
		md_engine_stop(engine); /* which is what was wanted: its device memory goes */
	} else if (!leaving && engine->process) {
		md_engine_give_up(engine, why); /* a process that has lost its device would fail each time */
	} else {
		md_engine_enter(engine, MD_ENGINE_READY);
		engine->events->failed(engine->context, why);
	}
}

bool md_engine_swap(struct md_engine *engine, const char *verb)
{
	const struct md_engine_settings *settings = engine->settings;
	struct md_swap_order order = {.command = settings->swap_command,
				      .name = settings->swap_name,
				      .neighbours = settings->swap_neighbours,
				      .deadline_s = settings->swap_ms / 1000 ? settings->swap_ms / 1000 : 1};
	char *words[MD_SWAP_ORDER_WORDS];
	struct md_error err;
	bool checkpoint = settings->swapping == MD_ENGINE_SWAP_CHECKPOINT;
	if (engine->helper || !engine->process)
		return false;
	order.pid = md_engine_process_id(engine->process);
	md_swap_order_words(&order, verb, words);
	engine->answer = checkpoint ? md_swap_order_answer() : -1;
	struct md_engine_command command = {.argv = words,
					    .output = engine->answer >= 0 ? engine->answer
									  : engine->events->output(engine->context),
					    .helper = true};
	if (md_engine_process_start(engine->processes, &command, on_swap_ended, engine, &engine->helper, &err) == MD_OK)
		return true;
	if (engine->answer >= 0)
		close(engine->answer);
	engine->answer = -1;
	return false;
}

void md_engine_be_on_way(struct md_engine *engine, enum md_engine_state state)
{
	if (engine->state != state)
		md_engine_enter(engine, state);
	if (engine->settings->swapping == MD_ENGINE_SWAP_CHECKPOINT)
		md_engine_set_deadline(engine, engine->settings->checkpoint_ms);
}

/* ---- of an engine that an earlier daemon has left ---- */

void md_engine_ask_again(struct md_engine *engine)
{
	if (md_engine_swap(engine, engine->state == MD_ENGINE_LEAVING ? "out" : "in"))
		md_engine_be_on_way(engine, engine->state);
	else
		on_asked(engine, false);
}

static void on_asked(struct md_engine *engine, bool done)
{
	struct timeval wait = {.tv_usec = ADOPT_ASK_MS * 1000};
	if (!done && ++engine->asked < ADOPT_ASKS) {
		event_add(engine->look, &wait);
		return;
	}
	engine->adopting = false;
	if (!done)
		md_engine_give_up(engine,
				  "was left by an earlier daemon, and medusa-swap cannot say where its memory is");
	else if (engine->state == MD_ENGINE_LEAVING)
		md_engine_settle(engine, MD_ENGINE_SWAPPED);
	else
		md_engine_await_health(engine);
}
