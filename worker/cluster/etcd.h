/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of etcd (3.4 and later) by its JSON gateway, /v3/..., in the daemon's loop. Nothing here waits: answers come as calls
 * of `done`, later, and never from within the function that asks.
 */
#ifndef MD_WORKER_CLUSTER_ETCD_H
#define MD_WORKER_CLUSTER_ETCD_H

#include <event2/event.h>
#include <jansson.h>

#include "base/buf.h"
#include "http/outside.h"
#include "worker/config/config.h"

struct md_etcd;
struct md_etcd_call;
struct md_etcd_watch;

/* Neither may end calls or watches. */
struct md_etcd_events {
	/*
	 * Etcd answers again (why: NULL), or no endpoint does, or it refuses what the node needs (md_etcd_refuses): a sentence without its end.
	 * At first nobody knows, and nobody is told.
	 */
	void (*reached)(void *context, const char *why);
	/* Another endpoint is asked from now on: what streams from the one before may have ended without a sign. */
	void (*moved)(void *context);
};

/*
 * endpoints: URLs, http or https, at least one; they and events are borrowed, and outside lives longer. MD_ERR_CORRUPT: one is
 * no such URL; MD_ERR_NO_MEMORY.
 */
enum md_status md_etcd_create(struct event_base *base, struct md_http_outside *outside,
			      const struct md_config_texts *endpoints, const struct md_etcd_events *events,
			      void *context, struct md_etcd **made, struct md_error *err);
/* The user that is used from now on, and whose password is another one later. Both are copied. False: out of memory. */
bool md_etcd_use(struct md_etcd *etcd, const char *user, const char *password);
bool md_etcd_refuses(const struct md_etcd *etcd);
void md_etcd_destroy(struct md_etcd *etcd);               /* no call and no watch is left; NULL is fine */
const char *md_etcd_endpoint(const struct md_etcd *etcd); /* the one that is asked now */

/*
 * The answer is borrowed; NULL: err says why, which is MD_ERR_IO where no endpoint has answered (the order may have been carried
 * out all the same), MD_ERR_NOT_FOUND where etcd knows no such lease, MD_ERR_NO_MEMORY, else MD_ERR_INVALID: etcd refuses. The
 * call is no longer there then.
 */
typedef void md_etcd_done(void *context, const json_t *answer, const struct md_error *err);

/*
 * Each asks one endpoint after the other, for three seconds at most each (md_etcd_keep: one). NULL: out of memory, and done is not called. Texts are
 * copied. An order may be carried out twice, because its first answer was lost, and the second time long after, when others have been given since:
 * what must not come back then is put with md_etcd_put_if.
 */
struct md_etcd_call *md_etcd_grant(struct md_etcd *etcd, unsigned ttl_s, md_etcd_done *done, void *context);
struct md_etcd_call *md_etcd_keep(struct md_etcd *etcd, int64_t lease, md_etcd_done *done, void *context);
struct md_etcd_call *md_etcd_revoke(struct md_etcd *etcd, int64_t lease, md_etcd_done *done, void *context);
/* At most `most` keys from `from` on (itself included) that begin with prefix; revision: as they were then; 0: as they are. */
struct md_etcd_call *md_etcd_range(struct md_etcd *etcd, const char *prefix, const char *from, unsigned most,
				   int64_t revision, md_etcd_done *done, void *context);
struct md_etcd_call *md_etcd_get(struct md_etcd *etcd, const char *key, md_etcd_done *done, void *context);

struct md_etcd_pair {
	const char *key, *value; /* value: NULL: the key is deleted */
};
/*
 * All of them, or none, and only if the first key was changed last by this revision, or, 0, is not there. Else the answer does not succeed, and
 * md_etcd_found has what stands there. lease: 0: none.
 */
struct md_etcd_call *md_etcd_put_if(struct md_etcd *etcd, int64_t revision, const struct md_etcd_pair *pairs,
				    unsigned count, int64_t lease, md_etcd_done *done, void *context);
/*
 * All of them, or none, and only while this key is the one that this revision has made: an order of a leader that is none any more is not carried
 * out. Else the answer does not succeed.
 */
struct md_etcd_call *md_etcd_put_while(struct md_etcd *etcd, const char *key, int64_t created,
				       const struct md_etcd_pair *pairs, unsigned count, md_etcd_done *done,
				       void *context);
/* One key, under both conditions: those of md_etcd_put_if for the pair, and of md_etcd_put_while for guard. */
struct md_etcd_call *md_etcd_put_if_while(struct md_etcd *etcd, int64_t revision, const struct md_etcd_pair *pair,
					  const char *guard, int64_t created, md_etcd_done *done, void *context);
const json_t *md_etcd_found(const json_t *answer); /* a key with its value, borrowed; NULL: none */
/*
 * Stands for election with a lease, and waits, however long, until nobody who stands longer is left. The answer's "leader" has the key ("key", "rev": by which it
 * was made) that is there as long as the election holds. With the same lease it may be asked again. It is cut when this endpoint fails.
 */
struct md_etcd_call *md_etcd_campaign(struct md_etcd *etcd, const char *election, const char *value, int64_t lease,
				      md_etcd_done *done, void *context);
bool md_etcd_succeeded(const json_t *answer);   /* of md_etcd_put_if; NULL: no */
void md_etcd_cancel(struct md_etcd_call *call); /* done is not called; NULL is fine */

/* ---- watching ---- */

struct md_etcd_watch_events {
	/* Events, borrowed: an array of {"type": "DELETE" or none, "kv": ...}. The watch may be ended in here. */
	void (*changed)(void *context, const json_t *events);
	/* The watch has ended: cut off, refused, or the revision is no longer kept (compacted). Nothing is left of it. */
	void (*ended)(void *context, const char *why);
};
/* Changes from this revision on of keys that begin with prefix. NULL: out of memory. */
struct md_etcd_watch *md_etcd_watch_begin(struct md_etcd *etcd, const char *prefix, int64_t revision,
					  const struct md_etcd_watch_events *events, void *context);
void md_etcd_watch_end(struct md_etcd_watch *watch); /* `ended` is not called; NULL is fine */

/* ---- what answers say ---- */

/* A number of 64 bits, which the gateway writes as a text; 0: it is not there, or none. */
int64_t md_etcd_number(const json_t *object, const char *key);
int64_t md_etcd_revision(const json_t *answer); /* of its header */
/* Bytes that the gateway writes in base64, with a NUL behind them, into an empty buffer; false: there are none, or no memory. */
bool md_etcd_bytes(const json_t *object, const char *key, struct md_buf *bytes);

#endif
