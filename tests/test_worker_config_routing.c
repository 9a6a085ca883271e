/* SPDX-License-Identifier: Apache-2.0 */
/* Which models of a worker run together: groups, the matrix, what must be evicted; priorities, and what is loaded first. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/worker_config_fixture.h"

#define MODEL(id) "  " id ": {cmd: 's ${PORT}', aliases: ['alias-" id "']}\n"
#define MODELS "models:\n" MODEL("a") MODEL("b") MODEL("c") MODEL("d") MODEL("e")
#define MATRIX MODELS "matrix:\n  vars: {A: a, B: b, C: c, D: d}\n"

static uint32_t index_of(const struct md_worker_config *config, const char *id)
{
	return (uint32_t)(model_of(config, id) - config->models);
}

/* running and evicted: IDs of one letter each. */
static void assert_evicts(const struct md_worker_config *config, const char *target, const char *running,
			  const char *evicted)
{
	bool runs[8] = {false}, evict[8];
	char found[9] = "";
	for (; *running; running++)
		runs[index_of(config, (char[]){*running, 0})] = true;
	uint32_t count = md_config_evict(config, index_of(config, target), runs, evict);
	for (uint32_t i = 0; i < config->model_count; i++)
		if (evict[i])
			strcat(found, config->models[i].id);
	cr_assert_str_eq(found, evicted, "for %s", target);
	cr_assert_eq(count, strlen(evicted));
}

static void assert_text_evicts(const char *text, const char *target, const char *running, const char *evicted)
{
	const struct md_worker_config *config = read_config(text);
	assert_evicts(config, target, running, evicted);
	md_worker_config_destroy(config);
}

/* ---- groups ---- */

Test(worker_config_routing, models_without_a_group_take_turns)
{
	const struct md_worker_config *config = read_config(MODELS);
	cr_assert(config->group_count == 1 && config->groups[0].members.count == 5);
	cr_assert_str_eq(config->groups[0].name, "(default)");
	cr_assert(config->groups[0].swap && config->groups[0].exclusive && !config->groups[0].persistent);
	assert_evicts(config, "a", "", "");
	assert_evicts(config, "a", "bc", "bc");
	assert_evicts(config, "a", "a", "");
	md_worker_config_destroy(config);
}

Test(worker_config_routing, groups_say_who_is_evicted)
{
	const struct md_worker_config *config =
	    read_config(MODELS "groups:\n  together: {swap: false, exclusive: false, members: [a, b]}\n"
			       "  stays: {persistent: true, members: [c]}\n");
	cr_assert(config->group_count == 3 && model_of(config, "d")->group == 2);
	assert_evicts(config, "a", "bcd", "");
	assert_evicts(config, "c", "abd", "abd");
	assert_evicts(config, "d", "abce", "abe");
	assert_evicts(config, "d", "abcd", "ab");
	uint32_t both[] = {0, 1}, others[] = {0, 3};
	cr_assert(md_config_together(config, both, 2) && !md_config_together(config, others, 2));
	cr_assert(md_config_together(config, others, 1));
	md_worker_config_destroy(config);
}

/* Memory of models that state none is divided among those that may be there at once. */
Test(worker_config_routing, how_many_may_be_there)
{
	const struct {
		const char *rules;
		uint32_t most[5]; /* of a to e */
		bool ruled;
	} cases[] = {
	    {"", {1, 1, 1, 1, 1}, false},
	    {"groups: {g: {members: [a, b]}}", {1, 1, 1, 1, 1}, true},
	    {"groups: {g: {swap: false, members: [a, b]}}", {2, 2, 1, 1, 1}, true},
	    {"groups: {g: {members: [a, b, c, d, e]}}", {1, 1, 1, 1, 1}, true},
	    {"groups: {g: {exclusive: false, members: [a, b]}}", {2, 2, 2, 2, 2}, true},
	    {"groups: {g: {swap: false, persistent: true, members: [a, b]}, h: {members: [c]}}", {4, 4, 3, 3, 3}, true},
	    {"matrix: {sets: {s: a & b & c, t: a & d}}", {3, 3, 3, 2, 1}, true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024];
		snprintf(text, sizeof(text), "%s%s\n", MODELS, cases[i].rules);
		const struct md_worker_config *config = read_config(text);
		cr_assert_eq(md_config_is_ruled(config), cases[i].ruled, "%s", cases[i].rules);
		for (uint32_t model = 0; model < 5; model++)
			cr_assert_eq(md_config_most_together(config, model), cases[i].most[model], "%s: %s has %u",
				     cases[i].rules, config->models[model].id, md_config_most_together(config, model));
		md_worker_config_destroy(config);
	}
}

