/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/member.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/cluster/quota_share.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define KEEP_MS 1000u
#define LOOK_MS 200u /* at itself: between two writes there is at least that */
#define AGAIN_MS 500u
#define PATIENCE_MS ((MD_MEMBER_TTL_S + 2) * 1000u) /* for a lease that nobody keeps to end */
#define MS UINT64_C(1000000)

struct md_member {
	struct md_member_options options;
	char *record_key, *state_key;
	struct event *keep, *look;
	enum md_member_state state;
	bool lost;                    /* JOINED: the record must be put again */
	int64_t lease;                /* 0: none */
	struct md_etcd_call *call;    /* of joining and keeping */
	struct md_etcd_call *writing; /* of what has changed */
	uint64_t refused_since;       /* ns: the name is taken since then; 0: it is not */
	char rival[200];
	bool cordoned, leaving, left;
	bool told_left; /* that it leaves, or tried to twice */
	/* what is written: */
	const struct md_worker_config *config; /* of the record */
	bool told;                             /* the record is in etcd, or on its way */
	/* By models of that configuration, in one piece of memory: as it was looked at last, and as md_record_state has it. */
	struct md_standing *seen, *standings, *unused;
	struct md_loads told_loads;
	struct md_demand *demands; /* of the same models */
	uint64_t looked_at;        /* md_clock_ns() */
	bool told_cordoned, told_draining;
	bool written; /* it is in etcd */
	int64_t
	    stands; /* the revision by which the state's key was changed last, as far as is known; 0: it is not there */
	uint64_t rests;  /* ns: until then nothing is written, because the last time has failed */
	json_t *tenants; /* how they stand; NULL: there is nothing to say */
	uint64_t asked;  /* md_quotas_clock_ns(): for the lease, or that it lasts */
	struct md_member_counts counts;
};

/* ---- what there is to say ---- */

static bool is_draining(const struct md_member *member)
{
	return md_drain_is_on(member->options.worker->drain);
}

/* Rounding takes its time, so it is done for what has changed. False: out of memory. */
static bool begin_models(struct md_member *member, const struct md_worker *worker)
{
	uint32_t count = worker->config->model_count;
	struct md_standing *room = md_array_resize(member->seen, 3 * (uint64_t)count, sizeof(*room));
	if (!room)
		return false;
	memset(room, 0, 3 * (size_t)count * sizeof(*room));
	member->seen = room;
	member->standings = room + count;
	member->unused = room + 2 * (size_t)count;
	for (uint32_t i = 0; i < count; i++) {
		md_standing_unused(worker->current[i], &member->unused[i]);
		md_standing_round(&member->unused[i]);
	}
	struct md_demand *demands = calloc((size_t)count + 1, sizeof(*demands));
	if (!demands)
		return false;
	for (uint32_t i = 0; i < count; i++)
		demands[i].taken = worker->current[i]->requests.taken;
	free(member->demands);
	member->demands = demands;
	member->config = worker->config;
	member->told = false;
	return true;
}

/* True: something has changed, or it was never looked at. */
static bool look(struct md_member *member)
{
	struct md_worker *worker = member->options.worker;
	uint32_t count = worker->config->model_count;
	md_crowd_look(worker);
	struct md_loads loads = md_crowd_now(worker);
	loads = (struct md_loads){.count = loads.count, .slows = loads.count ? round(loads.slows * 4) / 4 : 0};
	bool changed = !member->written || loads.count != member->told_loads.count ||
		       fabs(loads.slows - member->told_loads.slows) > 0.1 || member->config != worker->config ||
		       member->told_cordoned != member->cordoned || member->told_draining != is_draining(member);
	if (member->config != worker->config && !begin_models(member, worker))
		return false;
	json_t *tenants = md_quotas_tell(member->options.quotas, member->lease);
	changed |= tenants ? !json_equal(tenants, member->tenants) : member->tenants != NULL;
	json_decref(member->tenants);
	member->tenants = tenants;
	uint64_t at = md_clock_ns();
	double seconds = member->looked_at ? (double)(at - member->looked_at) * 1e-9 : 0;
	member->looked_at = at;
	for (uint32_t i = 0; i < count; i++) {
		struct md_standing now;
		struct md_demand *demand = &member->demands[i];
		md_standing_of(worker->current[i], &now);
		md_demand_note(demand, worker->current[i]->requests.taken, worker->current[i]->unfinished, seconds);
		now.rate = demand->told_rate;
		now.busy = demand->told_busy;
		if (md_standing_equal(&member->seen[i], &now))
			continue;
		member->seen[i] = now;
		md_standing_round(&now);
		if (md_standing_equal(&member->standings[i], &now))
			continue;
		member->standings[i] = now;
		changed = true;
	}
	member->told_loads = loads;
	member->told_cordoned = member->cordoned;
	member->told_draining = is_draining(member);
	return changed;
}

