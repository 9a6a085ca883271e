/* SPDX-License-Identifier: Apache-2.0 */
/* The keys at the top of a configuration, but those that have a file of their own. */
#include <inttypes.h>
#include <string.h>

#include "worker/config/keys.h"
#include "worker/config/patterns.h"

#define SECOND UINT64_C(1000000000)
#define HEALTH_LEAST 15

/* What the table fills; taken apart afterwards. */
struct top {
	struct md_worker_config config;
	struct md_config_sections sections;
	const char *log_level;
	int64_t health, unload;
	struct md_tree *store, *ui, *performance;
};

#define TOP(member) offsetof(struct top, member)
#define CONFIG(member) offsetof(struct top, config.member)
#define SECTION(member) offsetof(struct top, sections.member)

static const char *const log_targets[] = {"proxy", "upstream", "both", "none", NULL};

static const struct md_config_key top_keys[] = {
    MD_KEY("healthCheckTimeout", MD_KEY_INTEGER, TOP(health), "120", .low = INT32_MIN, .high = 1000000000),
    MD_KEY("logLevel", MD_KEY_TEXT, TOP(log_level), "info"),
    MD_KEY("logTimeFormat", MD_KEY_TEXT, CONFIG(log_time_format), NULL,
	   .note = "medusa-worker writes times of one form into its log"),
    MD_KEY("logToStdout", MD_KEY_CHOICE, CONFIG(log_to), "proxy", .choices = log_targets,
	   .note = "medusa-worker writes its own log to standard error, and the engines' into files"),
    MD_KEY("logRequests", MD_KEY_FLAG, CONFIG(log_requests), "false",
	   .note = "the key has no effect in llama-swap either"),
    MD_KEY("metricsMaxInMemory", MD_KEY_COUNT, CONFIG(metrics_in_memory), "1000",
	   .note = "medusa-worker keeps no list of requests in memory"),
    MD_KEY("captureBuffer", MD_KEY_MEGABYTES, CONFIG(capture_bytes), "5",
	   .note = "medusa-worker does not keep the contents of requests"),
    MD_KEY("store", MD_KEY_NODE, TOP(store), NULL),
    MD_KEY("ui", MD_KEY_NODE, TOP(ui), NULL),
    MD_KEY("performance", MD_KEY_NODE, TOP(performance), NULL),
    MD_KEY("startPort", MD_KEY_INTEGER, SECTION(start_port), "5800", .low = 1, .high = 65535,
	   .wanted = "a port from 1 to 65535 is wanted"),
    MD_KEY("globalTTL", MD_KEY_SECONDS, SECTION(ttl_ns), "0", .wanted = "at least 0 is wanted (seconds; 0: never)"),
    MD_KEY("unloadTimeout", MD_KEY_INTEGER, TOP(unload), "10", .high = 1000000000,
	   .wanted = "at least 0 is wanted (seconds; 0: 10)"),
    MD_KEY("sendLoadingState", MD_KEY_FLAG, SECTION(send_loading_state), "false"),
    MD_KEY("includeAliasesInList", MD_KEY_FLAG, CONFIG(include_aliases), "false"),
    MD_KEY("apiKeys", MD_KEY_TEXTS, CONFIG(api_keys), NULL, .secret = true),
    MD_KEY("macros", MD_KEY_NODE, SECTION(macros), NULL),
    MD_KEY("hooks", MD_KEY_NODE, SECTION(hooks), NULL),
    MD_KEY("upstream", MD_KEY_NODE, SECTION(upstream), NULL),
    MD_KEY("models", MD_KEY_NODE, SECTION(models), NULL),
    MD_KEY("groups", MD_KEY_NODE, SECTION(groups), NULL),
    MD_KEY("matrix", MD_KEY_NODE, SECTION(matrix), NULL),
    MD_KEY("routing", MD_KEY_NODE, SECTION(routing), NULL),
    MD_KEY("peers", MD_KEY_NODE, SECTION(peers), NULL),
    MD_KEY("selectors", MD_KEY_NODE, SECTION(selectors), NULL),
    MD_KEY("profiles", MD_KEY_NODE, SECTION(profiles), NULL),
    MD_KEY("medusa", MD_KEY_NODE, SECTION(medusa), NULL),
};
const struct md_config_keys md_config_top_keys = MD_KEYS("", top_keys);

/* ---- mappings of one or two keys ---- */

static const struct md_config_key store_keys[] = {
    MD_KEY("path", MD_KEY_TEXT, 0, NULL,
	   .note = "medusa-worker's own state is at medusa.state; llama-swap's is not written"),
};
const struct md_config_keys md_config_store_keys = MD_KEYS("store.", store_keys);

static const struct md_config_key ui_keys[] = {MD_KEY("activity", MD_KEY_NODE, 0, NULL)};
const struct md_config_keys md_config_ui_keys = MD_KEYS("ui.", ui_keys);

static const struct md_config_key activity_keys[] = {
    MD_KEY("session_id", MD_KEY_TEXTS, 0, NULL, .note = "medusa-worker's page shows no sessions"),
};
const struct md_config_keys md_config_activity_keys = MD_KEYS("ui.activity.", activity_keys);

