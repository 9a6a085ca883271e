/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/cluster/etcd_parts.h"

#define CONNECT_S 1u
#define KEEP_S 1u   /* of a lease that lasts for little more */
#define RENEWALS 3u /* while users are changed, a token may be refused that is new */
#define ANSWER_MAX (64u << 20)

struct md_etcd_call {
	struct md_etcd *etcd;
	const char *path; /* static */
	char *question;
	unsigned endpoint, tries;
	unsigned bound_s; /* 0: any time */
	unsigned status;  /* of HTTP */
	bool too_large;
	unsigned renewed; /* how often the token that it was sent with was refused */
	bool bare;        /* it was sent without one */
	uint64_t counted; /* tokens that had been given when it was sent */
	struct md_etcd_wait wait;
	struct md_http_call *http; /* NULL: it waits for a token */
	struct md_buf answer;
	md_etcd_done *done;
	void *context;
};

/* ---- endpoints ---- */

enum md_status md_etcd_create(struct event_base *base, struct md_http_outside *outside,
			      const struct md_config_texts *endpoints, const struct md_etcd_events *events,
			      void *context, struct md_etcd **made, struct md_error *err)
{
	struct md_etcd *etcd = calloc(1, sizeof(*etcd) + endpoints->count * sizeof(etcd->endpoints[0]));
	if (!etcd)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for etcd's endpoints");
	*etcd = (struct md_etcd){.base = base, .events = events, .context = context, .count = endpoints->count};
	for (unsigned i = 0; i < etcd->count; i++) {
		struct md_etcd_endpoint *endpoint = &etcd->endpoints[i];
		endpoint->url = endpoints->items[i];
		if (!md_http_remote_read(endpoint->url, &endpoint->remote, endpoint->prefix, endpoint->host)) {
			md_etcd_destroy(etcd);
			return md_error_set(err, MD_ERR_CORRUPT,
					    "etcd's endpoint \"%.200s\": http://HOST[:PORT] is wanted, or with https",
					    endpoints->items[i]);
		}
		endpoint->remote.outside = outside;
		endpoint->way = md_http_remote_way(&endpoint->remote, "etcd server");
	}
	*made = etcd;
	return MD_OK;
}

void md_etcd_destroy(struct md_etcd *etcd)
{
	if (etcd)
		md_etcd_auth_destroy(etcd->auth);
	free(etcd);
}

bool md_etcd_use(struct md_etcd *etcd, const char *user, const char *password)
{
	if (etcd->auth)
		return md_etcd_auth_set(etcd->auth, password);
	etcd->auth = md_etcd_auth_create(etcd, user, password);
	return etcd->auth;
}

bool md_etcd_refuses(const struct md_etcd *etcd)
{
	return etcd->standing == MD_ETCD_REFUSES;
}

const char *md_etcd_endpoint(const struct md_etcd *etcd)
{
	return etcd->endpoints[etcd->current].url;
}

static void say(struct md_etcd *etcd, unsigned standing, const char *why)
{
	bool changes = etcd->standing != standing;
	etcd->standing = standing;
	if (changes)
		etcd->events->reached(etcd->context, why);
}

void md_etcd_say_unreached(struct md_etcd *etcd, const char *why)
{
	say(etcd, MD_ETCD_UNREACHED, why);
}

void md_etcd_say_refused(struct md_etcd *etcd, unsigned what, const char *why)
{
	etcd->refused |= what;
	say(etcd, MD_ETCD_REFUSES, why);
}

/* What is refused stays so until the same is granted: leases are given to users without any right. */
void md_etcd_say_granted(struct md_etcd *etcd, unsigned what)
{
	etcd->refused &= ~what;
	if (!etcd->refused && what != MD_ETCD_AUTH) /* a token alone says little */
		say(etcd, MD_ETCD_REACHED, NULL);
}

static unsigned kind_of(const struct md_etcd_call *call)
{
	return !strcmp(call->path, "/v3/kv/range") ? MD_ETCD_RANGE
	       : !strcmp(call->path, "/v3/kv/txn") ? MD_ETCD_TXN
						   : MD_ETCD_OTHER;
}