/* Both texts are the caller's; *record: NULL: it has not changed. False: out of memory. */
static bool print(struct md_member *member, char **record, char **state)
{
	const struct md_worker *worker = member->options.worker;
	struct md_record_state now = {.left = member->leaving,
				      .loads = member->told_loads,
				      .cordoned = member->told_cordoned,
				      .draining = member->told_draining,
				      .tenants = member->tenants,
				      .standings = member->standings,
				      .unused = member->unused};
	struct md_record_self self = {.identity = member->options.identity,
				      .url = member->options.url,
				      .domain = member->options.domain,
				      .placed = member->options.placed};
	*state = md_record_print_state(worker, member->options.identity, &now);
	*record = member->told ? NULL : md_record_print(worker, &self);
	if (*state && (member->told || *record)) {
		member->told = true;
		return true;
	}
	free(md_steal_ptr(record));
	free(md_steal_ptr(state));
	return false;
}

/* ---- joining ---- */

static void put(struct md_member *member, int64_t revision);

static void wait_keep(struct md_member *member, unsigned ms)
{
	struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	event_add(member->keep, &wait);
}

static void count_write(struct md_member *member, const json_t *answer)
{
	member->counts.writes++;
	member->counts.revision = member->stands = md_etcd_revision(answer);
}

static void on_joined(struct md_member *member, const json_t *answer)
{
	bool waited = member->refused_since != 0; /* its lease is as old as that, and was not kept meanwhile */
	if (member->state != MD_MEMBER_JOINED || member->lost)
		md_info("cluster: this node is %s, at %s", member->options.name, member->options.url);
	member->state = MD_MEMBER_JOINED;
	member->lost = false;
	member->refused_since = 0;
	member->written = true;
	count_write(member, answer);
	wait_keep(member, waited ? 0 : KEEP_MS);
}

/* A node that was killed has the name until its lease ends: who begins waits for that. */
static void on_taken(struct md_member *member, const char *url)
{
	uint64_t now = md_clock_ns();
	member->refused_since = member->refused_since ? member->refused_since : now;
	snprintf(member->rival, sizeof(member->rival), "%.190s", url);
	if (now - member->refused_since < PATIENCE_MS * MS) {
		wait_keep(member, AGAIN_MS);
		return;
	}
	if (member->state != MD_MEMBER_CLASHES)
		md_error_log("cluster: another node, at %s, has the name %s: this one is not in the cluster", url,
			     member->options.name);
	member->state = MD_MEMBER_CLASHES;
	wait_keep(member, KEEP_MS);
}

/* What stands under the name. */
static void judge_found(struct md_member *member, const json_t *found)
{
	struct md_error err = {0};
	struct md_record *record = NULL;
	struct md_buf text = {0};
	bool read = md_etcd_bytes(found, "value", &text);
	enum md_status status =
	    read ? md_record_read((const char *)text.data, text.size, &record, &err) : MD_ERR_CORRUPT;
	md_buf_finish(&text);
	if (!found)
		wait_keep(member, AGAIN_MS); /* it has gone meanwhile */
	else if (status == MD_OK && !strcmp(record->identity, member->options.identity))
		put(member,
		    md_etcd_number(found, "mod_revision")); /* this node, before it began anew, or lost its lease */
	else
		on_taken(member, status == MD_OK ? record->url : "an address that this version can't read");
	md_record_free(record);
}

