/* SPDX-License-Identifier: Apache-2.0 */
/* A user of etcd: a password is given for a token once, and again when etcd knows the token no longer. Neither stands in any message. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/cluster/etcd_parts.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define ANSWER_MAX 65536u
#define TOKEN_MAX 8192u
#define REST_NS UINT64_C(5000000000) /* after a refusal: etcd's comparison of a password is slow on purpose */

struct md_etcd_auth {
	struct md_etcd *etcd;
	char *user, *password;
	char *token;      /* NULL: none yet */
	bool off;         /* etcd wants no users */
	uint64_t counted; /* tokens that were given */
	struct md_http_call *http;
	struct md_buf answer;
	unsigned endpoint, tries, status;
	struct md_etcd_wait *waiting;
	struct event *turn;
	struct md_error refused; /* why etcd has refused the user last; OK: it has not */
	uint64_t rests;          /* ns: until then it is not asked again */
};

static void forget_text(char **text)
{
	if (*text)
		sodium_memzero(*text, strlen(*text));
	free(md_steal_ptr(text));
}

static void clear_answer(struct md_etcd_auth *auth)
{
	if (auth->answer.size)
		sodium_memzero(auth->answer.data, auth->answer.size);
	md_buf_clear(&auth->answer);
}

/* ---- who waits for a token ---- */

static void tell(struct md_etcd_auth *auth, const struct md_error *err)
{
	struct md_etcd_wait *list = auth->waiting;
	auth->waiting = NULL;
	if (list)
		list->at = &list;
	while (list) {
		struct md_etcd_wait *wait = list;
		md_etcd_auth_leave(wait);
		wait->done(wait->context, err);
	}
}

void md_etcd_auth_leave(struct md_etcd_wait *wait)
{
	if (!wait->at)
		return;
	*wait->at = wait->next;
	if (wait->next)
		wait->next->at = wait->at;
	wait->at = NULL;
}

/* ---- asking for one ---- */

static bool ask(struct md_etcd_auth *auth);

/* The user is refused, for whatever reason: those who wait are, too, and so is who asks within the next seconds. */
static void refuse(struct md_etcd_auth *auth, const char *why)
{
	md_error_set(&auth->refused, MD_ERR_INVALID, "etcd at %.150s: user %.60s: %.160s%s",
		     auth->etcd->endpoints[auth->endpoint].url, auth->user, why,
		     strstr(why, MD_ETCD_NO_NAMES) ? "" : ": look at medusa.cluster.etcd_user and its password");
	auth->rests = md_clock_ns() + REST_NS;
	struct md_error err = auth->refused;
	md_etcd_say_refused(auth->etcd, MD_ETCD_AUTH, err.message);
	tell(auth, &err);
}

static void give(struct md_etcd_auth *auth, const char *token)
{
	forget_text(&auth->token);
	auth->token = strdup(token);
	auth->counted++;
	auth->off = false;
	auth->refused.status = MD_OK;
	md_etcd_say_granted(auth->etcd, MD_ETCD_AUTH);
	if (auth->token) {
		tell(auth, NULL);
		return;
	}
	struct md_error err = {0};
	md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for etcd's token");
	tell(auth, &err);
}

static void go_without(struct md_etcd_auth *auth)
{
	if (!auth->off)
		md_warn("cluster: etcd at %.150s asks for no users, although medusa.cluster.etcd_user is set: whoever "
			"reaches it may change the cluster, until \"etcdctl auth enable\"",
			auth->etcd->endpoints[auth->endpoint].url);
	auth->off = true;
	auth->refused.status = MD_OK;
	md_etcd_say_granted(auth->etcd, MD_ETCD_AUTH);
	tell(auth, NULL);
}

static void try_next(struct md_etcd_auth *auth, const char *why)
{
	struct md_etcd *etcd = auth->etcd;
	struct md_error err = {0};
	md_etcd_describe(etcd, auth->endpoint, why, &err);
	md_etcd_leave(etcd, auth->endpoint);
	auth->endpoint = (auth->endpoint + 1) % etcd->count;
	if (auth->tries < etcd->count && ask(auth))
		return;
	md_etcd_say_unreached(etcd, err.message);
	tell(auth, &err);
}

