/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a worker's models: what they have of their own, what of their base, and which names they may have. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/worker_config_fixture.h"

#define BASE(adapters) "models:\n  m: {cmd: 's ${PORT}', aliases: [mm], medusa: {adapters: " adapters "}}\n"
#define BOTH(adapters) BASE(adapters) "  n: {cmd: 's ${PORT}', aliases: [nn], medusa: {adapters: {z: /z}}}\n"

Test(worker_config_adapters, what_is_not_given_is_as_of_the_base)
{
	const struct md_worker_config *config = read_config(
	    "models:\n  m:\n    cmd: 's ${PORT}'\n    ttl: 5\n    concurrencyLimit: 7\n    name: N\n    useModelName: "
	    "inner\n"
	    "    filters: {stripParams: t, setParamsByID: {other: {x: 1}}}\n"
	    "    medusa: {memory: 1GB, slo: 2s, priority: 4, max_queue: 3, pin: true, min_replicas: 1, artifact: /a,\n"
	    "      adapter_slots: 2, adapters: {a: /none/a, b: {path: /none/b, bytes: 5MB, slo: 1s, goal: first_token, "
	    "pin: true,\n"
	    "      priority: -1, aliases: [bb], useModelName: inner-b, name: B, concurrencyLimit: 9}}}\n");
	const struct md_config_model *m = model_of(config, "m"), *a = model_of(config, "a"), *b = model_of(config, "b");
	uint32_t base = (uint32_t)(m - config->models);
	cr_assert(m->base == MD_CONFIG_NONE && m->own.adapted && m->own.adapter_slots == 2 && config->model_count == 3);
	cr_assert(a->base == base && b->base == base && !a->own.adapted && !a->own.adapter_slots);
	cr_assert_str_eq(a->path, "/none/a");
	cr_assert_str_eq(a->use_model_name, "a");
	cr_assert_str_eq(b->use_model_name, "inner-b");
	cr_assert_eq(model_of(config, "bb"), b);
	cr_assert(a->bytes == 1 << 20 && b->bytes == 5000000, "%llu", (unsigned long long)a->bytes);
	cr_assert(a->own.slo_ns == 2000000000 && a->own.priority == 4 && a->own.max_queue == 3 && a->concurrency == 7);
	cr_assert(b->own.slo_ns == 1000000000 && b->own.priority == -1 && b->own.max_queue == 3 && b->concurrency == 9);
	cr_assert_eq(b->own.goal, MEDUSA_SCHED_GOAL_FIRST_TOKEN);
	cr_assert(!a->own.pin && !a->own.min_replicas && b->own.pin && !a->own.memory_bytes && !a->own.artifact);
	cr_assert(a->ttl_ns == 5000000000 && a->port == 0 && !*a->argv && !*a->name && !strcmp(b->name, "B"));
	cr_assert(a->filters.strip.count == 1 && !a->filters.by_id_count && !a->aliases.count);
	assert_noted(config, "models.m.medusa.adapters.a", "counts as 1 MiB");
	md_worker_config_destroy(config);
}

/* An engine that takes adapters is another one for the scheduler, also without any. */
Test(worker_config_adapters, an_engine_may_have_none_yet)
{
	const struct md_worker_config *config =
	    read_config("models:\n  a: {cmd: '${PORT}', medusa: {adapters: {}}}\n  b: {cmd: '${PORT}', medusa: "
			"{adapter_slots: 1}}\n  c: {cmd: '${PORT}'}\n");
	cr_assert(model_of(config, "a")->own.adapted && model_of(config, "b")->own.adapted &&
		  !model_of(config, "c")->own.adapted);
	md_worker_config_destroy(config);
}

static void put(const char *folder, const char *name, size_t bytes)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	cr_assert(file && (!bytes || !fseek(file, (long)bytes - 1, SEEK_SET)) && fputc(0, file) != EOF &&
		  !fclose(file));
}

Test(worker_config_adapters, sizes_are_those_of_files)
{
	char folder[] = "/tmp/medusa-adapters.XXXXXX", text[1000];
	cr_assert(mkdtemp(folder));
	put(folder, "adapter_model.safetensors", 3000);
	put(folder, "more.bin", 40);
	put(folder, "tokenizer.json", 500);
	snprintf(text, sizeof(text), BASE("{folder: %s, file: %s/tokenizer.json, stated: {path: %s, bytes: 7}}"),
		 folder, folder, folder);
	const struct md_worker_config *config = read_config(text);
	cr_assert_eq(model_of(config, "folder")->bytes, 3040);
	cr_assert_eq(model_of(config, "file")->bytes, 500);
	cr_assert_eq(model_of(config, "stated")->bytes, 7);
	cr_assert_eq(config->note_count, 0);
	md_worker_config_destroy(config);
	snprintf(text, sizeof(text), "rm -r %s", folder);
	cr_assert_eq(system(text), 0);
}

