/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes of a cluster say of themselves: what is read of it, whatever it is, and what is expected of a node by it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cluster/etcd.h"
#include "worker/cluster/node_view.h"
#include "worker/cluster/record.h"

#define RECORD                                                                                                         \
	"{\"format\":1,\"identity\":\"i\",\"url\":\"http://h:1\",\"version\":\"v\",\"gpus\":[{\"bytes\":5},{}],"       \
	"\"later\":[1],\"models\":[{\"id\":\"m\",\"aliases\":[\"k\",\"n\",7],\"first_token_s\":[1,2,3]},"              \
	"{\"id\":\"n\",\"base\":\"m\",\"unlisted\":true,\"first_token_s\":[0.5,1,4]}]}"

static struct md_record *read_record(const char *text)
{
	struct md_record *record = NULL;
	struct md_error err = {0};
	cr_assert_eq(md_record_read(text, strlen(text), &record, &err), MD_OK, "%s", err.message);
	return record;
}

static void assert_refused(const char *text, enum md_status status, const char *why)
{
	struct md_record *record = NULL;
	struct md_error err = {0};
	cr_assert_eq(md_record_read(text, strlen(text), &record, &err), status, "%s", text);
	cr_assert(strstr(err.message, why), "%s: \"%s\" is not in \"%s\"", text, why, err.message);
}

Test(worker_record, a_record_is_read)
{
	struct md_record *record = read_record(RECORD);
	cr_assert(record->count == 2 && record->gpu_count == 2 && record->gpu_bytes == 5);
	cr_assert_str_eq(md_record_find(record, "m")->id, "m");
	cr_assert_str_eq(md_record_find(record, "k")->id, "m", "by an alias");
	cr_assert_str_eq(md_record_find(record, "n")->id, "n", "an ID comes before an alias");
	cr_assert_str_eq(md_record_find(record, "n")->base, "m");
	cr_assert_null(md_record_find(record, "none"));
	cr_assert_null(md_record_find(record, ""));
	cr_assert(md_record_find(record, "n")->unlisted && !md_record_find(record, "m")->unlisted);
	cr_assert_eq(md_record_find(record, "m")->standing.place, MD_PLACE_DISK, "nothing else was said");
	md_record_free(record);
	md_record_free(NULL);
}

Test(worker_record, other_records_are_refused)
{
	assert_refused("", MD_ERR_CORRUPT, "no JSON object");
	assert_refused("[]", MD_ERR_CORRUPT, "no JSON object");
	assert_refused("{}", MD_ERR_VERSION, "format: 0");
	assert_refused("{\"format\":2}", MD_ERR_VERSION, "format: 2, and this version reads 1");
	assert_refused("{\"format\":1}", MD_ERR_CORRUPT, "identity or url");
	assert_refused("{\"format\":1,\"identity\":\"i\",\"url\":\"u\"}", MD_ERR_CORRUPT, "models: a list");
	assert_refused("{\"format\":1,\"identity\":\"i\",\"url\":\"u\",\"models\":[{\"id\":\"m\"}]}", MD_ERR_CORRUPT,
		       "models[0]: an id and three numbers");
	assert_refused("{\"format\":1,\"identity\":\"i\",\"url\":\"u\",\"models\":[{\"first_token_s\":[1,1,1]}]}",
		       MD_ERR_CORRUPT, "models[0]");
	assert_refused(
	    "{\"format\":1,\"identity\":\"i\",\"url\":\"u\",\"models\":[{\"id\":\"m\",\"first_token_s\":[-1,1,1]}]}",
	    MD_ERR_CORRUPT, "models[0]");
}

static void apply(struct md_record *record, const char *text, bool *cordoned, bool *draining)
{
	struct md_error err = {0};
	json_t *state = md_record_read_state(text, strlen(text), &err);
	cr_assert(state, "%s: %s", text, err.message);
	md_record_apply(record, state, cordoned, draining);
	json_decref(state);
}

