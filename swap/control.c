/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that talks to medusa-swap run: announces the process, obeys commands, and prepares the next swap. */
#define MD_LOG_DOMAIN "swap"

#include "swap/control.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/thread.h"
#include "driver/process_checkpoint.h"
#include "swap/contexts.h"
#include "swap/control_tell.h"
#include "swap/discard.h"
#include "swap/exchange.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/leave.h"
#include "swap/lending.h"
#include "swap/merge.h"
#include "swap/numa.h"
#include "swap/pool_spill.h"
#include "swap/pulse.h"
#include "swap/sharing.h"
#include "swap/wire.h"

#define HELLO_MS 10000
#define BUSY_TICK_MS 5 /* between two steps of preparation */
#define IDLE_TICK_MS 100
#define ARRIVAL_TICK_MS 1
#define ARRIVAL_TELL 32 /* ticks between two messages that say how much is still to come */
#define JOIN_TRIES 5    /* a connection whose first line comes late is closed, as when this process was stopped */
#define RETRY_S 1       /* between two tries to bring the memory back after medusa-swap run has ended */

static const struct md_swap_below below = {
    .driver = &md_swap_real,
    .close_gate = md_swap_gate_close,
    .open_gate = md_swap_gate_open,
    .list = md_swap_memory_list,
    .unmap = md_swap_memory_unmap,
    .map = md_swap_memory_map,
    .discardable = md_swap_discard_covers,
    .note = md_swap_merge_note,
    .merge = md_swap_merge_map,
    .commit = md_swap_merge_commit,
    .lend = md_swap_memory_lend,
    .lend_known = md_swap_memory_lend_known,
    .map_known = md_swap_memory_map_known,
    .context_on = md_swap_context_on,
};

static struct md_swap_control control;
static atomic_bool started;

/* The child has neither the thread nor the pool, and must not keep its parent's connection open. */
static void renew(void)
{
	if (md_descriptor_is_ours(&control.kept))
		close(control.kept.fd);
	control.kept = MD_DESCRIPTOR_NONE;
	md_swap_lending_forget(&control.lending);
	md_swap_leave_renew();
	atomic_store(&started, false);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	control.kept = MD_DESCRIPTOR_NONE;
	md_swap_lending_init(&control.lending, &below, NULL);
	md_child_register(&own);
}

/* ---- what is asked ---- */

/* Not while the process ends: swap/leave.h says why. */
static enum md_status swap(struct md_swap_control *c, bool out, const struct md_swap_settings *settings,
			   struct md_swap_report *report, struct md_error *err)
{
	enum md_status status;
	if (out && !md_swap_exchange_is_out(c->exchange))
		MD_FORWARD(md_swap_lending_recall(&c->lending, settings->deadline_ns, err));
	md_swap_leave_hold();
	if (out) {
		md_swap_leave_arm();
		status = md_swap_out(c->exchange, settings, report, err);
	} else {
		status = md_swap_in(c->exchange, settings, report, err);
	}
	bool is_out = md_swap_exchange_is_out(c->exchange);
	md_swap_leave_is_out(is_out);
	if (!is_out)
		md_swap_leave_disarm();
	md_swap_leave_release();
	return status;
}

/* ---- with the driver's checkpoint: it takes what the process has left ---- */

static enum md_status check_sharing(struct md_error *err)
{
	const char *call = md_swap_sharing_call();
	if (!call)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "--full: the process has shared device memory (%s), and a checkpoint would silently make a "
			    "copy of it: go out without --full",
			    call);
}

/* Which GPUs the contexts are on. */
static enum md_status find_gpus(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_context contexts[MD_SWAP_CONTEXTS_MOST];
	size_t count = md_swap_contexts_list(contexts, MD_SWAP_CONTEXTS_MOST);
	c->gpus = 0;
	for (size_t i = 0; i < count; i++) {
		char text[MD_CHECKPOINT_UUID_BYTES];
		CUuuid uuid;
		MD_FORWARD(md_cuda_call_in(&md_swap_real, err, cuDeviceGetUuid_v2, &uuid, contexts[i].device));
		md_checkpoint_uuid_text(&uuid, text);
		if (c->gpus && !strcmp(text, c->gpu))
			continue;
		snprintf(c->gpu, sizeof(c->gpu), "%s", text);
		c->gpus++;
	}
	return MD_OK;
}