void md_etcd_leave(struct md_etcd *etcd, unsigned endpoint)
{
	if (endpoint != etcd->current || etcd->count < 2)
		return;
	etcd->current = (endpoint + 1) % etcd->count;
	etcd->events->moved(etcd->context);
}

/* ---- one call ---- */

static bool ask(struct md_etcd_call *call);

static void free_call(struct md_etcd_call *call)
{
	md_etcd_auth_leave(&call->wait);
	md_http_call_cancel(call->http);
	md_buf_finish(&call->answer);
	free(call->question);
	free(call);
}

void md_etcd_cancel(struct md_etcd_call *call)
{
	if (call)
		free_call(call);
}

/* The call is gone before whoever waits for it is told. */
static void end_call(struct md_etcd_call *call, const json_t *answer, const struct md_error *err)
{
	md_etcd_done *done = call->done;
	void *context = call->context;
	free_call(call);
	done(context, answer, err);
}

/* A server that does not trust this side breaks the connection, and often nothing says why. */
void md_etcd_describe(const struct md_etcd *etcd, unsigned endpoint, const char *why, struct md_error *err)
{
	const struct md_etcd_endpoint *at = &etcd->endpoints[endpoint];
	bool broke = at->remote.tls && strstr(why, "broke:");
	md_error_set(err, MD_ERR_IO, "etcd at %.150s: %.250s%s", at->url, why,
		     broke ? ": it may want another certificate of this node (medusa.cluster.etcd_tls)" : "");
}

/* This endpoint has not answered: the next one is asked. */
static void try_next(struct md_etcd_call *call, const char *why)
{
	struct md_etcd *etcd = call->etcd;
	struct md_error err = {0};
	md_etcd_describe(etcd, call->endpoint, why, &err);
	if (!call->bound_s) { /* a connection that is open for hours may be cut: that says little of the endpoint */
		end_call(call, NULL, &err);
		return;
	}
	md_etcd_leave(etcd, call->endpoint);
	call->endpoint = (call->endpoint + 1) % etcd->count;
	if (call->tries < etcd->count) {
		if (ask(call))
			return;
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	}
	end_call(call, NULL, &err);
	if (err.status == MD_ERR_IO)
		md_etcd_say_unreached(etcd, err.message);
}

/* Of an answer that is no JSON, its first line. */
void md_etcd_explain(const json_t *answer, const struct md_buf *raw, unsigned status, char why[300])
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
	const char *text = raw->size ? (const char *)raw->data : "";
	int size = (int)(raw->size < 200 ? raw->size : 200), line = 0;
	while (line < size && text[line] >= ' ' && text[line] < 0x7f)
		line++;
	if (message)
		snprintf(why, 300, "%s", message);
	else if (!answer && line >= 10 && !strncmp(text, "CommonName", 10))
		snprintf(why, 300, MD_ETCD_NO_NAMES " (medusa.cluster.etcd_tls.certificate)");
	else
		snprintf(why, 300, "status %u%s%.*s", status, !answer && line ? ": " : "", answer ? 0 : line, text);
}

/* Of a server that is there, but has no leader, or lost it on the way, others may know more. */
static bool is_for_others(unsigned status)
{
	return status >= 500;
}

/* ---- refusals ---- */

static bool says(const char *message, const char *what)
{
	return strstr(message, what) != NULL;
}

/* etcd was started anew, users were changed, or the token was not used for a long time. */
static bool is_of_token(const char *message)
{
	return says(message, "invalid auth token") || says(message, "revision of auth store is old") ||
	       says(message, "user name is empty");
}

/* True: the call goes on with another token. Users may be wanted since etcd was asked for one and had none. */
static bool renew_token(struct md_etcd_call *call, const char *message)
{
	bool wants_user = call->bare && says(message, "permission denied");
	if (!call->etcd->auth || call->renewed >= RENEWALS || !(wants_user || is_of_token(message)))
		return false;
	call->renewed++;
	call->tries--;
	md_etcd_auth_doubt(call->etcd->auth, call->counted);
	return ask(call);
}