Test(worker_record, a_state_changes_what_it_names_and_nothing_else)
{
	struct md_record *record = read_record(RECORD);
	const struct md_standing *m = &record->models[0].standing, *n = &record->models[1].standing;
	bool cordoned, draining;
	apply(record,
	      "{\"format\":1,\"cordoned\":true,\"draining\":false,\"loads\":3,\"load_slows\":0.75,\"models\":{\"m\":{"
	      "\"place\":\"gpu\","
	      "\"first_token_s\":[0.1,0.2,0.3],\"waiting\":4,\"running\":8,\"lacks\":true},\"k\":{\"place\":\"gpu\"},"
	      "\"gone\":{}}}",
	      &cordoned, &draining);
	cr_assert(cordoned && !draining);
	cr_assert(m->place == MD_PLACE_GPU && m->waiting == 4 && m->running == 8 && m->first_s[2] == 0.3);
	cr_assert(m->lacks && !n->lacks);
	cr_assert(n->place == MD_PLACE_DISK && n->first_s[2] == 4);
	cr_assert(record->loads.count == 3 && record->loads.slows == 0.75);
	cr_assert(m->life == 0 && !(m->prefill_s > 0) && !m->uncached, "nothing was said of prompts");
	apply(record,
	      "{\"format\":1,\"models\":{\"m\":{\"life\":77,\"prefill_s_per_mb\":2.5,\"promptless_s\":0.25,"
	      "\"uncached\":true},"
	      "\"n\":{\"life\":-7,\"prefill_s_per_mb\":-1,\"uncached\":1}}}",
	      &cordoned, &draining);
	cr_assert(m->life == 77 && m->prefill_s > 2.4e-6 && m->prefill_s < 2.6e-6 && m->uncached && m->rest_s == 0.25);
	cr_assert(n->life == 0 && !(n->prefill_s > 0) && !n->uncached, "nonsense is left out");
	apply(record,
	      "{\"format\":1,\"loads\":-3,\"load_slows\":7,\"models\":{\"n\":{\"place\":\"moon\",\"first_token_s\":[1,"
	      "1e300,1],\"waiting\":-5,"
	      "\"running\":1e99},\"m\":7}}",
	      &cordoned, &draining);
	cr_assert(!cordoned && !draining);
	cr_assert(m->place == MD_PLACE_DISK && m->waiting == 0, "what is said no more is no more");
	cr_assert(n->place == MD_PLACE_DISK && n->first_s[1] == 1 && n->waiting == 0 && n->running == 0,
		  "nonsense is left out");
	cr_assert(record->loads.count == 0 && record->loads.slows == 1);
	md_record_apply(record, NULL, &cordoned, &draining);
	md_record_free(record);
}

static bool says_left(const char *text)
{
	struct md_error err = {0};
	json_t *state = md_record_read_state(text, strlen(text), &err);
	bool left = md_record_says_left(state);
	cr_assert(state, "%s", err.message);
	json_decref(state);
	return left;
}

Test(worker_record, a_node_that_leaves_has_said_so)
{
	cr_assert(says_left("{\"format\":1,\"left\":true}"));
	cr_assert_not(says_left("{\"format\":1,\"left\":false}"));
	cr_assert_not(says_left("{\"format\":1,\"left\":1}"));
	cr_assert_not(says_left("{\"format\":1}"));
	cr_assert_not(md_record_says_left(NULL), "nothing was said");
}

Test(worker_record, wishes_are_read_as_they_are_written)
{
	static const struct {
		const char *text;
		enum md_status status;
		const char *why;
	} refused[] = {
	    {"{\"wish\":\"drain\"}", MD_ERR_VERSION, "format: 0"},
	    {"{\"format\":2,\"wish\":\"drain\"}", MD_ERR_VERSION, "format: 2, and this version reads 1"},
	    {"{\"format\":1,\"wish\":\"dance\"}", MD_ERR_CORRUPT, "\"cordon\" or \"drain\" is wanted"},
	    {"{\"format\":1,\"wish\":\"\"}", MD_ERR_CORRUPT, "is wanted"},
	    {"drain", MD_ERR_CORRUPT, "no JSON object"},
	};
	struct md_error err = {0};
	enum md_wish wish;
	for (unsigned i = MD_WISH_CORDON; i <= MD_WISH_DRAIN; i++) {
		char *text = md_wish_print((enum md_wish)i);
		cr_assert_eq(md_wish_read(text, strlen(text), &wish, &err), MD_OK, "%s: %s", text, err.message);
		cr_assert_eq(wish, (enum md_wish)i);
		free(text);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		cr_assert_eq(md_wish_read(refused[i].text, strlen(refused[i].text), &wish, &err), refused[i].status,
			     "%s", refused[i].text);
		cr_assert(strstr(err.message, refused[i].why), "%s: %s", refused[i].text, err.message);
	}
}

