/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/model_rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "worker/core/worker.h"

/* Functions of the scheduler by the model that they are, and what is made for one of them. */
struct md_model_rules {
	struct md_worker *worker;
	const struct md_worker_config *config;
	struct md_model **models;
	uint32_t *first, *functions; /* those of model i: functions[first[i]] up to first[i + 1] */
	bool *running, *ends;
	struct medusa_sched_company *companies;
	uint32_t *members;
	size_t company_count, company_room, member_count, member_room;
	uint32_t at; /* the next model that is told */
};

static uint32_t index_of(const struct md_worker_config *config, const char *id)
{
	const struct md_config_model *found = md_config_find_model(config, id);
	bool same = found && !strcmp(found->id, id);
	return same ? md_config_engine_of(config, (uint32_t)(found - config->models)) : MD_CONFIG_NONE;
}

/* Sorts all functions that the scheduler may still hold by their models; those of no model are in no list. */
static bool sort_functions(struct md_model_rules *rules)
{
	const struct md_worker_config *config = rules->config;
	size_t count = rules->worker->model_count;
	uint32_t *indexes = calloc(count + 1, sizeof(*indexes));
	rules->first = calloc((size_t)config->model_count + 2, sizeof(*rules->first));
	rules->functions = calloc(count + 1, sizeof(*rules->functions));
	rules->running = malloc(config->model_count + 1);
	rules->ends = malloc(config->model_count + 1);
	bool done = indexes && rules->first && rules->functions && rules->running && rules->ends;
	for (const struct md_model *model = NULL; done && (model = md_models_each(rules->worker, model));) {
		uint32_t index = index_of(config, model->id);
		indexes[model - rules->worker->models] = index + 1; /* 0: of no model, or it has ended */
		if (index != MD_CONFIG_NONE)
			rules->first[index + 2]++;
	}
	for (uint32_t i = 2; done && i < config->model_count + 2; i++)
		rules->first[i] += rules->first[i - 1];
	for (size_t i = 0; done && i < count; i++)
		if (indexes[i])
			rules->functions[rules->first[indexes[i]]++] = rules->worker->models[i].function;
	for (uint32_t i = 0; done && i < config->model_count; i++)
		rules->running[i] = true;
	free(indexes);
	return done;
}

/* ---- one model ---- */

static bool begin_company(struct md_model_rules *rules)
{
	if (!MD_ARRAY_GROW(rules->companies, rules->company_count, rules->company_room))
		return false;
	rules->companies[rules->company_count++] =
	    (struct medusa_sched_company){.size = sizeof(struct medusa_sched_company)};
	return true;
}

/* All functions of the model, into the last company; where they are is known when there are no more. */
static bool add_model(struct md_model_rules *rules, uint32_t model)
{
	for (uint32_t i = rules->first[model]; i < rules->first[model + 1]; i++) {
		if (!MD_ARRAY_GROW(rules->members, rules->member_count, rules->member_room))
			return false;
		rules->members[rules->member_count++] = rules->functions[i];
		rules->companies[rules->company_count - 1].count++;
	}
	return true;
}

/* An engine's functions are with each other. */
static bool add_own(struct md_model_rules *rules, uint32_t model)
{
	const struct md_worker_config *config = rules->config;
	bool done = true;
	for (uint32_t i = 0; done && config->models[model].own.adapted && i < config->model_count; i++) {
		if (md_config_engine_of(config, i) != model)
			continue;
		done = MD_ARRAY_GROW(rules->members, rules->member_count, rules->member_room);
		if (done) {
			rules->members[rules->member_count++] = rules->models[i]->function;
			rules->companies[rules->company_count - 1].count++;
		}
	}
	return done;
}

static bool read_groups(struct md_model_rules *rules, uint32_t model)
{
	const struct md_worker_config *config = rules->config;
	bool done = begin_company(rules) && add_own(rules, model);
	md_config_evict(config, model, rules->running, rules->ends);
	for (uint32_t i = 0; done && i < config->model_count; i++)
		done = i == model || config->models[i].base != MD_CONFIG_NONE || rules->ends[i] || add_model(rules, i);
	return done;
}

static bool has_model(const struct md_config_members *members, uint32_t model)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (members->items[i] == model)
			return true;
	return false;
}

/* A model in no combination ends all others. */
static bool read_matrix(struct md_model_rules *rules, uint32_t model)
{
	const struct md_config_matrix *matrix = rules->config->matrix;
	bool done = true;
	for (uint32_t i = 0; done && i < matrix->combination_count; i++) {
		const struct md_config_members *members = &matrix->combinations[i].members;
		if (!has_model(members, model))
			continue;
		done = begin_company(rules) && add_own(rules, model);
		for (uint32_t j = 0; done && j < members->count; j++)
			done = members->items[j] == model || add_model(rules, members->items[j]);
	}
	return done && (rules->company_count || (begin_company(rules) && add_own(rules, model)));
}

static enum md_status tell_model(struct md_model_rules *rules, uint32_t model, struct md_error *err)
{
	struct medusa_sched *sched = rules->worker->sched;
	uint32_t function = rules->models[model]->function;
	size_t at = 0;
	model = md_config_engine_of(rules->config, model);
	rules->company_count = rules->member_count = 0;
	if (md_config_is_ruled(rules->config) &&
	    !(rules->config->matrix ? read_matrix(rules, model) : read_groups(rules, model)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for groups or matrix");
	for (size_t i = 0; i < rules->company_count; i++) {
		rules->companies[i].functions = rules->members + at;
		at += rules->companies[i].count;
	}
	if (medusa_sched_set_company(sched, function, rules->companies, (uint32_t)rules->company_count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "models.%.100s: %s", rules->config->models[model].id,
				    medusa_sched_error(sched));
	return MD_OK;
}

/* ---- all of them ---- */

void md_model_rules_end(struct md_model_rules *rules)
{
	if (!rules)
		return;
	free(rules->first);
	free(rules->functions);
	free(rules->running);
	free(rules->ends);
	free(rules->companies);
	free(rules->members);
	free(rules);
}

enum md_status md_model_rules_begin(struct md_worker *worker, const struct md_worker_config *config,
				    struct md_model **models, struct md_model_rules **rules, struct md_error *err)
{
	struct md_model_rules *made = calloc(1, sizeof(*made));
	if (made)
		*made = (struct md_model_rules){.worker = worker, .config = config, .models = models};
	if (!made || (md_config_is_ruled(config) && !sort_functions(made))) {
		md_model_rules_end(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for groups or matrix");
	}
	*rules = made;
	return MD_OK;
}

enum md_status md_model_rules_step(struct md_model_rules *rules, bool *more, struct md_error *err)
{
	if (rules->at < rules->config->model_count)
		MD_FORWARD(tell_model(rules, rules->at++, err));
	*more = rules->at < rules->config->model_count;
	return MD_OK;
}

enum md_status md_model_rules_tell(struct md_worker *worker, const struct md_worker_config *config,
				   struct md_model **models, struct md_error *err)
{
	struct md_model_rules *rules;
	bool more = true;
	MD_FORWARD(md_model_rules_begin(worker, config, models, &rules, err));
	enum md_status status = MD_OK;
	while (status == MD_OK && more)
		status = md_model_rules_step(rules, &more, err);
	md_model_rules_end(rules);
	return status;
}