static void refuse(struct md_etcd_call *call, const char *message)
{
	struct md_etcd *etcd = call->etcd;
	struct md_error err = {0};
	const char *user = md_etcd_auth_user(etcd->auth), *url = etcd->endpoints[call->endpoint].url;
	unsigned what = call->bound_s ? kind_of(call) : 0;
	bool denied = call->status == 403 || says(message, "permission denied");
	if (denied && user)
		md_error_set(&err, MD_ERR_INVALID,
			     "etcd at %.150s: %.100s: the role of user %.60s needs readwrite on all keys below "
			     "medusa.cluster.prefix",
			     url, message, user);
	else if (denied || (!user && is_of_token(message)))
		md_error_set(&err, MD_ERR_INVALID,
			     "etcd at %.150s: %.100s: say medusa.cluster.etcd_user and its password", url, message);
	else
		md_error_set(&err, call->status == 404 ? MD_ERR_NOT_FOUND : MD_ERR_INVALID, "etcd at %.150s: %.300s",
			     url, message);
	denied = denied || is_of_token(message) || says(message, MD_ETCD_NO_NAMES);
	end_call(call, NULL, &err);
	if (denied && what)
		md_etcd_say_refused(etcd, what, err.message);
	else if (!denied)
		md_etcd_say_granted(etcd, what);
}

static void judge(struct md_etcd_call *call)
{
	json_error_t error;
	char why[300];
	json_t *answer =
	    md_jansson_parse((const char *)call->answer.data, call->answer.size, JSON_DISABLE_EOF_CHECK, &error);
	const json_t *result = json_object_get(answer, "result"); /* of calls that might stream */
	const json_t *failure = json_object_get(answer, "error");
	md_etcd_explain(answer, &call->answer, call->status, why);
	if (call->status == 200 && json_is_object(answer) && !failure) {
		struct md_etcd *etcd = call->etcd;
		unsigned what = kind_of(call);
		end_call(call, result ? result : answer, NULL);
		md_etcd_say_granted(etcd, what);
	} else if (call->status == 200 && !failure) {
		try_next(call, "its answer is no JSON");
	} else if (is_for_others(call->status) || call->status == 200) {
		try_next(call, why);
	} else if (!renew_token(call, why)) {
		refuse(call, why);
	}
	json_decref(answer);
}

static void on_head(void *context, const struct md_http_head *head)
{
	((struct md_etcd_call *)context)->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_etcd_call *call = context;
	call->too_large = call->too_large || call->answer.size + size > ANSWER_MAX;
	if (!call->too_large)
		md_buf_put(&call->answer, bytes, size);
}

static void on_end(void *context)
{
	struct md_etcd_call *call = context;
	struct md_error err = {0};
	call->http = NULL;
	if (!call->answer.failed && !call->too_large) {
		judge(call);
		return;
	}
	if (call->too_large)
		md_error_set(&err, MD_ERR_INVALID, "etcd's answer has more than %u MiB", ANSWER_MAX >> 20);
	else
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for etcd's answer");
	end_call(call, NULL, &err);
}