Test(worker_config_adapters, wrong_ones_are_refused_where_they_stand)
{
	static const struct refusal refusals[] = {
	    {BASE("[a]"), "c.yaml:2: models.m.medusa.adapters is a list: a mapping is wanted"},
	    {BASE("{a: }"), "c.yaml:2: models.m.medusa.adapters.a: the adapter has no path"},
	    {BASE("{a: {bytes: 1MB}}"), "models.m.medusa.adapters.a: the adapter has no path"},
	    {BASE("{a: [x]}"), "models.m.medusa.adapters.a"},
	    {BASE("{'': /a}"), "the adapter has no ID"},
	    {BASE("{a: {path: /a, ttl: 5}}"),
	     "models.m.medusa.adapters.a.ttl: there is no such key; there are path, bytes"},
	    {BASE("{a: {path: /a, bytes: lots}}"), "models.m.medusa.adapters.a.bytes is \"lots\""},
	    {BASE("{a: {path: /a, priority: 2000000}}"), "models.m.medusa.adapters.a.priority"},
	    {BASE("{a: {path: /a, tenant: t}}"), "medusa.tenants has none of this name"},
	    {BASE("{a: /a}, adapter_slots: -1"), "models.m.medusa.adapter_slots is -1"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

Test(worker_config_adapters, names_are_nobody_elses)
{
	static const struct refusal refusals[] = {
	    {BOTH("{n: /n}"), "c.yaml:2: models.m.medusa.adapters.n: the model n has this name already"},
	    {BOTH("{m: /n}"), "the model m has this name already"},
	    {BOTH("{z: /n}"), "an adapter of the model "},
	    {BOTH("{nn: /n}"), "c.yaml:3: models.n.aliases[0] is \"nn\": \"nn\" is the ID of an adapter already"},
	    {BOTH("{mm: /n}"), "\"mm\" is the ID of an adapter already"},
	    {BOTH("{y: {path: /y, aliases: [n]}}"),
	     "models.m.medusa.adapters.y.aliases[0] is \"n\": \"n\" is the ID of a model already"},
	    {BOTH("{y: {path: /y, aliases: [z]}}"), "\"z\" is the ID of an adapter already"},
	    {BOTH("{y: {path: /y, aliases: [nn]}}"), "\"nn\" is an alias of"},
	    {BASE("{y: /y, x: {path: /x, useModelName: y}}"), "the engine would know it by the name of the adapter y"},
	    {BASE("{y: {path: /x, useModelName: m}}"), "the engine would know it by the name of its base, \"m\""},
	};
	ASSERT_ALL_REFUSED(refusals);
}

/* Groups and the matrix are about engines. */
Test(worker_config_adapters, an_adapter_runs_with_its_base)
{
	static const struct refusal refusals[] = {
	    {BOTH("{a: /a}") "groups: {g: {members: [a]}}",
	     "groups.g.members[0] is \"a\": it is an adapter: name its model, m"},
	    {BOTH("{a: /a}") "matrix: {vars: {A: a}, sets: {s: A}}", "it is an adapter: name its model, m"},
	    {BOTH("{a: /a}") "matrix: {sets: {s: a & n}}", "there is neither a var nor a model"},
	    {BOTH("{a: /a}") "matrix: {evict_costs: {a: 2}, sets: {s: m & n}}", "there is neither a var nor a model"},
	};
	ASSERT_ALL_REFUSED(refusals);
	for (int kind = 0; kind < 2; kind++) {
		const struct md_worker_config *config =
		    read_config(kind ? BOTH("{a: /a, b: /b}") "matrix: {sets: {s: m, t: n}}"
				     : BOTH("{a: /a, b: /b}") "groups: {g: {members: [m, n]}}");
		uint32_t a = (uint32_t)(model_of(config, "a") - config->models),
			 b = (uint32_t)(model_of(config, "b") - config->models),
			 m = (uint32_t)(model_of(config, "m") - config->models),
			 z = (uint32_t)(model_of(config, "z") - config->models);
		bool running[5] = {true, true, true, true, true}, evict[5];
		running[m] = running[a] = running[b] = false;
		cr_assert_eq(md_config_evict(config, a, running, evict), 2, "n and its adapter leave");
		cr_assert(evict[z] && !evict[a] && !evict[b] && !evict[m]);
		cr_assert(md_config_together(config, (uint32_t[]){a, b, m}, 3) &&
			  !md_config_together(config, (uint32_t[]){a, z}, 2));
		md_worker_config_destroy(config);
	}
}