static void on_put(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	member->call = NULL;
	if (md_etcd_succeeded(answer)) {
		on_joined(member, answer);
	} else if (answer) {
		judge_found(member, md_etcd_found(answer));
	} else {
		if (err->status != MD_ERR_IO && !md_etcd_refuses(member->options.etcd)) /* which was said */
			md_warn("cluster: this node's record: %s", err->message);
		member->lease = err->status == MD_ERR_NOT_FOUND ? 0 : member->lease;
		wait_keep(member, AGAIN_MS);
	}
}

/* revision: of what this node has put there before; 0: nothing may be there. */
static void put(struct md_member *member, int64_t revision)
{
	char *record = NULL, *state = NULL;
	look(member);
	member->told = false;
	if (member->seen && print(member, &record, &state)) {
		struct md_etcd_pair pairs[] = {{member->record_key, record}, {member->state_key, state}};
		member->call = md_etcd_put_if(member->options.etcd, revision, pairs, 2, member->lease, on_put, member);
	}
	free(record);
	free(state);
	if (!member->call)
		wait_keep(member, AGAIN_MS);
}

static void on_granted(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	(void)err;
	member->call = NULL;
	member->lease = md_etcd_number(answer, "ID");
	if (!member->lease) {
		wait_keep(member, AGAIN_MS);
		return;
	}
	member->counts.leases++;
	md_quotas_contact(member->options.quotas, member->lease, member->asked);
	put(member, 0);
}

static void on_kept(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	(void)err;
	member->call = NULL;
	bool ended = answer && md_etcd_number(answer, "TTL") <= 0;
	if (ended) {
		if (member->state == MD_MEMBER_JOINED)
			md_warn("cluster: this node's lease has ended although the node lives; it takes another one");
		member->lease = 0;
		member->lost = true;
	} else if (answer) {
		md_quotas_contact(member->options.quotas, member->lease, member->asked);
	}
	wait_keep(member, ended ? 0 : KEEP_MS);
}

static void on_keep(evutil_socket_t fd, short what, void *context)
{
	struct md_member *member = context;
	(void)fd, (void)what;
	if (member->call || member->leaving)
		return;
	member->asked = md_quotas_clock_ns();
	if (!member->lease)
		member->call = md_etcd_grant(member->options.etcd, MD_MEMBER_TTL_S, on_granted, member);
	else if (member->state == MD_MEMBER_JOINED && !member->lost)
		member->call = md_etcd_keep(member->options.etcd, member->lease, on_kept, member);
	else
		put(member, 0);
	if (!member->call && !event_pending(member->keep, EV_TIMEOUT, NULL))
		wait_keep(member, AGAIN_MS);
}

void md_member_missing(struct md_member *member)
{
	if (member->state != MD_MEMBER_JOINED || member->lost)
		return;
	member->lost = true;
	if (!member->call)
		wait_keep(member, 0);
}

/* ---- what has changed ---- */

static void on_written(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	(void)err;
	member->writing = NULL;
	member->written = md_etcd_succeeded(answer); /* else all of it is written again */
	if (member->written) {
		count_write(member, answer);
		return;
	}
	member->told = false;
	if (answer)
		member->stands = md_etcd_number(md_etcd_found(answer), "mod_revision");
	else
		member->rests = md_clock_ns() + KEEP_MS * MS;
}

/*
 * Only in the place of what this node has written last: a member of etcd that hung, or a wire, may bring what was sent long ago, and that must not stand
 * in the place of what was sent after it.
 */
static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_member *member = context;
	char *record, *state;
	(void)fd, (void)what;
	if (member->state != MD_MEMBER_JOINED || member->lost || member->writing || member->leaving)
		return;
	if (md_reload_changes(member->options.worker->reload) || md_clock_ns() < member->rests || !look(member))
		return;
	member->written = false;
	if (!print(member, &record, &state))
		return;
	struct md_etcd_pair pairs[] = {{member->state_key, state}, {member->record_key, record}};
	member->writing = md_etcd_put_if(member->options.etcd, member->stands, pairs, record ? 2 : 1, member->lease,
					 on_written, member);
	free(record);
	free(state);
}