/* No call of the driver is made from here on, until memory is to come in. */
static enum md_status get_ready(struct md_swap_control *c, struct md_error *err)
{
	md_swap_leave_hold();
	enum md_status status = check_sharing(err);
	if (status == MD_OK)
		status = find_gpus(c, err);
	if (status == MD_OK)
		status = md_swap_exchange_detach(c->exchange, err);
	md_swap_leave_release();
	c->full = status == MD_OK;
	return status;
}

/* Memory that is out already stays out. */
static enum md_status go_out_full(struct md_swap_control *c, const struct md_swap_settings *settings,
				  struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_report none;
	struct md_error later = {0};
	bool was_out = md_swap_exchange_is_out(c->exchange);
	MD_FORWARD(check_sharing(err));
	if (!was_out)
		MD_FORWARD(swap(c, true, settings, report, err));
	enum md_status status = get_ready(c, err);
	if (status != MD_OK && !was_out && swap(c, false, settings, &none, &later) != MD_OK)
		md_warn("the memory stays out: %s", later.message);
	return status;
}

/* A checkpoint brings contexts back on devices of the same numbers, whichever GPUs these are now. */
static enum md_status check_contexts(struct md_error *err)
{
	struct md_swap_context contexts[MD_SWAP_CONTEXTS_MOST];
	size_t count = md_swap_contexts_list(contexts, MD_SWAP_CONTEXTS_MOST);
	for (size_t i = 0; i < count; i++) {
		CUdevice device = -1;
		MD_FORWARD(md_cuda_status(md_swap_context_device(contexts[i].context, &device), "cuCtxGetDevice", err));
		if (device != contexts[i].device)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "a context of device %d is on device %d after the driver has restored the "
					    "process: the memory stays out",
					    contexts[i].device, device);
	}
	return MD_OK;
}

static enum md_status come_in(struct md_swap_control *c, const struct md_swap_settings *settings,
			      struct md_swap_report *report, struct md_error *err)
{
	if (c->full)
		MD_FORWARD(check_contexts(err));
	MD_FORWARD(swap(c, false, settings, report, err));
	if (c->full)
		find_gpus(c, err);
	c->full = false;
	return MD_OK;
}

/* Only medusa-swap run can end the carrier: it is its child. */
static void end_carrier(void *user)
{
	const struct md_swap_control *c = user;
	struct md_swap_letter letter;
	struct md_error none;
	if (!md_descriptor_is_ours(&c->kept) || md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "end_carrier", true);
	md_swap_letter_send(&letter, c->wire.fd, -1, &none);
}

/* The connection to the carrier came with the message, and the one through which those to lenders come. */
static enum md_status come_in_helped(struct md_swap_control *c, struct md_swap_settings *settings,
				     const struct md_swap_message *message, struct md_swap_report *report,
				     struct md_error *err)
{
	struct md_swap_carrier carrier = {.fd = -1, .lenders = -1, .end = end_carrier, .user = c};
	if (md_swap_message_number(message, "carrier") && c->wire.passed >= 0) {
		carrier.neighbours = md_swap_message_number(message, "neighbours") != 0;
		carrier.peers = md_swap_message_number(message, "peers") != 0;
		carrier.fd = md_descriptor_raise(c->wire.passed);
		if (c->wire.passed_too >= 0)
			carrier.lenders = md_descriptor_raise(c->wire.passed_too);
		c->wire.passed = c->wire.passed_too = -1;
		settings->carrier = &carrier;
	}
	enum md_status status = come_in(c, settings, report, err);
	if (carrier.fd >= 0)
		close(carrier.fd);
	if (carrier.lenders >= 0)
		close(carrier.lenders);
	return status;
}

static enum md_status do_out(struct md_swap_control *c, const struct md_swap_settings *settings, bool by_engine,
			     struct md_swap_report *report, struct md_error *err)
{
	MD_FORWARD(swap(c, true, settings, report, err));
	md_swap_gate_asked_for(by_engine);
	return MD_OK;
}

static enum md_status do_release(struct md_swap_control *c, const struct md_swap_settings *settings,
				 struct md_swap_report *report, struct md_error *err)
{
	if (md_swap_exchange_is_out(c->exchange))
		MD_FORWARD(come_in(c, settings, report, err));
	MD_FORWARD(md_swap_exchange_settle(c->exchange, settings->deadline_ns, err));
	c->released = true;
	return MD_OK;
}

