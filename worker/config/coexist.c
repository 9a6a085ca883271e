/* SPDX-License-Identifier: Apache-2.0 */
/* Which models must stop so that another one may run, by groups or by the matrix. */
#include <stdlib.h>
#include <string.h>

#include "worker/config/config.h"

static bool has_member(const struct md_config_members *members, uint32_t model)
{
	uint32_t low = 0, high = members->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (members->items[middle] == model)
			return true;
		if (members->items[middle] < model)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* ---- groups ---- */

bool md_config_is_ruled(const struct md_worker_config *config)
{
	return config->matrix || config->group_count > 1 ||
	       (config->group_count == 1 && strcmp(config->groups[0].name, MD_CONFIG_DEFAULT_GROUP) != 0);
}

static bool group_evicts(const struct md_worker_config *config, uint32_t target, uint32_t other)
{
	uint32_t own = config->models[target].group, group = config->models[other].group;
	if (own == group)
		return config->groups[own].swap;
	return config->groups[own].exclusive && !config->groups[group].persistent;
}

/* ---- matrix ---- */

static uint64_t cost_within(const struct md_config_matrix *matrix, const struct md_config_members *members,
			    const bool *running)
{
	uint64_t cost = 0;
	for (uint32_t i = 0; i < members->count; i++)
		if (running[members->items[i]])
			cost += matrix->costs[members->items[i]];
	return cost;
}

/* What keeps most of what runs; the first one of equals. NULL: none has the target. */
static const struct md_config_combination *find_combination(const struct md_config_matrix *matrix, uint32_t target,
							    const bool *running)
{
	const struct md_config_combination *best = NULL;
	uint64_t most = 0;
	for (uint32_t i = 0; i < matrix->combination_count; i++) {
		const struct md_config_combination *combination = &matrix->combinations[i];
		if (!has_member(&combination->members, target))
			continue;
		uint64_t kept = cost_within(matrix, &combination->members, running);
		if (!best || kept > most) {
			best = combination;
			most = kept;
		}
	}
	return best;
}

/* ---- both ---- */

uint32_t md_config_evict(const struct md_worker_config *config, uint32_t target, const bool *running, bool *evict)
{
	target = md_config_engine_of(config, target);
	const struct md_config_combination *combination =
	    config->matrix && !running[target] ? find_combination(config->matrix, target, running) : NULL;
	uint32_t count = 0;
	for (uint32_t i = 0; i < config->model_count; i++) {
		uint32_t engine = md_config_engine_of(config, i);
		evict[i] = false;
		if (engine == target || !running[i])
			continue;
		if (config->matrix)
			evict[i] = !running[target] && !(combination && has_member(&combination->members, engine));
		else
			evict[i] = group_evicts(config, target, engine);
		count += evict[i];
	}
	return count;
}

/* Members of the model's group, and of those that one of both does not end, whichever is there first. */
static uint32_t most_in_groups(const struct md_worker_config *config, uint32_t model)
{
	const struct md_config_group *own = &config->groups[config->models[model].group];
	uint32_t most = 0;
	for (uint32_t i = 0; i < config->group_count; i++) {
		const struct md_config_group *group = &config->groups[i];
		bool meet =
		    group == own || !(own->exclusive && !group->persistent) || !(group->exclusive && !own->persistent);
		if (meet)
			most += group->swap && group->members.count ? 1 : group->members.count;
	}
	return most;
}

uint32_t md_config_most_together(const struct md_worker_config *config, uint32_t model)
{
	uint32_t most = 1;
	if (!config->matrix)
		return most_in_groups(config, model);
	for (uint32_t i = 0; i < config->matrix->combination_count; i++) {
		const struct md_config_members *members = &config->matrix->combinations[i].members;
		if (members->count > most && has_member(members, model))
			most = members->count;
	}
	return most;
}

static bool share_engine(const struct md_worker_config *config, const uint32_t *models, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		if (md_config_engine_of(config, models[i]) != md_config_engine_of(config, models[0]))
			return false;
	return true;
}

static bool share_group(const struct md_worker_config *config, const uint32_t *models, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t group = config->models[models[i]].group;
		if (group != config->models[models[0]].group || config->groups[group].swap)
			return false;
	}
	return true;
}

bool md_config_together(const struct md_worker_config *config, const uint32_t *models, uint32_t count)
{
	if (share_engine(config, models, count))
		return true;
	if (!config->matrix)
		return share_group(config, models, count);
	for (uint32_t i = 0; i < config->matrix->combination_count; i++) {
		const struct md_config_members *members = &config->matrix->combinations[i].members;
		uint32_t found = 0;
		while (found < count && has_member(members, md_config_engine_of(config, models[found])))
			found++;
		if (found == count)
			return true;
	}
	return false;
}
