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
#define KEEP_S 1u /* of a lease that lasts for little more */
#define ANSWER_MAX (64u << 20)

struct md_etcd_call {
	struct md_etcd *etcd;
	const char *path; /* static */
	char *question;
	unsigned endpoint, tries;
	unsigned bound_s; /* 0: any time */
	unsigned status;  /* of HTTP */
	bool too_large;
	struct md_http_call *http;
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
	free(etcd);
}

const char *md_etcd_endpoint(const struct md_etcd *etcd)
{
	return etcd->endpoints[etcd->current].url;
}

static void say_reached(struct md_etcd *etcd, const char *why)
{
	bool changes = !etcd->known || etcd->reached == (why != NULL);
	etcd->known = true;
	etcd->reached = !why;
	if (changes)
		etcd->events->reached(etcd->context, why);
}

/* The endpoint does not answer: the next one is asked from now on, unless another one is already. */
static void leave(struct md_etcd *etcd, unsigned endpoint)
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

/* This endpoint has not answered: the next one is asked. */
static void try_next(struct md_etcd_call *call, const char *why)
{
	struct md_etcd *etcd = call->etcd;
	struct md_error err = {0};
	md_error_set(&err, MD_ERR_IO, "etcd at %.150s: %.300s", etcd->endpoints[call->endpoint].url, why);
	if (!call->bound_s) { /* a connection that is open for hours may be cut: that says little of the endpoint */
		end_call(call, NULL, &err);
		return;
	}
	leave(etcd, call->endpoint);
	call->endpoint = (call->endpoint + 1) % etcd->count;
	if (call->tries < etcd->count) {
		if (ask(call))
			return;
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	}
	end_call(call, NULL, &err);
	if (err.status == MD_ERR_IO)
		say_reached(etcd, err.message);
}

static const char *error_of(const json_t *answer, unsigned status, char text[32])
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
	snprintf(text, 32, "status %u", status);
	return message ? message : text;
}

/* Of a server that is there, but has no leader, or lost it on the way, others may know more. */
static bool is_for_others(unsigned status)
{
	return status >= 500;
}

static void judge(struct md_etcd_call *call)
{
	struct md_error err = {0};
	json_error_t error;
	char text[32];
	json_t *answer =
	    md_jansson_parse((const char *)call->answer.data, call->answer.size, JSON_DISABLE_EOF_CHECK, &error);
	const json_t *result = json_object_get(answer, "result"); /* of calls that might stream */
	const json_t *failure = json_object_get(answer, "error");
	if (call->status == 200 && json_is_object(answer) && !failure) {
		struct md_etcd *etcd = call->etcd;
		end_call(call, result ? result : answer, NULL);
		say_reached(etcd, NULL);
	} else if (is_for_others(call->status) || call->status == 200) {
		char why[200];
		snprintf(why, sizeof(why), "%.190s",
			 call->status == 200 && !failure ? "its answer is no JSON"
							 : error_of(answer, call->status, text));
		try_next(call, why);
	} else {
		struct md_etcd *etcd = call->etcd;
		md_error_set(&err, call->status == 404 ? MD_ERR_NOT_FOUND : MD_ERR_INVALID, "etcd at %.150s: %.300s",
			     etcd->endpoints[call->endpoint].url, error_of(answer, call->status, text));
		end_call(call, NULL, &err);
		say_reached(etcd, NULL);
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
	md_http_call_send(http, question, strlen(question), CONNECT_S, answer_s);
	return http;
}

static bool ask(struct md_etcd_call *call)
{
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

struct md_etcd_call *md_etcd_put_if(struct md_etcd *etcd, int64_t revision, const struct md_etcd_pair *pairs,
				    unsigned count, int64_t lease, md_etcd_done *done, void *context)
{
	const char *key = pairs[0].key, *target = revision ? "MOD" : "CREATE";
	json_t *compare = json_pack("[{s:o, s:s, s:s, s:o}]", "key", base64(key), "target", target, "result", "EQUAL",
				    revision ? "mod_revision" : "create_revision", number(revision));
	json_t *otherwise = json_pack("[{s:{s:o}}]", "request_range", "key", base64(key));
	return begin(etcd, "/v3/kv/txn",
		     json_pack("{s:o, s:o, s:o}", "compare", compare, "success", list_pairs(pairs, count, lease),
			       "failure", otherwise),
		     done, context);
}

struct md_etcd_call *md_etcd_put_while(struct md_etcd *etcd, const char *key, int64_t created,
				       const struct md_etcd_pair *pairs, unsigned count, md_etcd_done *done,
				       void *context)
{
	json_t *compare = json_pack("[{s:o, s:s, s:s, s:o}]", "key", base64(key), "target", "CREATE", "result", "EQUAL",
				    "create_revision", number(created));
	return begin(etcd, "/v3/kv/txn",
		     json_pack("{s:o, s:o}", "compare", compare, "success", list_pairs(pairs, count, 0)), done,
		     context);
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