/*
 * Whoever has started medusa-swap run has given the room to others, and ends this process. Calls that wait for the memory
 * fail, so that a process which nobody ends does not hang.
 */
static void remain_out(const char *why)
{
	md_warn(
	    "medusa-swap run %s while the engine's memory is out: the memory stays out (--stays-out), and calls that "
	    "need it fail",
	    why);
	md_swap_gate_abandon();
}

/*
 * The engine was told to end: its threads must not wait for ever, whether there is room for the memory or not. lost: the
 * driver has not restored the process.
 */
static enum md_status do_end(struct md_swap_control *c, const struct md_swap_settings *settings, bool lost,
			     struct md_swap_report *report)
{
	struct md_error err = {0};
	if (!md_swap_exchange_is_out(c->exchange))
		return MD_OK;
	if (c->stays_out)
		remain_out("was told to end");
	else if (lost || come_in(c, settings, report, &err) != MD_OK)
		md_swap_gate_abandon();
	return MD_OK;
}

static enum md_status carry_out(struct md_swap_control *c, const struct md_swap_message *message,
				struct md_swap_report *report, struct md_error *err)
{
	const char *wish = md_swap_message_text(message, "do");
	struct md_swap_settings settings = {.deadline_ns = md_swap_message_number(message, "deadline_ms") * 1000000u,
					    .verify = md_swap_message_number(message, "verify") != 0,
					    .overlap = md_swap_message_number(message, "overlap") != 0};
	if (!strcmp(wish, "out"))
		return md_swap_message_number(message, "full")
			   ? go_out_full(c, &settings, report, err)
			   : do_out(c, &settings, md_swap_message_number(message, "own") != 0, report, err);
	settings.merge = c->merges && !strcmp(wish, "in");
	if (!strcmp(wish, "in"))
		return come_in_helped(c, &settings, message, report, err);
	if (!strcmp(wish, "end"))
		return do_end(c, &settings, md_swap_message_number(message, "lost") != 0, report);
	if (!strcmp(wish, "release"))
		return do_release(c, &settings, report, err);
	if (!strcmp(wish, "there")) /* medusa-swap run wants to know whether this process goes on */
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED, "do is \"%.40s\", which this libmedusa-swap.so does not know",
			    wish);
}

/* A borrower's connection came with the message. Nobody waits for an answer. */
static void lend(struct md_swap_control *c)
{
	if (c->wire.passed >= 0)
		md_swap_lending_begin(&c->lending, c->wire.passed);
	c->wire.passed = -1;
}

static enum md_status obey(struct md_swap_control *c, const struct md_swap_message *message, struct md_error *err)
{
	struct md_swap_report report = {0};
	struct md_error why = {0};
	uint64_t id = md_swap_message_number(message, "id");
	if (!strcmp(md_swap_message_text(message, "do"), "lend")) {
		lend(c);
		return MD_OK;
	}
	md_swap_pulse_begin(&c->kept, id);
	enum md_status status = carry_out(c, message, &report, &why);
	md_swap_pulse_end();
	return md_swap_control_answer(c, id, status, &report, &why, err);
}

/* ---- the connection ---- */

static enum md_status say_hello(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_swap", MD_SWAP_PROTOCOL);
	md_json_text(&letter.json, "role", "engine");
	md_json_number(&letter.json, "pid", (uint64_t)getpid());
	return md_swap_letter_send(&letter, c->wire.fd, -1, err);
}

static enum md_status take_pool(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_message message;
	MD_FORWARD(md_swap_wire_await(&c->wire, HELLO_MS, &message, err));
	if (!md_swap_message_number(&message, "ok"))
		return md_error_set(err, MD_ERR_INVALID, "medusa-swap run refused: %s",
				    md_swap_message_text(&message, "message"));
	c->stays_out = md_swap_message_number(&message, "stays_out") != 0;
	c->merges = md_swap_message_number(&message, "share_constant") != 0;
	if (c->pool)
		return md_swap_pool_renew_spill(c->pool, c->wire.passed_too, err);
	if (c->wire.passed < 0)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "the answer of medusa-swap run came without the descriptor of the pool");
	MD_FORWARD(md_swap_pool_open_spilling(c->wire.passed, c->wire.passed_too, &c->pool, err));
	MD_FORWARD(md_swap_exchange_create(&below, c->pool, &c->exchange, err));
	md_swap_lending_init(&c->lending, &below, md_swap_exchange_book(c->exchange));
	return MD_OK;
}

