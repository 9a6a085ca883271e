/* SPDX-License-Identifier: Apache-2.0 */
/* The carrier's process: hears medusa-swap run and one engine at a time, and copies chunks. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/environment.h"
#include "tools/carrier_lanes.h"
#include "tools/carrier_lenders.h"
#include "tools/swap_carrier.h"
#include "tools/swap_child.h"

#define QUEUE (MD_CARRY_LINKS * 8) /* chunks that an engine may ask for at a time */
#define BUSY_NS 100000             /* between two looks at copies */
#define LOCK_NS 5000000            /* between two steps of locking pages, which other processes' calls may wait for */
#define IDLE_S 1

struct carrier {
	struct md_swap_wire wire; /* to medusa-swap run */
	int session;              /* to an engine, or -1 */
	struct md_swap_pool *pool;
	struct md_lanes lanes;
	struct md_lenders lenders;
	struct md_mapper *mapper;
	bool driver; /* it is initialized */
	bool begun;  /* the engine knows the neighbours of its GPU */
	struct md_carry_message queue[QUEUE];
	unsigned first, queued;
	unsigned copying;
};

/* ---- the driver ---- */

/* What the driver says about no devices, or a number that none has, does not name the variable that asks for them. */
static enum md_status start_driver(struct md_error *err)
{
	const char *wanted = md_environment_get("MEDUSA_SWAP_NEIGHBOURS");
	enum md_status status = md_cuda_call(err, cuInit, 0);
	return status == MD_OK || !wanted || !*wanted ? status
						      : md_error_prefix(err, "MEDUSA_SWAP_NEIGHBOURS=%s", wanted);
}

static enum md_status open_lanes(struct carrier *c, const char *gpu, struct md_error *err)
{
	if (!c->driver) {
		MD_FORWARD(md_cuda_load(err));
		MD_FORWARD(start_driver(err));
	}
	c->driver = true;
	return md_lanes_open(&c->lanes, gpu, err);
}

static enum md_status tell_run(const struct carrier *c, const char *why, struct md_error *err)
{
	struct md_swap_letter letter;
	char gpus[MD_CARRY_LINKS * MD_CARRY_GPU_BYTES] = "";
	size_t used = 0;
	for (unsigned i = 0; i < c->lanes.count && used < sizeof(gpus); i++)
		used += (size_t)snprintf(gpus + used, sizeof(gpus) - used, "%s%s", i ? " " : "", c->lanes.list[i].gpu);
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "neighbours", c->lanes.count);
	md_json_text(&letter.json, "gpus", gpus);
	md_json_number(&letter.json, "locked", c->lanes.locks.locked_count * MD_SWAP_CHUNK * MD_SWAP_BLOCK);
	md_json_text(&letter.json, "why", why);
	return md_swap_letter_send(&letter, c->wire.fd, -1, err);
}

/* ---- an engine ---- */

/* What is under way ends first: memory that the engine may use again is not written any more. */
static enum md_status end_session(struct carrier *c, struct md_error *err)
{
	enum md_status status = md_lenders_drop(&c->lenders, err);
	if (status == MD_OK)
		status = md_lanes_drop(&c->lanes, err);
	if (c->session >= 0)
		close(c->session);
	c->session = -1;
	c->begun = false;
	c->first = c->queued = c->copying = 0;
	if (status == MD_OK)
		md_lenders_open_missed(&c->lenders);
	return status;
}

static enum md_status say_failed(const struct carrier *c, const struct md_error *why)
{
	struct md_carry_message message = {.kind = MD_CARRY_FAILED};
	struct md_error none;
	snprintf(message.text, sizeof(message.text), "%.255s", why->message);
	return md_carry_wire_send(c->session, &message, -1, &none);
}

static enum md_status begin(struct carrier *c, const char *gpu, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_READY};
	struct md_error none;
	if (c->begun) /* memory is mapped for the neighbours that there are */
		return md_error_set(err, MD_ERR_CORRUPT, "an engine has begun twice");
	enum md_status status = open_lanes(c, gpu, err);
	tell_run(c, status == MD_OK ? "" : err->message, &none);
	MD_FORWARD(status);
	message.count = c->lanes.count;
	for (unsigned i = 0; i < c->lanes.count; i++)
		memcpy(message.gpus[i], c->lanes.list[i].gpu, sizeof(message.gpus[i]));
	c->begun = true;
	return md_carry_wire_send(c->session, &message, -1, err);
}

