/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what a request is for: a page of the worker's own, or a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/cluster/prefixes.h"
#include "worker/cluster/route.h"
#include "worker/core/api_keys.h"
#include "worker/core/multipart.h"
#include "worker/core/naming.h"
#include "worker/core/pages.h"
#include "worker/core/reply.h"
#include "worker/core/rewrite.h"
#include "worker/core/target.h"
#include "worker/core/worker.h"
#include "worker/page/status_page.h"

/* ---- requests for models ---- */

static const char *const model_posts[] = {"/v1/chat/completions",
					  "/v1/responses",
					  "/v1/completions",
					  "/v1/messages",
					  "/v1/messages/count_tokens",
					  "/v1/embeddings",
					  "/v1/rerank",
					  "/v1/reranking",
					  "/v1/audio/speech",
					  "/v1/audio/voices",
					  "/v1/audio/transcriptions",
					  "/v1/images/generations",
					  "/v1/images/edits",
					  "/rerank",
					  "/reranking",
					  "/infill",
					  "/completion",
					  "/sdapi/v1/txt2img",
					  "/sdapi/v1/img2img",
					  "/tokenize",
					  "/detokenize",
					  NULL};
static const char *const model_gets[] = {"/v1/audio/voices", "/sdapi/v1/loras", "/props", NULL};

static bool is_among(const char *path, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(path, *list))
			return true;
	return false;
}

static bool is_method(const struct md_http_exchange *exchange, const char *method)
{
	return !strcmp(md_http_exchange_head(exchange)->method, method);
}

/* The target as the engine gets it: its URL's prefix, then what the client asked for. */
static char *make_target(const struct md_model *model, const char *local)
{
	char *made;
	return asprintf(&made, "%s%s", model->prefix, local) < 0 ? NULL : made;
}

/* An engine whose starts fail, or that ends with whatever it is asked, is not started for every request. True: the client was told. */
static bool refuse_at_rest(struct md_model *model, uint32_t tenant, struct md_http_exchange *exchange)
{
	const struct md_model *host = md_model_with_engine(model);
	uint64_t rest = md_model_keep_rest(host);
	if (!rest)
		return false;
	MD_COUNT(model, tenant, taken, 1);
	MD_COUNT(model, tenant, failed, 1);
	md_reply_error(
	    exchange, MD_REPLY_RESTING, NULL,
	    "model %.100s: its engine %.300s; it was started %u times without an answer, and a request starts it "
	    "again in %u s",
	    model->id, host->last_failure, host->keep.starts_failed, (unsigned)(rest / 1000000000u) + 1);
	return true;
}

static void give(struct md_model *model, struct md_http_exchange *exchange, const char *local, char *body, size_t size,
		 bool stream)
{
	uint32_t tenant = md_tenants_of(model->worker, model, md_http_exchange_head(exchange));
	if (md_drain_is_on(model->worker->drain)) {
		free(body);
		MD_COUNT(model, tenant, taken, 1);
		MD_COUNT(model, tenant, refused, 1);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "draining", "the daemon takes no more requests");
		return;
	}
	if (model->unfinished >= model->config->concurrency) {
		free(body);
		MD_COUNT(model, tenant, taken, 1);
		MD_COUNT(model, tenant, limited, 1);
		md_reply_error(exchange, MD_REPLY_BUSY, "concurrency_limit",
			       "model %s has %u requests already, and its concurrencyLimit is %u", model->id,
			       model->unfinished, model->config->concurrency);
		return;
	}
	if (refuse_at_rest(model, tenant, exchange)) {
		free(body);
		return;
	}
	md_job_take(model, exchange, make_target(model, local), body, size, stream);
}

/* ---- whose request it is ---- */

/* False: the client was told that nobody is called so. */
static bool tell_naming(struct md_worker *worker, struct md_http_exchange *exchange, enum md_naming naming,
			const char *name)
{
	if (naming == MD_NAMING_FOUND)
		return true;
	if (naming == MD_NAMING_DISABLED)
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found",
			       "the name \"%.200s\" is disabled while profile %.60s is active", name, worker->profile);
	else if (!*name)
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, NULL,
			       "no model id could be identified: \"model\" is missing");
	else if (!md_route_refuse(worker, exchange, name))
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found",
			       "no model is called \"%.200s\": GET /v1/models lists those that are", name);
	return false;
}