Test(worker_record, bytes_of_gpus_do_not_wrap_round)
{
	struct md_record *record =
	    read_record("{\"format\":1,\"identity\":\"i\",\"url\":\"u\",\"models\":[],"
			"\"gpus\":[{\"bytes\":9223372036854775807},{\"bytes\":9223372036854775807},{\"bytes\":2}]}");
	cr_assert_eq(record->gpu_bytes, INT64_MAX);
	md_record_free(record);
}

Test(worker_record, what_is_expected)
{
	static const struct {
		struct md_standing standing;
		double expected_s;
	} cases[] = {
	    {{MD_PLACE_GPU, {1, 5, 20}, 0, 3, 0, 0, 0, 0, false, 0, false}, 1},
	    {{MD_PLACE_GPU, {1, 5, 20}, 4, 0, 0, 0, 0, 0, false, 0, false}, 5},
	    {{MD_PLACE_HOST, {1, 5, 20}, 0, 0, 0, 0, 0, 0, false, 0, false}, 5},
	    {{MD_PLACE_LOADING, {1, 5, 20}, 2, 0, 0, 0, 0, 0, false, 0, false}, 12},
	    {{MD_PLACE_DISK, {1, 5, 20}, 1, 0, 0, 0, 0, 0, false, 0, false}, 21},
	    {{MD_PLACE_NOWHERE, {1, 5, 20}, 0, 0, 0, 0, 0, 0, false, 0, false}, MD_STANDING_NEVER},
	};
	const struct md_loads loads = {2, 0.5}; /* two other engines start there: half of 19 s longer for each */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_float_eq(md_standing_expected_s(&cases[i].standing, (struct md_loads){0}),
				   cases[i].expected_s, 1e-9, "case %zu", i);
	cr_expect_float_eq(md_standing_expected_s(&cases[0].standing, loads), 1, 1e-9);
	cr_expect_float_eq(md_standing_expected_s(&cases[2].standing, loads), 5, 1e-9);
	cr_expect_float_eq(md_standing_expected_s(&cases[3].standing, loads), 12 + 9.5 / 2, 1e-9,
			   "one of them is its own");
	cr_expect_float_eq(md_standing_expected_s(&cases[4].standing, loads), 21 + 19, 1e-9);
	cr_expect_float_eq(md_standing_expected_s(&cases[5].standing, loads), MD_STANDING_NEVER, 1e-9);
}

Test(worker_record, small_changes_are_not_told)
{
	struct md_standing a = {MD_PLACE_GPU, {0.100, 0.5, 5}, 5, 9, 0, 0, 0, 0, false, 0, false},
			   b = {MD_PLACE_GPU, {0.102, 0.51, 5.1}, 7, 15, 0, 0, 0, 0, false, 0, false};
	md_standing_round(&a);
	md_standing_round(&b);
	cr_assert(md_standing_equal(&a, &b));
	cr_assert(a.waiting == 4 && a.running == 8);
	cr_assert(a.first_s[0] > 0.085 && a.first_s[0] < 0.115, "a step is a quarter: %g", a.first_s[0]);
	b.waiting = 8;
	cr_assert(!md_standing_equal(&a, &b));
	b = a;
	b.life = 1;
	cr_assert(!md_standing_equal(&a, &b), "another engine");
	b = a;
	b.uncached = true;
	cr_assert(!md_standing_equal(&a, &b));
	a.prefill_s = 1.00e-6;
	b = a;
	b.prefill_s = 1.05e-6;
	md_standing_round(&a);
	md_standing_round(&b);
	cr_assert(md_standing_equal(&a, &b) && a.prefill_s > 0.85e-6 && a.prefill_s < 1.15e-6, "%g", a.prefill_s);
	struct md_standing none = {0};
	md_standing_round(&none);
	cr_assert(none.waiting == 0 && none.running == 0 && none.first_s[0] == 0);
}

