/* SPDX-License-Identifier: Apache-2.0 */
/* What calls to etcd and watches of it have in common. */
#ifndef MD_WORKER_CLUSTER_ETCD_PARTS_H
#define MD_WORKER_CLUSTER_ETCD_PARTS_H

#include "http/call.h"
#include "worker/cluster/etcd.h"

struct md_etcd_endpoint {
	const char *url;
	struct md_http_remote remote;
	struct md_http_way way;
	char prefix[256], host[272];
};

struct md_etcd_auth;

/* What etcd may refuse, one bit each. */
enum { MD_ETCD_RANGE = 1, MD_ETCD_TXN = 2, MD_ETCD_OTHER = 4, MD_ETCD_AUTH = 8 };

struct md_etcd {
	struct event_base *base;
	const struct md_etcd_events *events;
	void *context;
	enum { MD_ETCD_UNKNOWN, MD_ETCD_REACHED, MD_ETCD_UNREACHED, MD_ETCD_REFUSES } standing;
	unsigned refused;          /* what etcd has refused, and not granted since */
	struct md_etcd_auth *auth; /* NULL: no user */
	unsigned current, count;
	struct md_etcd_endpoint endpoints[];
};

#define MD_ETCD_ANSWER_S 3u /* for the whole of an answer */

/* answer_s: at most so long until the head of the answer; 0: any time. NULL: out of memory. */
struct md_http_call *md_etcd_post(struct md_etcd *etcd, unsigned endpoint, const char *path, const char *question,
				  unsigned answer_s, const struct md_http_call_events *events, void *context);
/* Where etcd has users, its gateway refuses who shows a certificate with a CN, because that would name one, and it does not know that. */
#define MD_ETCD_NO_NAMES "etcd takes no certificate with a CN where it has users: this node needs one without"

void md_etcd_explain(const json_t *answer, const struct md_buf *raw, unsigned status, char why[300]);
void md_etcd_describe(const struct md_etcd *etcd, unsigned endpoint, const char *why, struct md_error *err);
/* The endpoint does not answer: the next one is asked from now on, unless another one is already. */
void md_etcd_leave(struct md_etcd *etcd, unsigned endpoint);
void md_etcd_say_unreached(struct md_etcd *etcd, const char *why);
void md_etcd_say_refused(struct md_etcd *etcd, unsigned what, const char *why);
void md_etcd_say_granted(struct md_etcd *etcd, unsigned what);
json_t *md_etcd_base64(const void *bytes, size_t size);
json_t *md_etcd_behind(const char *prefix);

/* ---- a user; auth: NULL: there is none, which is fine ---- */

struct md_etcd_wait {
	struct md_etcd_wait *next, **at;                         /* at: NULL: it does not wait */
	void (*done)(void *context, const struct md_error *err); /* err: NULL: there is a token, or none is wanted */
	void *context;
};

struct md_etcd_auth *md_etcd_auth_create(struct md_etcd *etcd, const char *user, const char *password);
void md_etcd_auth_destroy(struct md_etcd_auth *auth);
bool md_etcd_auth_set(struct md_etcd_auth *auth, const char *password);       /* false: out of memory */
bool md_etcd_auth_wait(struct md_etcd_auth *auth, struct md_etcd_wait *wait); /* false: nothing is to be waited for */
void md_etcd_auth_leave(struct md_etcd_wait *wait);
const char *md_etcd_auth_token(const struct md_etcd_auth *auth);
const char *md_etcd_auth_user(const struct md_etcd_auth *auth);
uint64_t md_etcd_auth_counted(const struct md_etcd_auth *auth);
/* etcd knows the token no longer, which was the last one when so many had been given. */
void md_etcd_auth_doubt(struct md_etcd_auth *auth, uint64_t counted);

#endif