/* What is called so here, or nothing is, may be computed by another node of the cluster. */
static enum md_naming route(const struct md_worker *worker, const struct md_http_exchange *exchange, const char *name,
			    enum md_naming naming, struct md_named *named)
{
	const char *asked = named->name ? named->name : name;
	bool peer = naming == MD_NAMING_FOUND && !named->model;
	if (peer && md_cluster_is_node(worker->cluster, md_http_exchange_head(exchange)))
		return MD_NAMING_UNKNOWN; /* what another node has passed on goes no further */
	if (peer || naming == MD_NAMING_DISABLED)
		return naming;
	named->node = md_route_choose(worker, md_http_exchange_head(exchange), asked, named->model);
	if (!named->node)
		return naming;
	named->model = NULL;
	return MD_NAMING_FOUND;
}

static bool find(struct md_worker *worker, struct md_http_exchange *exchange, const char *name, struct md_named *named)
{
	enum md_naming naming = MD_NAMING_UNKNOWN;
	*named = (struct md_named){0};
	if (*name)
		naming = route(worker, exchange, name, md_naming_find(worker, name, named), named);
	return tell_naming(worker, exchange, naming, name);
}

/* What stands as "model" in the request to whoever answers; NULL: what the client has said. */
static const char *name_there(const struct md_named *named, const char *asked)
{
	if (named->model && *named->model->config->use_model_name)
		return named->model->config->use_model_name;
	return named->name && strcmp(named->name, asked) ? named->name : NULL;
}

/* target: as whoever answers gets it, but for its URL's prefix; the body (NULL: the exchange's) is taken over. */
static void pass(struct md_worker *worker, const struct md_named *named, struct md_http_exchange *exchange,
		 const char *target, char *body, size_t size, bool stream)
{
	if (named->model)
		give(named->model, exchange, target, body, size, stream);
	else if (named->node)
		md_route_pass(worker, named->node, exchange,
			      &(struct md_pass_request){
				  .path = strdup(target), .body = body, .body_size = size, .stream = stream});
	else
		md_peer_take(worker, exchange,
			     &(struct md_peer_request){.peer = named->peer,
						       .model = named->peer_model,
						       .target = strdup(target),
						       .body = body,
						       .body_size = size,
						       .stream = stream});
}

static void take_get(struct md_worker *worker, struct md_http_exchange *exchange)
{
	const char *target =
	    md_http_exchange_head(exchange) ? md_http_head_target(md_http_exchange_head(exchange)) : "";
	char name[MD_TARGET_MAX] = "", *changed = NULL;
	struct md_named named;
	md_target_value(md_target_query(target), "model", name, sizeof(name));
	if (!find(worker, exchange, name, &named))
		return;
	const char *local = md_target_local(target), *there = named.model ? NULL : name_there(&named, name);
	if (there && !(changed = md_target_replace(local, "model", there)))
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
	else
		pass(worker, &named, exchange, changed ? changed : local, NULL, 0, false);
	free(changed);
}

/* The fields of a form that the worker reads; false: the client has been told that it is none. */
static bool read_form(struct md_http_exchange *exchange, const char *type, struct md_multipart_field *model,
		      struct md_multipart_field *stream)
{
	size_t size;
	const char *body = md_http_exchange_body(exchange, &size);
	const char *why = md_multipart_find(type, body, size, "model", model);
	why = why ? why : md_multipart_find(type, body, size, "stream", stream);
	if (why)
		md_reply_error(exchange, MD_REPLY_BAD_REQUEST, "invalid_form", "the body of the request: %s", why);
	return !why;
}

/* A form with files, such as sound to be transcribed: passed on as it is, but for the model's name. */
static void take_form(struct md_worker *worker, struct md_http_exchange *exchange, const char *type)
{
	const char *target = md_http_head_target(md_http_exchange_head(exchange));
	struct md_multipart_field field, stream;
	struct md_named named;
	char name[MD_TARGET_MAX] = "", *changed = NULL;
	size_t size, changed_size = 0;
	const char *body = md_http_exchange_body(exchange, &size);
	if (!read_form(exchange, type, &field, &stream))
		return;
	if (field.value && field.size >= sizeof(name)) {
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found",
			       "no model is called as the form's field \"model\" says, which has %zu bytes",
			       field.size);
		return;
	}
	if (field.value)
		snprintf(name, sizeof(name), "%.*s", (int)field.size, field.value);
	else
		md_target_value(md_target_query(target), "model", name, sizeof(name));
	if (!find(worker, exchange, name, &named))
		return;
	bool streamed = stream.value && stream.size == 4 && !memcmp(stream.value, "true", 4);
	const char *there = field.value ? name_there(&named, name) : NULL;
	if (there) {
		changed = md_multipart_replace(body, size, &field, there, &changed_size);
		if (!changed) {
			md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
			return;
		}
	}
	pass(worker, &named, exchange, md_target_local(target), changed, changed_size, streamed);
}

/* A node of the cluster filters what it computes by its own configuration. */
static const struct md_config_filters *filters_of(const struct md_worker *worker, const struct md_named *named)
{
	static const struct md_config_filters none;
	if (named->node)
		return &none;
	return named->model ? &named->model->config->filters : &worker->config->peers[named->peer].filters;
}