Test(worker_record, names_of_places_are_read_as_they_are_written)
{
	enum md_place found;
	for (unsigned i = 0; i < MD_PLACES; i++)
		cr_assert(md_place_find(md_place_name((enum md_place)i), &found) && found == (enum md_place)i);
	cr_assert(!md_place_find("moon", &found) && !md_place_find(NULL, &found));
}

Test(worker_record, what_etcds_gateway_says)
{
	json_t *pair = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "key", "L21lZHVzYS8=", "odd", "L21", "none", "",
				 "text", "9223372036854775807", "word", "12x", "number", (json_int_t)7);
	struct md_buf bytes = {0};
	cr_assert(md_etcd_bytes(pair, "key", &bytes));
	cr_assert_str_eq((char *)bytes.data, "/medusa/");
	cr_assert_eq(bytes.size, 8);
	md_buf_finish(&bytes);
	cr_assert(md_etcd_bytes(pair, "none", &bytes) && bytes.size == 0);
	md_buf_finish(&bytes);
	cr_assert(!md_etcd_bytes(pair, "odd", &bytes));
	md_buf_finish(&bytes);
	cr_assert(!md_etcd_bytes(pair, "missing", &bytes) && !md_etcd_bytes(NULL, "key", &bytes));
	cr_assert_eq(md_etcd_number(pair, "text"), INT64_MAX);
	cr_assert(md_etcd_number(pair, "number") == 7 && !md_etcd_number(pair, "word") && !md_etcd_number(NULL, "x"));
	json_decref(pair);
}

Test(worker_record, names_of_nodes)
{
	char longest[65];
	memset(longest, 'n', 64);
	longest[64] = '\0';
	cr_assert(md_config_is_node_name("gpu-7.example_b") && md_config_is_node_name("7"));
	cr_assert(!md_config_is_node_name("") && !md_config_is_node_name("a/b") && !md_config_is_node_name("-a") &&
		  !md_config_is_node_name("a b") && !md_config_is_node_name(longest));
	longest[63] = '\0';
	cr_assert(md_config_is_node_name(longest));
}

/* ---- demands ---- */

/* A model that is asked `per_s` times a second, for so long, looked at five times a second. */
static void live(struct md_demand *demand, double per_s, uint32_t there, double seconds, uint32_t *told)
{
	double told_rate = demand->told_rate, due = 0;
	for (double at = 0; at < seconds; at += 0.2) {
		due += per_s * 0.2;
		uint64_t come = (uint64_t)due;
		due -= (double)come;
		md_demand_note(demand, demand->taken + come, there, 0.2);
		*told += demand->told_rate < told_rate || demand->told_rate > told_rate;
		told_rate = demand->told_rate;
	}
}

Test(worker_record, rates_are_told_as_powers_of_two_and_seldom)
{
	struct md_demand demand = {0};
	uint32_t told = 0;
	md_demand_note(&demand, 0, 0, 0.2);
	cr_assert(demand.told_rate <= 0 && demand.told_busy <= 0);
	live(&demand, 5, 3, 1200, &told);
	cr_assert_float_eq(demand.rate, 5, 0.2);
	cr_assert_float_eq(demand.busy, 3, 0.01);
	cr_assert(demand.told_rate >= 2.5 && demand.told_rate <= 5 && demand.told_busy >= 1.5 && demand.told_busy <= 3);
	cr_assert_leq(told, 14, "on its way from 0: %u", told);
	told = 0;
	live(&demand, 5, 3, 1200, &told);
	cr_assert_eq(told, 0, "nothing has changed");
	live(&demand, 0, 0, 300, &told);
	cr_assert_lt(demand.told_rate, 1);
	live(&demand, 0, 0, 3600, &told);
	cr_assert(demand.told_rate <= 0 && demand.told_busy <= 0, "nobody has asked for an hour");
	cr_assert_leq(told, 14);
}