static void on_failed(void *context, const char *why)
{
	struct md_etcd_call *call = context;
	call->http = NULL;
	try_next(call, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

struct md_http_call *md_etcd_post(struct md_etcd *etcd, unsigned endpoint, const char *path, const char *question,
				  unsigned answer_s, const struct md_http_call_events *events, void *context)
{
	const struct md_etcd_endpoint *at = &etcd->endpoints[endpoint];
	char target[320];
	snprintf(target, sizeof(target), "%s%s", at->prefix, path);
	struct md_http_call *http = md_http_call_begin_by(etcd->base, &at->way, "POST", target, events, context);
	if (!http)
		return NULL;
	md_http_call_header(http, "Host", at->host);
	md_http_call_header(http, "Content-Type", "application/json");
	if (md_etcd_auth_token(etcd->auth))
		md_http_call_header(http, "Authorization", md_etcd_auth_token(etcd->auth));
	md_http_call_send(http, question, strlen(question), CONNECT_S, answer_s);
	return http;
}

static void on_token(void *context, const struct md_error *err)
{
	struct md_etcd_call *call = context;
	struct md_error lacks = {0};
	if (!err && ask(call))
		return;
	md_error_set(&lacks, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	end_call(call, NULL, err ? err : &lacks);
}

static bool ask(struct md_etcd_call *call)
{
	call->wait.done = on_token;
	call->wait.context = call;
	if (md_etcd_auth_wait(call->etcd->auth, &call->wait))
		return true;
	call->counted = md_etcd_auth_counted(call->etcd->auth);
	call->bare = !md_etcd_auth_token(call->etcd->auth);
	call->tries++;
	call->status = 0;
	call->too_large = false;
	md_buf_clear(&call->answer);
	call->http =
	    md_etcd_post(call->etcd, call->endpoint, call->path, call->question, call->bound_s, &calling, call);
	if (call->http)
		md_http_call_bound(call->http, call->bound_s);
	return call->http;
}

/* Takes over the reference to question. */
static struct md_etcd_call *begin_within(struct md_etcd *etcd, const char *path, json_t *question, unsigned bound_s,
					 md_etcd_done *done, void *context)
{
	struct md_etcd_call *call = calloc(1, sizeof(*call));
	char *text = question ? md_jansson_print(question, JSON_COMPACT) : NULL;
	json_decref(question);
	if (!call || !text) {
		free(text);
		free(call);
		return NULL;
	}
	*call = (struct md_etcd_call){.etcd = etcd,
				      .path = path,
				      .question = text,
				      .endpoint = etcd->current,
				      .bound_s = bound_s,
				      .done = done,
				      .context = context};
	if (ask(call))
		return call;
	free_call(call);
	return NULL;
}

static struct md_etcd_call *begin(struct md_etcd *etcd, const char *path, json_t *question, md_etcd_done *done,
				  void *context)
{
	return begin_within(etcd, path, question, MD_ETCD_ANSWER_S, done, context);
}

/* ---- texts of the gateway ---- */

static json_t *number(int64_t value)
{
	char text[24];
	snprintf(text, sizeof(text), "%" PRId64, value);
	return json_string(text);
}

json_t *md_etcd_base64(const void *bytes, size_t size)
{
	size_t room = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
	MD_AUTO_FREE char *text = malloc(room);
	if (!text)
		return NULL;
	sodium_bin2base64(text, room, bytes, size, sodium_base64_VARIANT_ORIGINAL);
	return json_string(text);
}

static json_t *base64(const char *text)
{
	return md_etcd_base64(text, strlen(text));
}

/* The first key behind all that begin with the prefix, which ends with '/'. */
json_t *md_etcd_behind(const char *prefix)
{
	MD_AUTO_FREE char *end = strdup(prefix);
	if (!end)
		return NULL;
	end[strlen(end) - 1]++;
	return base64(end);
}

int64_t md_etcd_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);
	char *end;
	if (!text)
		return json_integer_value(value);
	errno = 0;
	long long read = strtoll(text, &end, 10);
	return errno || *end ? 0 : read;
}

int64_t md_etcd_revision(const json_t *answer)
{
	return md_etcd_number(json_object_get(answer, "header"), "revision");
}

bool md_etcd_bytes(const json_t *object, const char *key, struct md_buf *bytes)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);
	size_t size = json_string_length(value), got;
	unsigned char *room = text ? md_buf_extend(bytes, size / 4 * 3 + 4) : NULL;
	if (!room ||
	    sodium_base642bin(room, bytes->size - 1, text, size, NULL, &got, NULL, sodium_base64_VARIANT_ORIGINAL))
		return false;
	room[got] = '\0';
	bytes->size = got;
	return true;
}

/* ---- orders ---- */

struct md_etcd_call *md_etcd_grant(struct md_etcd *etcd, unsigned ttl_s, md_etcd_done *done, void *context)
{
	return begin(etcd, "/v3/lease/grant", json_pack("{s:o}", "TTL", number(ttl_s)), done, context);
}

struct md_etcd_call *md_etcd_keep(struct md_etcd *etcd, int64_t lease, md_etcd_done *done, void *context)
{
	return begin_within(etcd, "/v3/lease/keepalive", json_pack("{s:o}", "ID", number(lease)), KEEP_S, done,
			    context);
}

struct md_etcd_call *md_etcd_revoke(struct md_etcd *etcd, int64_t lease, md_etcd_done *done, void *context)
{
	return begin(etcd, "/v3/lease/revoke", json_pack("{s:o}", "ID", number(lease)), done, context);
}