static enum md_status take_chunk(struct carrier *c, const struct md_carry_message *message, struct md_error *err)
{
	MD_FORWARD(md_lanes_check(&c->lanes, message, err));
	if (c->queued == QUEUE)
		return md_error_set(err, MD_ERR_CORRUPT, "more than %u chunks at a time", QUEUE);
	c->queue[(c->first + c->queued++) % QUEUE] = *message;
	return MD_OK;
}

/* The engine waits for its own memory; what lenders get back takes longer, and comes after the answer. */
static enum md_status end(struct carrier *c, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_END};
	uint64_t began = md_clock_ns();
	MD_FORWARD(md_lenders_settle(&c->lenders, err));
	md_lenders_take_times(&c->lenders, message.times);
	MD_FORWARD(md_lanes_drop(&c->lanes, err));
	message.times[MD_PEER_BACK] = md_clock_ns() - began;
	MD_FORWARD(md_carry_wire_send(c->session, &message, -1, err));
	return end_session(c, err);
}

/* *passed is taken over, with the connection to a lender. */
static enum md_status obey(struct carrier *c, const struct md_carry_message *message, int *passed, struct md_error *err)
{
	switch (message->kind) {
	case MD_CARRY_BEGIN:
		return begin(c, message->gpus[0], err);
	case MD_CARRY_PART:
		return md_lanes_part(&c->lanes, message->part, message->bytes, *passed, err);
	case MD_CARRY_CHUNK:
		return take_chunk(c, message, err);
	case MD_CARRY_TAKE:
		return md_lenders_take(&c->lenders, message, err);
	case MD_CARRY_LENDER:
		return md_lenders_add(&c->lenders, message->link, message->gpus[0], passed, err);
	case MD_CARRY_STALE:
		md_lenders_stale(&c->lenders, message);
		return MD_OK;
	case MD_CARRY_END:
		return end(c, err);
	default:
		return md_error_set(err, MD_ERR_CORRUPT, "a message of kind %u from an engine", message->kind);
	}
}

/* Taking a part over takes long: what can be copied begins before the next one. */
static enum md_status hear_engine(struct carrier *c, struct md_error *err)
{
	bool there = true, part = false;
	while (there && !part && c->session >= 0) {
		struct md_carry_message message;
		int passed = -1;
		MD_FORWARD(md_carry_wire_receive(c->session, &message, &passed, &there, err));
		enum md_status status = there ? obey(c, &message, &passed, err) : MD_OK;
		part = there && message.kind == MD_CARRY_PART;
		if (passed >= 0)
			close(passed);
		MD_FORWARD(status);
	}
	return MD_OK;
}

static enum md_status work(struct carrier *c, struct md_error *err)
{
	bool there = true, begun = true;
	while (there) {
		struct md_carry_message done;
		MD_FORWARD(md_lanes_done(&c->lanes, &done, &there, err));
		if (!there)
			break;
		c->copying--;
		MD_FORWARD(md_carry_wire_send(c->session, &done, -1, err));
	}
	while (c->queued) {
		MD_FORWARD(md_lanes_copy(&c->lanes, &c->queue[c->first], &begun, err));
		if (!begun)
			break;
		c->first = (c->first + 1) % QUEUE;
		c->queued--;
		c->copying++;
	}
	return MD_OK;
}

/* A failure of the driver ends the process, since nobody knows what it has left; the next time begins with a new one. */
static bool can_go_on(enum md_status status)
{
	return status == MD_ERR_CORRUPT || status == MD_ERR_TRUNCATED || status == MD_ERR_UNSUPPORTED ||
	       status == MD_ERR_NOT_FOUND || status == MD_ERR_BUSY;
}