static enum md_status join(struct md_swap_control *c, struct md_error *err)
{
	int fd = -1;
	MD_FORWARD(md_swap_wire_connect(c->path, &fd, err));
	fd = md_descriptor_raise(fd);
	md_swap_wire_init(&c->wire, fd);
	if (!md_descriptor_keep(&c->kept, fd))
		return md_error_set(err, MD_ERR_IO, "the connection to medusa-swap run: %s", strerror(errno));
	enum md_status status = say_hello(c, err);
	if (status == MD_OK)
		status = take_pool(c, err);
	if (c->wire.passed >= 0)
		close(c->wire.passed);
	if (c->wire.passed_too >= 0)
		close(c->wire.passed_too);
	c->wire.passed = c->wire.passed_too = -1;
	return status == MD_OK ? md_swap_control_tell(c, err) : status;
}

static void drop(struct md_swap_control *c)
{
	md_descriptor_drop(&c->kept);
	md_swap_wire_init(&c->wire, -1);
}

/* ---- between commands ---- */

/* A copy that cannot be made is tried again, and calls that need it fail meanwhile. */
static int arrive(struct md_swap_control *c)
{
	struct md_error err = {0};
	md_swap_leave_hold();
	enum md_status status = md_swap_exchange_carry(c->exchange, &err);
	md_swap_leave_release();
	if (status != MD_OK && !c->troubled)
		md_warn("memory that is on its way in does not come, and calls that need it fail: %s", err.message);
	c->troubled = status != MD_OK;
	if (c->ticks++ % ARRIVAL_TELL == 0 || !md_swap_exchange_is_arriving(c->exchange))
		c->told = UINT64_MAX;
	return status == MD_OK ? ARRIVAL_TICK_MS : IDLE_TICK_MS;
}

/* Pages of the pool lie near the GPUs whose memory goes there. Nothing happens on a machine with one node. */
static void place_pool(struct md_swap_control *c, const struct md_swap_context *contexts, size_t count)
{
	static const char sys[] = "/sys";
	bool several = md_swap_numa_nodes(sys) > 1;
	for (size_t i = 0; i < count && several; i++) {
		int node = md_swap_numa_of_device(sys, &md_swap_real, contexts[i].device);
		if (node >= 0)
			md_swap_pool_prefer(c->pool, (unsigned)node);
	}
	c->placed = true;
	c->told = UINT64_MAX; /* medusa-swap run waits for that before it gives pages memory */
}

/*
 * One step of making ready, for what goes out and as much again that changes until the next time; how long to wait for
 * the next.
 */
static int make_ready(struct md_swap_control *c)
{
	struct md_swap_context contexts[8];
	struct md_swap_totals totals;
	size_t count = md_swap_contexts_list(contexts, sizeof(contexts) / sizeof(contexts[0]));
	bool more = false;
	if (md_swap_exchange_is_arriving(c->exchange))
		return arrive(c);
	if (md_swap_exchange_is_out(c->exchange))
		return md_swap_exchange_look(c->exchange) ? 0 : IDLE_TICK_MS;
	md_swap_memory_totals(&totals);
	if (!totals.swappable)
		return IDLE_TICK_MS;
	if (!c->placed && count)
		place_pool(c, contexts, count);
	md_swap_leave_hold();
	for (size_t i = 0; i < count && !more; i++)
		if (contexts[i].primary)
			more = md_swap_exchange_prepare(c->exchange, contexts[i].context, 2 * totals.swappable);
	md_swap_leave_release();
	return more ? BUSY_TICK_MS : IDLE_TICK_MS;
}

static enum md_status tell_if_changed(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_totals totals;
	struct md_error none = {0};
	md_swap_memory_totals(&totals);
	bool knew = c->gpus || c->full;
	bool changed = totals.swappable != c->told || totals.constant != c->told_constant ||
		       totals.shared != c->told_shared || md_swap_pool_spilled(c->pool) != c->told_spilled;
	if (!knew)
		find_gpus(c, &none);
	return changed || (!knew && c->gpus) ? md_swap_control_tell(c, err) : MD_OK;
}