struct md_etcd_call *md_etcd_range(struct md_etcd *etcd, const char *prefix, const char *from, unsigned most,
				   int64_t revision, md_etcd_done *done, void *context)
{
	return begin(etcd, "/v3/kv/range",
		     json_pack("{s:o, s:o, s:o, s:o}", "key", base64(from), "range_end", md_etcd_behind(prefix),
			       "limit", number(most), "revision", number(revision)),
		     done, context);
}

struct md_etcd_call *md_etcd_get(struct md_etcd *etcd, const char *key, md_etcd_done *done, void *context)
{
	return begin(etcd, "/v3/kv/range", json_pack("{s:o}", "key", base64(key)), done, context);
}

static json_t *describe_pair(const struct md_etcd_pair *pair, int64_t lease)
{
	if (!pair->value)
		return json_pack("{s:{s:o}}", "request_delete_range", "key", base64(pair->key));
	return json_pack("{s:{s:o, s:o, s:o}}", "request_put", "key", base64(pair->key), "value", base64(pair->value),
			 "lease", number(lease));
}

static json_t *list_pairs(const struct md_etcd_pair *pairs, unsigned count, int64_t lease)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < count; i++)
		json_array_append_new(list, describe_pair(&pairs[i], lease));
	return list;
}

static json_t *was_changed_by(const char *key, int64_t revision)
{
	return json_pack("{s:o, s:s, s:s, s:o}", "key", base64(key), "target", revision ? "MOD" : "CREATE", "result",
			 "EQUAL", revision ? "mod_revision" : "create_revision", number(revision));
}

static json_t *was_made_by(const char *key, int64_t created)
{
	return json_pack("{s:o, s:s, s:s, s:o}", "key", base64(key), "target", "CREATE", "result", "EQUAL",
			 "create_revision", number(created));
}

struct md_etcd_call *md_etcd_put_if(struct md_etcd *etcd, int64_t revision, const struct md_etcd_pair *pairs,
				    unsigned count, int64_t lease, md_etcd_done *done, void *context)
{
	json_t *compare = json_pack("[o]", was_changed_by(pairs[0].key, revision));
	json_t *otherwise = json_pack("[{s:{s:o}}]", "request_range", "key", base64(pairs[0].key));
	return begin(etcd, "/v3/kv/txn",
		     json_pack("{s:o, s:o, s:o}", "compare", compare, "success", list_pairs(pairs, count, lease),
			       "failure", otherwise),
		     done, context);
}

struct md_etcd_call *md_etcd_put_while(struct md_etcd *etcd, const char *key, int64_t created,
				       const struct md_etcd_pair *pairs, unsigned count, md_etcd_done *done,
				       void *context)
{
	json_t *compare = json_pack("[o]", was_made_by(key, created));
	return begin(etcd, "/v3/kv/txn",
		     json_pack("{s:o, s:o}", "compare", compare, "success", list_pairs(pairs, count, 0)), done,
		     context);
}

struct md_etcd_call *md_etcd_put_if_while(struct md_etcd *etcd, int64_t revision, const struct md_etcd_pair *pair,
					  const char *guard, int64_t created, md_etcd_done *done, void *context)
{
	json_t *compare = json_pack("[o, o]", was_changed_by(pair->key, revision), was_made_by(guard, created));
	return begin(etcd, "/v3/kv/txn", json_pack("{s:o, s:o}", "compare", compare, "success", list_pairs(pair, 1, 0)),
		     done, context);
}

struct md_etcd_call *md_etcd_campaign(struct md_etcd *etcd, const char *election, const char *value, int64_t lease,
				      md_etcd_done *done, void *context)
{
	return begin_within(
	    etcd, "/v3/election/campaign",
	    json_pack("{s:o, s:o, s:o}", "name", base64(election), "value", base64(value), "lease", number(lease)), 0,
	    done, context);
}

const json_t *md_etcd_found(const json_t *answer)
{
	const json_t *first = json_array_get(json_object_get(answer, "responses"), 0);
	return json_array_get(json_object_get(json_object_get(first, "response_range"), "kvs"), 0);
}

bool md_etcd_succeeded(const json_t *answer)
{
	return json_is_true(json_object_get(answer, "succeeded"));
}