static enum md_status serve_engine(struct carrier *c, struct md_error *err)
{
	struct md_error why = {0};
	enum md_status status = hear_engine(c, &why);
	if (status == MD_OK && c->session >= 0)
		status = work(c, &why);
	if (status == MD_OK && c->begun)
		status = md_lenders_work(&c->lenders, c->session, &why);
	if (status == MD_OK)
		return MD_OK;
	if (status != MD_ERR_TRUNCATED)
		say_failed(c, &why);
	if (!can_go_on(status))
		return md_error_set(err, status, "%s", why.message);
	return end_session(c, err);
}

/* ---- medusa-swap run ---- */

static enum md_status hear_message(struct carrier *c, const struct md_swap_message *message, struct md_error *err)
{
	struct md_error why = {0};
	if (!strcmp(md_swap_message_text(message, "do"), "carry")) {
		MD_FORWARD(end_session(c, err));
		c->session = c->wire.passed;
		c->wire.passed = -1;
		return MD_OK;
	}
	enum md_status status = c->session >= 0 ? MD_OK : open_lanes(c, md_swap_message_text(message, "gpu"), &why);
	if (status != MD_OK && !can_go_on(status))
		return md_error_set(err, status, "%s", why.message);
	return tell_run(c, status == MD_OK ? "" : why.message, err);
}

static enum md_status hear_run(struct carrier *c, struct md_error *err)
{
	static struct md_swap_message message; /* large */
	bool there = true;
	MD_FORWARD(md_swap_wire_take(&c->wire, err));
	while (there) {
		MD_FORWARD(md_swap_wire_next(&c->wire, &message, &there, err));
		if (there)
			MD_FORWARD(hear_message(c, &message, err));
	}
	return MD_OK;
}

static enum md_status serve(struct carrier *c, struct md_error *err)
{
	bool locking = false;
	for (;;) {
		struct pollfd ready[2 + MD_LENDERS_POLL] = {{.fd = c->wire.fd, .events = POLLIN},
							    {.fd = c->session, .events = POLLIN}};
		struct timespec pause = {.tv_sec = IDLE_S};
		bool copying = c->copying || md_lenders_copy(&c->lenders);
		if (copying || locking)
			pause = (struct timespec){.tv_nsec = copying ? BUSY_NS : LOCK_NS};
		ppoll(ready, 2 + (c->begun ? md_lenders_poll(&c->lenders, ready + 2) : 0), &pause, NULL);
		if (ready[0].revents)
			MD_FORWARD(hear_run(c, err));
		if (c->session >= 0)
			MD_FORWARD(serve_engine(c, err));
		if (c->session >= 0)
			continue;
		bool more = md_lanes_prepare(&c->lanes);
		if (locking && !more)
			MD_FORWARD(tell_run(c, "", err));
		locking = more;
	}
}

/* The engine sees what it sees; here, other GPUs are needed. */
static void see_neighbours(void)
{
	const char *wanted = md_environment_get("MEDUSA_SWAP_NEIGHBOURS");
	if (wanted && *wanted)
		setenv("CUDA_VISIBLE_DEVICES", wanted, 1);
	else
		unsetenv("CUDA_VISIBLE_DEVICES");
}

int md_swap_carrier_main(void)
{
	static struct carrier carrier;
	struct md_error err = {0};
	prctl(PR_SET_NAME, "swap-carrier");
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if it is stopped: it must not keep memory of the engine */
	signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
	see_neighbours();
	unsetenv("CUDA_INJECTION64_PATH");
	md_swap_wire_init(&carrier.wire, MD_SWAP_CHILD_CONNECTION);
	carrier.session = -1;
	enum md_status status =
	    md_swap_pool_open_spilling(MD_SWAP_CHILD_BESIDE, MD_SWAP_WITHOUT_FILE, &carrier.pool, &err);
	close(MD_SWAP_CHILD_BESIDE);
	if (status == MD_OK)
		status = md_lanes_init(&carrier.lanes, carrier.pool, &err);
	if (status == MD_OK)
		status = md_mapper_create(&carrier.mapper, &err);
	md_lenders_init(&carrier.lenders, &carrier.lanes, carrier.mapper);
	if (status == MD_OK)
		status = serve(&carrier, &err);
	md_mapper_destroy(carrier.mapper);
	if (status == MD_ERR_TRUNCATED) /* medusa-swap run has ended */
		return 0;
	fprintf(stderr, "medusa-swap: the carrier ends: %s\n", err.message);
	return 1;
}
