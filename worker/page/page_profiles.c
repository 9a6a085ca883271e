/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/page_profiles.h"

#include <jansson.h>
#include <string.h>

#include "json/tree_text.h"
#include "worker/core/reply.h"
#include "worker/page/page_orders.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

static json_t *describe(const struct md_config_profile *profile)
{
	json_t *pins = json_object();
	for (uint32_t i = 0; i < profile->pin_count; i++)
		json_object_set_new(pins, profile->pins[i].name,
				    profile->pins[i].target ? json_string(profile->pins[i].target) : json_null());
	return json_pack("{s:s, s:s, s:o}", "name", profile->id, "description",
			 profile->description ? profile->description : "", "pins", pins);
}

static void show(const struct md_worker *worker, struct md_http_exchange *exchange)
{
	json_t *profiles = json_array();
	for (uint32_t i = 0; i < worker->config->profile_count; i++)
		json_array_append_new(profiles, describe(&worker->config->profiles[i]));
	md_reply_json(exchange, 200, json_pack("{s:s?, s:o}", "active", worker->profile, "profiles", profiles));
}

/* False: the client was told what is wrong. *name: NULL: none is to be active; borrowed from *body, which the caller frees. */
static bool read_name(struct md_http_exchange *exchange, json_t **body, const char **name)
{
	size_t size;
	const char *text = md_http_exchange_body(exchange, &size);
	json_error_t error;
	*body = md_jansson_parse(text, size, JSON_REJECT_DUPLICATES, &error);
	json_t *value = json_object_get(*body, "name");
	*name = json_string_value(value);
	if (*name || json_is_null(value))
		return true;
	md_reply_error(exchange, MD_REPLY_BAD_REQUEST, NULL,
		       "{\"name\": \"PROFILE\"} is wanted, or {\"name\": null} for none");
	return false;
}

static void choose(struct md_worker *worker, struct md_http_exchange *exchange)
{
	const struct md_config_profile *profile = NULL;
	const char *name;
	json_t *body;
	if (md_page_orders_refuse_other_site(exchange, "choose a profile"))
		return;
	if (read_name(exchange, &body, &name)) {
		profile = name ? md_config_find_profile(worker->config, name) : NULL;
		if (name && !profile) {
			md_reply_error(exchange, MD_REPLY_NOT_FOUND, "profile_not_found",
				       "no profile is called \"%.200s\": GET /api/profiles lists those that are", name);
		} else {
			worker->profile = profile ? profile->id : NULL;
			md_info("profile %s is active", worker->profile ? worker->profile : "none");
			show(worker, exchange);
		}
	}
	json_decref(body);
}

bool md_page_profiles_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (!strcmp(path, "/api/profiles") && (!strcmp(method, "GET") || !strcmp(method, "HEAD")))
		show(worker, exchange);
	else if (!strcmp(path, "/api/profiles/active") && !strcmp(method, "PUT"))
		choose(worker, exchange);
	else
		return false;
	return true;
}