struct performance {
	bool disabled;
	uint64_t every_ns;
};

static const struct md_config_key performance_keys[] = {
    MD_KEY("disabled", MD_KEY_FLAG, offsetof(struct performance, disabled), "false"),
    MD_KEY("every", MD_KEY_DURATION, offsetof(struct performance, every_ns), "5s", .low = 5000000000,
	   .wanted = "at least 5s are wanted"),
};
const struct md_config_keys md_config_performance_keys = MD_KEYS("performance.", performance_keys);

static const struct md_config_key upstream_keys[] = {MD_KEY("ignorePaths", MD_KEY_TEXTS, 0, NULL)};
const struct md_config_keys md_config_upstream_keys = MD_KEYS("upstream.", upstream_keys);

/* ---- checks ---- */

static enum md_status check_keys(struct md_config_build *build, const struct md_tree *root,
				 const struct md_config_texts *keys)
{
	const struct md_tree *list = md_tree_find(root, "apiKeys"), *at = list ? list->first : NULL;
	for (uint32_t i = 0; i < keys->count; i++, at = at->next) {
		if (!*keys->items[i])
			return md_tree_refuse_place(at, build->err, "the key is empty");
		if (strpbrk(keys->items[i], " \t\r\n"))
			return md_tree_refuse_place(at, build->err, "the key has a space in it");
	}
	return MD_OK;
}

/* As llama-swap does it, an unknown level is info. */
static enum md_status read_level(struct md_config_build *build, const struct md_tree *root, const char *text,
				 enum md_config_log_level *level)
{
	static const char *const levels[] = {"debug", "info", "warn", "error"};
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcasecmp(text, levels[i])) {
			*level = (enum md_config_log_level)i;
			const struct md_tree *at = md_tree_find(root, "logLevel");
			return at ? md_config_note(build, at, "medusa-worker's level is that of MEDUSA_LOG (warn)")
				  : MD_OK;
		}
	*level = MD_CONFIG_LOG_INFO;
	return md_config_note(build, md_tree_find(root, "logLevel"),
			      "there is no such level, so it is info; there are debug, info, warn and error");
}

static enum md_status read_times(struct md_config_build *build, const struct md_tree *root, struct top *top)
{
	const struct md_tree *health = md_tree_find(root, "healthCheckTimeout");
	top->sections.unload_ns = (top->unload ? (uint64_t)top->unload : 10) * SECOND;
	if (top->health >= HEALTH_LEAST) {
		top->sections.health_ns = (uint64_t)top->health * SECOND;
		return MD_OK;
	}
	top->sections.health_ns = HEALTH_LEAST * SECOND;
	return md_config_note(build, health, "less than 15 s, so it is 15 s");
}

static enum md_status read_small(struct md_config_build *build, const struct top *top, struct md_worker_config *config)
{
	static const char *const standard_headers[] = {"X-Session-ID", "X-Litellm-Session-Id"};
	struct performance performance = {0};
	struct md_tree *activity = NULL;
	config->session_headers = (struct md_config_texts){standard_headers, 2};
	MD_FORWARD(md_keys_read(build, &md_config_store_keys, top->store, &config->store));
	MD_FORWARD(md_keys_read(build, &md_config_ui_keys, top->ui, &activity));
	MD_FORWARD(md_keys_read(build, &md_config_activity_keys, activity, &config->session_headers));
	MD_FORWARD(md_keys_read(build, &md_config_performance_keys, top->performance, &performance));
	config->performance = !performance.disabled;
	config->performance_ns = performance.every_ns;
	return MD_OK;
}

static enum md_status read_ignored(struct md_config_build *build, struct md_tree *upstream,
				   struct md_worker_config *config)
{
	static const char *const standard[] = {"\\.(js|json|css|png|gif|jpg|jpeg|ico|txt)$"};
	MD_FORWARD(md_keys_read(build, &md_config_upstream_keys, upstream, &config->ignored_paths));
	if (!config->ignored_paths.count)
		config->ignored_paths = (struct md_config_texts){standard, 1};
	return md_config_compile_patterns(build, upstream ? md_tree_find(upstream, "ignorePaths") : NULL);
}

enum md_status md_config_read_globals(struct md_config_build *build, struct md_tree *root,
				      struct md_config_sections *sections)
{
	struct top top = {.config.inner = build->config->inner};
	MD_FORWARD(md_keys_read(build, &md_config_top_keys, root, &top));
	MD_FORWARD(read_times(build, root, &top));
	MD_FORWARD(read_level(build, root, top.log_level, &top.config.log_level));
	MD_FORWARD(check_keys(build, root, &top.config.api_keys));
	MD_FORWARD(read_small(build, &top, &top.config));
	*build->config = top.config;
	*sections = top.sections;
	MD_FORWARD(read_ignored(build, sections->upstream, build->config));
	return md_macros_read(build->forest, sections->macros, NULL, &build->macros, build->err);
}