/* ---- leaving ---- */

static void on_revoked(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	(void)answer, (void)err;
	member->call = NULL;
	member->left = true;
}

static void end_lease(struct md_member *member)
{
	if (member->lease)
		member->call = md_etcd_revoke(member->options.etcd, member->lease, on_revoked, member);
	member->left = !member->call;
}

static void say_left(struct md_member *member);

/* A state that was on its way may have come since. */
static void on_said_left(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_member *member = context;
	const json_t *found = md_etcd_found(answer);
	bool again = !member->told_left && answer && !md_etcd_succeeded(answer) && found;
	(void)err;
	member->call = NULL;
	member->told_left = true;
	if (again) {
		member->stands = md_etcd_number(found, "mod_revision");
		say_left(member);
	} else {
		end_lease(member);
	}
}

/* One transaction, so that nobody sees the record go without knowing why; and in the place of this node's own state alone. */
static void say_left(struct md_member *member)
{
	char *record = NULL, *state = NULL;
	member->told = true;
	if (print(member, &record, &state)) {
		struct md_etcd_pair pairs[] = {{member->state_key, state}, {member->record_key, NULL}};
		member->call =
		    md_etcd_put_if(member->options.etcd, member->stands, pairs, 2, member->lease, on_said_left, member);
	}
	free(state);
	if (!member->call)
		end_lease(member);
}

void md_member_leave(struct md_member *member)
{
	bool joined = member->state == MD_MEMBER_JOINED && !member->lost && member->lease && member->seen;
	md_quotas_leave(member->options.quotas);
	json_decref(member->tenants);
	member->tenants = md_quotas_tell(member->options.quotas, member->lease);
	member->leaving = true;
	event_del(member->keep);
	event_del(member->look);
	md_etcd_cancel(md_steal_ptr(&member->call));
	md_etcd_cancel(md_steal_ptr(&member->writing));
	if (joined)
		say_left(member);
	else
		end_lease(member);
}

bool md_member_has_left(const struct md_member *member)
{
	return member->left;
}

/* ---- all of it ---- */

struct md_member *md_member_create(const struct md_member_options *options)
{
	struct event_base *base = options->worker->base;
	struct md_member *member = calloc(1, sizeof(*member));
	if (!member)
		return NULL;
	*member = (struct md_member){.options = *options};
	if (asprintf(&member->record_key, "%snodes/%s", options->prefix, options->name) < 0)
		member->record_key = NULL;
	if (asprintf(&member->state_key, "%sstates/%s", options->prefix, options->name) < 0)
		member->state_key = NULL;
	member->keep = evtimer_new(base, on_keep, member);
	member->look = event_new(base, -1, EV_PERSIST, on_look, member);
	if (member->record_key && member->state_key && member->keep && member->look)
		return member;
	md_member_destroy(member);
	return NULL;
}

void md_member_destroy(struct md_member *member)
{
	if (!member)
		return;
	md_etcd_cancel(member->call);
	md_etcd_cancel(member->writing);
	if (member->keep)
		event_free(member->keep);
	if (member->look)
		event_free(member->look);
	free(member->record_key);
	free(member->state_key);
	free(member->seen);
	free(member->demands);
	json_decref(member->tenants);
	free(member);
}

void md_member_begin(struct md_member *member)
{
	struct timeval every = {.tv_usec = LOOK_MS * 1000};
	event_add(member->look, &every);
	wait_keep(member, 0);
}

enum md_member_state md_member_state(const struct md_member *member)
{
	return member->state;
}

const char *md_member_rival(const struct md_member *member)
{
	return member->rival;
}

void md_member_mark(struct md_member *member, bool cordoned)
{
	member->cordoned = cordoned;
}

int64_t md_member_lease(const struct md_member *member)
{
	bool holds = member->state == MD_MEMBER_JOINED && !member->lost && !member->leaving;
	return holds ? member->lease : 0;
}

struct md_member_counts md_member_counts_of(const struct md_member *member)
{
	return member->counts;
}