/* What is kept ends for nobody: it is said where that contradicts groups or the matrix. */
Test(worker_config_routing, kept_models_and_rules)
{
	const struct {
		const char *rules;
		const char *note; /* NULL: none */
	} cases[] = {
	    {"", NULL},
	    {"groups: {g: {members: [k, a]}}", "its group would end it for the model a; it stays all the same"},
	    {"groups: {g: {members: [k], persistent: true}}", NULL},
	    {"groups: {g: {members: [k], exclusive: false}}", "its group would end it for the model a"},
	    {"matrix: {sets: {s: k & a, t: k & b}}", NULL},
	    {"matrix: {sets: {s: k & a, t: b}}", "the matrix would end it for the model b; it stays all the same"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024];
		snprintf(text, sizeof(text),
			 "models:\n  a: {cmd: x, proxy: \"http://h\"}\n  b: {cmd: x, proxy: \"http://i\"}\n"
			 "  k: {cmd: x, proxy: \"http://j\", medusa: {%s}}\n%s\n",
			 i % 2 ? "pin: true" : "min_replicas: 1", cases[i].rules);
		const struct md_worker_config *config = read_config(text);
		cr_assert_eq(config->note_count, cases[i].note != NULL, "%s: %u notes", cases[i].rules,
			     config->note_count);
		if (cases[i].note)
			cr_assert(strstr(config->notes[0].text, cases[i].note), "%s: %s", cases[i].rules,
				  config->notes[0].text);
		md_worker_config_destroy(config);
	}
}

Test(worker_config_routing, older_and_newer_keys_mean_the_same)
{
	assert_text_evicts(MODELS "groups: {g: {swap: false, members: [a, b]}}\n", "a", "bc", "c");
	assert_text_evicts(MODELS "routing: {router: {use: group, settings: {groups: {g: {swap: false, members: [a, "
				  "b]}}}}}\n",
			   "a", "bc", "c");
	assert_text_evicts(MODELS "routing: {router: {settings: {groups: {g: {swap: false, members: [a, b]}}}}}\n", "a",
			   "bc", "c");
	assert_text_evicts(MODELS "routing: {router: {use: matrix, settings: {matrix: {sets: {s: a & b}}}}}\n", "a",
			   "bc", "c");
	const struct md_worker_config *config =
	    read_config(MODELS "routing: {router: {settings: {matrix: {sets: {s: a & b}}}}}\n");
	assert_noted(config, "routing.router.settings.matrix", "use is not matrix");
	cr_assert_null(config->matrix);
	md_worker_config_destroy(config);
	config = read_config(MODELS "groups: {(default): {swap: false}, g: {members: []}}\n");
	assert_noted(config, "groups.(default)", "has no effect");
	cr_assert_eq(config->group_count, 2);
	md_worker_config_destroy(config);
}