/* Until the engine is released, or the connection is lost. */
static enum md_status serve(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_message message;
	int tick = IDLE_TICK_MS;
	while (!c->released) {
		bool there = false;
		MD_FORWARD(md_swap_wire_next(&c->wire, &message, &there, err));
		if (there) {
			MD_FORWARD(obey(c, &message, err));
			tick = 0; /* what is arriving must not wait */
			continue;
		}
		bool came = md_swap_lending_wait(&c->lending, &c->wire, tick);
		if (!md_descriptor_is_ours(&c->kept))
			return md_error_set(err, MD_ERR_BUSY, "the engine has closed the connection");
		if (came) {
			MD_FORWARD(md_swap_wire_take(&c->wire, err));
			continue;
		}
		tick = make_ready(c);
		MD_FORWARD(tell_if_changed(c, err));
	}
	return MD_OK;
}

static enum md_status come_back(struct md_swap_control *c, const struct md_swap_settings *settings,
				struct md_swap_report *report, struct md_error *err)
{
	if (md_swap_exchange_is_out(c->exchange))
		return come_in(c, settings, report, err);
	md_swap_leave_hold();
	enum md_status status = md_swap_exchange_settle(c->exchange, UINT64_MAX, err);
	md_swap_leave_release();
	return status;
}

/* Nobody can say "in" any more: the memory comes back as soon as there is room for it. */
static void take_back(struct md_swap_control *c)
{
	const struct timespec pause = {RETRY_S, 0};
	struct md_swap_settings settings = {0};
	struct md_swap_report report;
	struct md_error err = {0};
	bool said = false;
	if (c->full)
		md_warn("medusa-swap run has ended while process %d is fully out: \"medusa-swap in --method checkpoint "
			"%d\" brings it back if the process beside medusa-swap run does not",
			(int)getpid(), (int)getpid());
	while (c->exchange && (md_swap_exchange_is_out(c->exchange) || md_swap_exchange_is_arriving(c->exchange))) {
		if (come_back(c, &settings, &report, &err) == MD_OK)
			return;
		if (!said)
			md_warn("medusa-swap run has ended while the engine's memory is out; the memory comes back "
				"once that is possible: %s",
				err.message);
		said = true;
		nanosleep(&pause, NULL);
	}
}

static bool remains_out(const struct md_swap_control *c)
{
	if (!c->stays_out || !c->exchange || !md_swap_exchange_is_out(c->exchange))
		return false;
	remain_out("has ended");
	return true;
}

static void leave(struct md_swap_control *c)
{
	md_swap_leave_hold();
	md_swap_lending_finish(&c->lending);
	c->lending.book = NULL;
	md_swap_exchange_destroy(c->exchange);
	md_swap_pool_close(c->pool);
	c->exchange = NULL;
	c->pool = NULL;
	md_swap_leave_release();
}

static void *run(void *argument)
{
	struct md_swap_control *c = argument;
	struct md_error err = {0};
	enum md_status status;
	unsigned tries = 0;
	bool again;
	do {
		status = join(c, &err);
		again = (status == MD_ERR_TRUNCATED || status == MD_ERR_IO) && !c->pool && ++tries < JOIN_TRIES;
		if (status == MD_OK)
			status = serve(c, &err);
		drop(c);
	} while (again || status == MD_ERR_BUSY);
	if (status != MD_OK && !c->pool)
		md_warn("%s: this process is not managed by medusa-swap: %s", c->path, err.message);
	if (remains_out(c))
		return NULL;
	take_back(c);
	leave(c);
	return NULL;
}

static void start(void)
{
	pthread_t thread;
	if (!md_environment_path("MEDUSA_SWAP_CONTROL", control.path, sizeof(control.path)))
		return;
	control.pool = NULL; /* in a child: its parent's */
	control.exchange = NULL;
	control.told = control.told_spilled = 0;
	control.released = control.full = control.placed = control.stays_out = false;
	control.gpus = 0;
	*control.gpu = '\0';
	md_swap_wire_init(&control.wire, -1);
	md_swap_leave_watch();
	int failure = md_thread_start(&thread, run, &control);
	if (failure)
		md_warn("starting the thread for medusa-swap: %s; this process keeps its memory", strerror(failure));
	else
		pthread_detach(thread);
}

void md_swap_control_start(void)
{
	if (!atomic_exchange(&started, true))
		start();
}