static void refuse_body(struct md_http_exchange *exchange, const struct md_rewrite_body *read)
{
	md_reply_error(exchange, read->no_memory ? MD_REPLY_UNAVAILABLE : MD_REPLY_BAD_REQUEST,
		       read->no_memory ? NULL : "invalid_json", "the body of the request is not taken: %s", read->why);
}

static void take_post(struct md_worker *worker, struct md_http_exchange *exchange)
{
	const char *type = md_http_head_find(md_http_exchange_head(exchange), "Content-Type");
	if (md_multipart_is(type)) {
		take_form(worker, exchange, type);
		return;
	}
	const char *target = md_http_head_target(md_http_exchange_head(exchange));
	struct md_rewrite_body read;
	size_t size, changed_size;
	const char *body = md_http_exchange_body(exchange, &size);
	char *changed;
	if (!md_rewrite_read(body, size, &read)) {
		refuse_body(exchange, &read);
		return;
	}
	struct md_named named;
	md_prefixes_begin(worker, target, &read);
	if (find(worker, exchange, read.model, &named)) {
		struct md_rewrite_wish wish = {.filters = filters_of(worker, &named),
					       .asked = named.name ? named.name : read.model,
					       .name = name_there(&named, read.model)};
		if (md_rewrite_apply(&wish, &read, &changed, &changed_size))
			pass(worker, &named, exchange, md_target_local(target), changed, changed_size, read.stream);
		else
			refuse_body(exchange, &read);
	}
	md_prefixes_end(worker);
	md_rewrite_finish(&read);
}

/* ---- /upstream/NAME/rest ---- */

/* The longest beginning of "a/b/c" that is a model's name; *rest is what follows it. */
static enum md_naming find_prefix(struct md_worker *worker, const struct md_http_exchange *exchange, const char *path,
				  struct md_named *named, const char **rest)
{
	char name[MD_TARGET_MAX];
	size_t size = strlen(path);
	*named = (struct md_named){0};
	*rest = path + size;
	while (size) {
		snprintf(name, sizeof(name), "%.*s", (int)size, path);
		enum md_naming naming = md_naming_find_one(worker, name, named);
		if (naming != MD_NAMING_FOUND)
			naming = route(worker, exchange, name, naming, named);
		*rest = path + size;
		if (naming != MD_NAMING_UNKNOWN)
			return naming;
		while (size && path[size - 1] != '/')
			size--;
		size -= size != 0;
	}
	return MD_NAMING_UNKNOWN;
}

/* Behind so many bytes of what it says when it is decoded, which it can be. */
static const char *skip_decoded(const char *target, size_t bytes)
{
	for (; bytes; bytes--)
		target += *target == '%' ? 3 : 1;
	return target;
}

/* What the engine is asked for: the rest as it was sent, but for its first slash, which may be "%2F". */
static void keep_rest(const char *rest, char kept[MD_TARGET_MAX])
{
	snprintf(kept, MD_TARGET_MAX, "/%s", skip_decoded(rest, 1));
}

static void take_upstream(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *local = md_target_local(md_http_head_target(md_http_exchange_head(exchange))), *rest;
	struct md_named named;
	if (!tell_naming(worker, exchange, find_prefix(worker, exchange, path, &named, &rest), path))
		return;
	const struct md_model *model = named.model;
	if (!*rest) {
		char location[MD_TARGET_MAX];
		snprintf(location, sizeof(location), "%.*s/%s", (int)strcspn(local, "?"), local,
			 local + strcspn(local, "?"));
		bool reads = is_method(exchange, "GET") || is_method(exchange, "HEAD");
		md_http_answer_begin(exchange, reads ? 301 : 308, 0);
		md_http_answer_header(exchange, "Location", location);
		md_http_answer_body(exchange);
		md_http_answer_end(exchange);
		return;
	}
	if (model && md_engine_state(model->engine) != MD_ENGINE_READY &&
	    md_config_ignores_path(worker->config, rest)) {
		md_reply_error(exchange, MD_REPLY_CONFLICT, NULL, "model %s is not loaded, and %s does not load it",
			       model->id, rest);
		return;
	}
	if (named.node) { /* which has the same names at the same paths */
		pass(worker, &named, exchange, local, NULL, 0, false);
		return;
	}
	char kept[MD_TARGET_MAX];
	keep_rest(skip_decoded(local, strlen("/upstream/") + (size_t)(rest - path)), kept);
	if (!model && md_target_climbs(kept)) {
		md_reply_error(
		    exchange, MD_REPLY_BAD_REQUEST, NULL,
		    "a path with \"..\" is not passed on to a peer, since it could leave the path of the peer's URL");
		return;
	}
	pass(worker, &named, exchange, kept, NULL, 0, false);
}

