/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the worker's configuration. A refusal says why; all that is read can be used by its indexes. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "worker/config/config.h"

#define RUN_MAX 200u /* models of which each is evicted for: that is quadratic */

bool fuzz_accepted;

static void check_params(const struct md_config_params *params)
{
	for (uint32_t i = 0; i < params->count; i++)
		FUZZ_REQUIRE(*params->items[i].path && params->items[i].value, "a parameter without name or value");
}

static void check_model(const struct md_worker_config *config, uint32_t index)
{
	const struct md_config_model *model = &config->models[index];
	FUZZ_REQUIRE(*model->id && model->argv && *model->proxy && model->concurrency, "model %u", index);
	FUZZ_REQUIRE(md_config_find_model(config, model->id) == model, "%s is not found by its ID", model->id);
	FUZZ_REQUIRE(!index || strcmp(config->models[index - 1].id, model->id) < 0, "models are not sorted");
	FUZZ_REQUIRE(config->matrix ? model->group == MD_CONFIG_NONE : model->group < config->group_count,
		     "%s has no group", model->id);
	FUZZ_REQUIRE(!model->own.artifact || *model->own.artifact, "an artifact without path");
	FUZZ_REQUIRE(model->own.tenant == MD_CONFIG_NONE || model->own.tenant < config->node.tenant_count, "a tenant");
	for (uint32_t i = 0; i < model->aliases.count; i++)
		FUZZ_REQUIRE(md_config_find_model(config, model->aliases.items[i]), "an alias means nothing");
	check_params(&model->filters.set);
	for (uint32_t i = 0; i < model->filters.by_id_count; i++)
		check_params(&model->filters.by_id[i]);
}

static void check_members(const struct md_worker_config *config, const struct md_config_members *members)
{
	for (uint32_t i = 0; i < members->count; i++)
		FUZZ_REQUIRE(members->items[i] < config->model_count &&
				 (!i || members->items[i - 1] < members->items[i]),
			     "members are not sorted");
}

static void check_routing(const struct md_worker_config *config)
{
	static bool running[RUN_MAX], evict[RUN_MAX];
	uint32_t target = config->model_count / 2;
	for (uint32_t i = 0; i < config->group_count; i++)
		check_members(config, &config->groups[i].members);
	for (uint32_t i = 0; config->matrix && i < config->matrix->combination_count; i++)
		check_members(config, &config->matrix->combinations[i].members);
	if (!config->model_count || config->model_count > RUN_MAX)
		return;
	for (uint32_t i = 0; i < config->model_count; i++)
		running[i] = i % 3 != 0;
	uint32_t count = md_config_evict(config, target, running, evict);
	for (uint32_t i = 0; i < config->model_count; i++) {
		FUZZ_REQUIRE(!evict[i] || (running[i] && i != target), "what does not run is evicted");
		count -= evict[i];
	}
	FUZZ_REQUIRE(count == 0, "the number of the evicted is wrong");
}

static void check_names(const struct md_worker_config *config)
{
	for (uint32_t i = 0; i < config->peer_count; i++)
		FUZZ_REQUIRE(*config->peers[i].proxy && config->peers[i].models.count,
			     "a peer without address or model");
	for (uint32_t i = 0; i < config->selector_count; i++) {
		const struct md_config_selector *selector = &config->selectors[i];
		FUZZ_REQUIRE(selector->target_count && selector->spillover, "a selector without targets");
		FUZZ_REQUIRE(md_config_find(config, selector->id).kind == MD_CONFIG_SELECTOR,
			     "a selector means nothing");
	}
	for (uint32_t i = 0; i < config->profile_count; i++)
		for (uint32_t j = 0; j < config->profiles[i].pin_count; j++)
			FUZZ_REQUIRE(md_config_find_pin(&config->profiles[i], config->profiles[i].pins[j].name),
				     "a pin is not found");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_error err = {0};
	const struct md_worker_config *config = md_worker_config_parse("fuzz", (const char *)data, size, &err);
	fuzz_accepted = config != NULL;
	if (!config) {
		FUZZ_REQUIRE(err.status && *err.message, "a configuration was refused without saying why");
		return 0;
	}
	for (uint32_t i = 0; i < config->model_count; i++)
		check_model(config, i);
	check_routing(config);
	check_names(config);
	for (uint32_t i = 0; i < config->note_count; i++)
		FUZZ_REQUIRE(*config->notes[i].path && *config->notes[i].text, "a note without text");
	md_config_ignores_path(config, "/a/b.css");
	md_worker_config_destroy(config);
	return 0;
}