Test(worker_config_routing, wrong_groups_are_refused)
{
	static const struct refusal refusals[] = {
	    {MODELS "groups: {g: {members: [x]}}", "groups.g.members[0] is \"x\": there is no model with this ID"},
	    {MODELS "groups: {g: {members: [alias-a]}}", "there is no model with this ID"},
	    {MODELS "groups: {g: {members: [a, a]}}",
	     "groups.g.members[1] is \"a\": the model is in the group g already"},
	    {MODELS "groups: {g: {members: [a]}, h: {members: [a]}}", "the model is in the group g already"},
	    {MODELS "groups: {g: {members: a}}", "a list of models is wanted"},
	    {MODELS "groups: {g: {swap: maybe}}", "true or false is wanted"},
	    {MODELS "groups: {g: {members: [a]}}\nmatrix: {sets: {s: a}}",
	     "matrix: groups are given as well; one of them"},
	    {MODELS "groups: {g: {members: [a]}}\nrouting: {router: {use: group}}",
	     "groups or matrix at the top are given as well"},
	    {MODELS "routing: {router: {use: magic}}", "routing.router.use is \"magic\": group or matrix is wanted"},
	    {MODELS "routing: {router: {use: matrix}}", "settings.matrix is not there"},
	    {MODELS "routing: {scheduler: {use: lifo}}", "routing.scheduler.use is \"lifo\": fifo is wanted"},
	    {MODELS "routing: {scheduler: {settings: {fifo: {priority: {x: 1}}}}}", "there is no model of this name"},
	    {MODELS "routing: {scheduler: {settings: {fifo: {priority: {a: high}}}}}", "a whole number"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

/* ---- the matrix ---- */

static void assert_combinations(const char *sets, const char *wanted)
{
	char text[2048], found[512] = "";
	snprintf(text, sizeof(text), MATRIX "  sets: {%s}\n", sets);
	const struct md_worker_config *config = read_config(text);
	for (uint32_t i = 0; i < config->matrix->combination_count; i++) {
		const struct md_config_members *members = &config->matrix->combinations[i].members;
		strcat(found, i ? " " : "");
		for (uint32_t j = 0; j < members->count; j++)
			strcat(found, config->models[members->items[j]].id);
	}
	cr_assert_str_eq(found, wanted, "%s", sets);
	md_worker_config_destroy(config);
}

Test(worker_config_routing, expressions_are_expanded)
{
	assert_combinations("s: A", "a");
	assert_combinations("s: 'A & B'", "ab");
	assert_combinations("s: 'B&A'", "ab");
	assert_combinations("s: 'A | B & C'", "a bc");
	assert_combinations("s: '(A | B) & (C | D)'", "ac ad bc bd");
	assert_combinations("s: '((A))|e'", "a e");
	assert_combinations("s: 'A & A & (A | B)'", "a ab");
	assert_combinations("x: 'A | B', y: '+x & C'", "a b ac bc");
	assert_combinations("y: '+x & C', x: 'A | B'", "a b ac bc");
	assert_combinations("y: '+ x', x: A", "a a");
}

Test(worker_config_routing, matrix_keeps_what_costs_most)
{
	const struct md_worker_config *config =
	    read_config(MATRIX "  evict_costs: {B: 10, e: 3}\n  sets: {one: A & B, two: A & C & D, three: B & C}\n");
	assert_evicts(config, "a", "", "");
	assert_evicts(config, "a", "bcd", "cd");
	assert_evicts(config, "a", "cd", "");
	assert_evicts(config, "a", "abcd", "");
	assert_evicts(config, "a", "be", "e");
	assert_evicts(config, "b", "ac", "c");
	assert_evicts(config, "d", "ab", "b");
	assert_evicts(config, "e", "abcd", "abcd");
	uint32_t three[] = {0, 2, 3}, never[] = {0, 1, 2};
	cr_assert(md_config_together(config, three, 3) && !md_config_together(config, never, 3));
	md_worker_config_destroy(config);
	assert_text_evicts(MATRIX "  sets: {one: A & B, two: A & C}\n", "a", "bc", "c");
	assert_text_evicts(MATRIX "  sets: {two: A & C, one: A & B}\n", "a", "bc", "b");
	assert_text_evicts(MATRIX "  sets: {one: 'A & B | +x', x: A & C}\n", "a", "bc", "b");
}

Test(worker_config_routing, wrong_matrices_are_refused)
{
	static const struct refusal refusals[] = {
	    {MODELS "matrix: {vars: {A: a}}", "at least one set is wanted"},
	    {MODELS "matrix: {sets: {}}", "matrix.sets: at least one set is wanted"},
	    {MODELS "matrix: {vars: {A_: a}, sets: {s: a}}", "matrix.vars.A_: the name has 1 to 32"},
	    {MODELS "matrix: {vars: {A: alias-a}, sets: {s: a}}", "matrix.vars.A is \"alias-a\": there is no model"},
	    {MODELS "matrix: {vars: {A: [a]}, sets: {s: a}}", "there is no model"},
	    {MODELS "matrix: {evict_costs: {x: 1}, sets: {s: a}}", "neither a var nor a model"},
	    {MODELS "matrix: {evict_costs: {a: 0}, sets: {s: a}}", "matrix.evict_costs.a is 0: a whole number from 1"},
	    {MATRIX "  sets: {s: ''}", "at byte 0: the expression ends too early"},
	    {MATRIX "  sets: {s: }", "the expression ends too early"},
	    {MATRIX "  sets: {s: 'A &'}", "at byte 3: the expression ends too early"},
	    {MATRIX "  sets: {s: 'A B'}", "at byte 2: &, | or the end is wanted"},
	    {MATRIX "  sets: {s: '(A'}", "at byte 2: a ) is missing"},
	    {MATRIX "  sets: {s: 'A)'}", "at byte 1: &, | or the end is wanted"},
	    {MATRIX "  sets: {s: 'A & X'}",
	     "matrix.sets.s is \"A & X\": at byte 5: there is neither a var nor a model"},
	    {MATRIX "  sets: {s: '+x'}", "there is no set of the name"},
	    {MATRIX "  sets: {s: '+s'}", "refers to itself"},
	    {MATRIX "  sets: {s: +t, t: +s}", "refers to itself"},
	    {MATRIX "  sets: {s: [A]}", "an expression is wanted"},
	    {MATRIX "  sets: [A]", "a mapping is wanted"},
	    {MATRIX "  sets: {s: '((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((A'}",
	     "nested more than 64 deep"},
	    {MATRIX "  sets: {s: '(a|b|c|d|e) & (a|b|c|d|e) & (a|b|c|d|e) & (a|b|c|d|e) & (a|b|c|d|e) & (a|b|c|d|e)'}",
	     "stands for more than 10000 combinations"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

/* ---- priorities and hooks ---- */

Test(worker_config_routing, priorities_are_the_models)
{
	const struct md_worker_config *config = read_config("models:\n" MODEL("a") MODEL(
	    "b") "  c: {cmd: '${PORT}', medusa: {priority: 9}}\n"
		 "routing: {scheduler: {use: fifo, settings: {fifo: {priority: {a: 5, alias-b: -2, c: 1}}}}}\n");
	cr_assert(model_of(config, "a")->own.priority == 5 && model_of(config, "b")->own.priority == -2);
	cr_assert_eq(model_of(config, "c")->own.priority, 9);
	assert_noted(config, "routing.scheduler.settings.fifo.priority.alias-b", "an alias of b");
	assert_noted(config, "routing.scheduler.settings.fifo.priority.c", "counts instead");
	md_worker_config_destroy(config);
}

Test(worker_config_routing, models_are_loaded_first)
{
	const struct md_worker_config *config =
	    read_config(MODELS "hooks: {on_startup: {preload: [c, ' alias-a ', nope]}}\n");
	cr_assert(config->preload.count == 2 && config->preload.items[0] == 2 && config->preload.items[1] == 0);
	assert_noted(config, "hooks.on_startup.preload[2]", "there is no such model");
	md_worker_config_destroy(config);
	assert_config_refused("hooks: {on_startup: {preload: a}}", "a list of texts is wanted");
}