/* ---- all ---- */

static void answer_options(struct md_http_exchange *exchange)
{
	const char *wanted = md_http_head_find(md_http_exchange_head(exchange), "Access-Control-Request-Headers");
	md_http_answer_begin(exchange, 204, 0);
	if (!md_http_exchange_is_shared(exchange))
		md_http_answer_header(exchange, "Access-Control-Allow-Origin", "*");
	md_http_answer_header(exchange, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS");
	md_http_answer_header(exchange, "Access-Control-Allow-Headers",
			      wanted ? wanted : "Content-Type, Authorization, Accept, X-Requested-With");
	md_http_answer_header(exchange, "Access-Control-Max-Age", "86400");
	md_http_answer_body(exchange);
	md_http_answer_end(exchange);
}

/* Which models there are, nobody learns without a key. */
static bool is_open(const struct md_http_head *head, const char *path)
{
	char name[MD_TARGET_MAX];
	if (!strcmp(path, "/health") || !strcmp(path, "/wol-health"))
		return !md_target_value(md_target_query(md_http_head_target(head)), "model", name, sizeof(name));
	return md_page_is_open(head, path) || !strcmp(path, "/favicon.ico");
}

/* What belongs to OpenAI's API or to engines may be read by any page that has a key; the worker's own pages may not. */
static void share(struct md_http_exchange *exchange)
{
	const char *local = md_target_local(md_http_head_target(md_http_exchange_head(exchange)));
	char path[MD_TARGET_MAX];
	if (md_target_path(local, path, sizeof(path)) &&
	    (!strncmp(path, "/v1/", 4) || !strncmp(path, "/upstream/", 10) || !strcmp(path, "/models") ||
	     is_among(path, model_posts) || is_among(path, model_gets)))
		md_http_exchange_share(exchange);
}

/* 0: the target is a path. */
static unsigned check_target(const struct md_http_head *head, char path[MD_TARGET_MAX], const char **why)
{
	const char *target = md_http_head_target(head);
	if (strlen(target) >= MD_TARGET_MAX) {
		*why = "the target of the request has more than 8,191 bytes";
		return 414;
	}
	*why = "the target of the request is no path";
	return md_target_path(target, path, MD_TARGET_MAX) ? 0 : 400;
}

unsigned md_router_admit(void *context, const struct md_http_head *head, const char **why)
{
	const struct md_worker *worker = context;
	char path[MD_TARGET_MAX];
	uint32_t tenant;
	unsigned status = check_target(head, path, why);
	if (status)
		return status;
	if (head->certificate && !md_cluster_is_node(worker->cluster, head)) {
		*why = "the certificate is not for the node that X-Medusa-Node names";
		return 403;
	}
	if (is_open(head, path) || !strcmp(head->method, "OPTIONS")) {
		*why = "a request like this has no body";
		return head->chunked || head->length > 0 ? 413 : 0;
	}
	*why = "a valid API key is wanted";
	if (md_cluster_vouches(worker->cluster, head))
		return 0;
	return md_keys_allow(worker->config, head, &tenant) ? 0 : 401;
}

void md_router_refuse(void *context, struct md_http_exchange *exchange, unsigned status, const char *why)
{
	struct md_worker *worker = context;
	worker->refused++;
	share(exchange);
	md_reply_refused(exchange, status, why);
}

void md_router_take(void *context, struct md_http_exchange *exchange)
{
	struct md_worker *worker = context;
	const struct md_http_head *head = md_http_exchange_head(exchange);
	char path[MD_TARGET_MAX];
	const char *why;
	bool reads = is_method(exchange, "GET") || is_method(exchange, "HEAD");
	unsigned status = md_router_admit(worker, head, &why); /* again: keys may have changed meanwhile */
	share(exchange);
	if (status)
		md_router_refuse(worker, exchange, status, why);
	else if (is_method(exchange, "OPTIONS"))
		answer_options(exchange);
	else if (!md_target_path(md_http_head_target(head), path, sizeof(path)))
		md_reply_refused(exchange, 400, "the target of the request is no path");
	else if (!strncmp(path, "/upstream/", 10))
		take_upstream(worker, exchange, path + 10);
	else if (is_among(path, reads ? model_gets : model_posts) && (reads || is_method(exchange, "POST")))
		(reads ? take_get : take_post)(worker, exchange);
	else if (!md_pages_take(worker, exchange, path))
		md_reply_error(exchange, is_among(path, model_posts) ? MD_REPLY_METHOD : MD_REPLY_NOT_FOUND, NULL,
			       "nothing is served at %s %.200s", head->method, path);
}