static void judge(struct md_etcd_auth *auth)
{
	json_error_t error;
	char why[300];
	json_t *answer =
	    md_jansson_parse((const char *)auth->answer.data, auth->answer.size, JSON_DISABLE_EOF_CHECK, &error);
	const char *token = json_string_value(json_object_get(answer, "token"));
	md_etcd_explain(answer, &auth->answer, auth->status, why);
	clear_answer(auth);
	if (auth->status == 200 && token && *token && strlen(token) < TOKEN_MAX)
		give(auth, token);
	else if (strstr(why, "authentication is not enabled"))
		go_without(auth);
	else if (auth->status >= 500 || auth->status == 200)
		try_next(auth, auth->status == 200 ? "its answer has no token" : why);
	else
		refuse(auth, why);
	json_decref(answer);
}

static void on_head(void *context, const struct md_http_head *head)
{
	((struct md_etcd_auth *)context)->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_etcd_auth *auth = context;
	if (auth->answer.size + size <= ANSWER_MAX)
		md_buf_put(&auth->answer, bytes, size);
}

static void on_end(void *context)
{
	struct md_etcd_auth *auth = context;
	auth->http = NULL;
	judge(auth);
}

static void on_failed(void *context, const char *why)
{
	struct md_etcd_auth *auth = context;
	char kept[300];
	auth->http = NULL;
	snprintf(kept, sizeof(kept), "%s", why);
	try_next(auth, kept);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

/* False: out of memory. */
static bool ask(struct md_etcd_auth *auth)
{
	json_t *question = json_pack("{s:s, s:s}", "name", auth->user, "password", auth->password);
	char *text = question ? md_jansson_print(question, JSON_COMPACT) : NULL;
	json_decref(question);
	auth->tries++;
	auth->status = 0;
	clear_answer(auth);
	if (text)
		auth->http = md_etcd_post(auth->etcd, auth->endpoint, "/v3/auth/authenticate", text, MD_ETCD_ANSWER_S,
					  &calling, auth);
	if (auth->http)
		md_http_call_bound(auth->http, MD_ETCD_ANSWER_S);
	forget_text(&text);
	return auth->http;
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct md_etcd_auth *auth = context;
	struct md_error err = {0};
	(void)fd, (void)what;
	if (auth->http || !auth->waiting)
		return;
	if (auth->refused.status != MD_OK && md_clock_ns() < auth->rests) {
		err = auth->refused;
		tell(auth, &err);
		return;
	}
	auth->endpoint = auth->etcd->current;
	auth->tries = 0;
	if (ask(auth))
		return;
	md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	tell(auth, &err);
}

bool md_etcd_auth_wait(struct md_etcd_auth *auth, struct md_etcd_wait *wait)
{
	if (!auth || auth->token || auth->off)
		return false;
	wait->next = auth->waiting;
	wait->at = &auth->waiting;
	if (wait->next)
		wait->next->at = &wait->next;
	auth->waiting = wait;
	event_active(auth->turn, EV_TIMEOUT, 0);
	return true;
}

const char *md_etcd_auth_token(const struct md_etcd_auth *auth)
{
	return auth ? auth->token : NULL;
}

const char *md_etcd_auth_user(const struct md_etcd_auth *auth)
{
	return auth ? auth->user : NULL;
}

uint64_t md_etcd_auth_counted(const struct md_etcd_auth *auth)
{
	return auth ? auth->counted : 0;
}

void md_etcd_auth_doubt(struct md_etcd_auth *auth, uint64_t counted)
{
	if (!auth || auth->counted != counted)
		return;
	forget_text(&auth->token);
	auth->off = false;
}

/* ---- all of it ---- */

bool md_etcd_auth_set(struct md_etcd_auth *auth, const char *password)
{
	char *copy = strdup(password);
	if (!copy)
		return false;
	forget_text(&auth->password);
	auth->password = copy;
	auth->rests = 0;
	return true;
}

struct md_etcd_auth *md_etcd_auth_create(struct md_etcd *etcd, const char *user, const char *password)
{
	struct md_etcd_auth *auth = calloc(1, sizeof(*auth));
	if (!auth)
		return NULL;
	*auth = (struct md_etcd_auth){.etcd = etcd, .user = strdup(user)};
	auth->turn = event_new(etcd->base, -1, 0, on_turn, auth);
	if (auth->user && auth->turn && md_etcd_auth_set(auth, password))
		return auth;
	md_etcd_auth_destroy(auth);
	return NULL;
}

void md_etcd_auth_destroy(struct md_etcd_auth *auth)
{
	if (!auth)
		return;
	md_http_call_cancel(auth->http);
	clear_answer(auth);
	md_buf_finish(&auth->answer);
	if (auth->turn)
		event_free(auth->turn);
	forget_text(&auth->password);
	forget_text(&auth->token);
	free(auth->user);
	free(auth);
}
