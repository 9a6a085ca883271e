/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: three lines as what stands in etcd of a node: its record, its state, and a wish; what is missing is empty. A refusal says why, in a text that
 * can be told as JSON. What is read has its bounds and is found by its names, whatever the state says, and without a state it is as it was.
 */
#include <math.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "worker/cluster/record.h"

bool fuzz_accepted;

static void check_told(const char *what, const char *text)
{
	json_t *told = json_string(text);
	FUZZ_REQUIRE(told && *text, "%s is no text: \"%s\"", what, text);
	json_decref(told);
}

static void check_refusal(enum md_status status, const struct md_error *err)
{
	FUZZ_REQUIRE(status == err->status, "status %d, and the error says %d", status, err->status);
	FUZZ_REQUIRE(status == MD_ERR_CORRUPT || status == MD_ERR_VERSION, "refused with status %d", status);
	check_told("the reason", err->message);
}

static void check_standing(const struct md_standing *standing)
{
	FUZZ_REQUIRE(standing->place < MD_PLACES, "place %d", standing->place);
	FUZZ_REQUIRE(standing->waiting <= INT32_MAX && standing->running <= INT32_MAX, "requests");
	for (unsigned i = 0; i < MD_STARTS; i++)
		FUZZ_REQUIRE(standing->first_s[i] >= 0 && standing->first_s[i] < MD_STANDING_NEVER, "%g s",
			     standing->first_s[i]);
	FUZZ_REQUIRE(standing->rate >= 0 && standing->rate <= 1e9 && standing->busy >= 0 && standing->busy <= 1e9,
		     "%g requests a second, %g there", standing->rate, standing->busy);
	double expected_s = md_standing_expected_s(standing, (struct md_loads){3, 0.5});
	FUZZ_REQUIRE(isfinite(expected_s) && expected_s >= 0, "%g s are expected", expected_s);
}

/* Names are sorted, each once; an ID means a model that has it, an alias means a model that says so. */
static void check_names(const struct md_record *record)
{
	for (uint32_t i = 0; i < record->name_count; i++) {
		const struct md_record_name *name = &record->names[i];
		FUZZ_REQUIRE(!i || strcmp(name[-1].name, name->name) < 0, "name %u is out of order", i);
		FUZZ_REQUIRE(name->model < record->count, "name %u is of model %u", i, name->model);
		FUZZ_REQUIRE(md_record_find(record, name->name) == &record->models[name->model], "name %u", i);
	}
	for (uint32_t i = 0; i < record->count; i++) {
		const struct md_record_model *found = md_record_find(record, record->models[i].id);
		const json_t *alias;
		size_t at;
		FUZZ_REQUIRE(found && !strcmp(found->id, record->models[i].id), "model %u is not found by its ID", i);
		json_array_foreach(record->models[i].aliases, at, alias)
		    FUZZ_REQUIRE(!json_is_string(alias) || md_record_find(record, json_string_value(alias)),
				 "model %u is not found by alias %zu", i, at);
	}
}

static void check_unsaid(const struct md_record *record)
{
	for (uint32_t i = 0; i < record->count; i++) {
		const struct md_record_model *model = &record->models[i];
		FUZZ_REQUIRE(model->standing.place == MD_PLACE_DISK && !model->standing.waiting &&
				 !model->standing.running && !(model->standing.rate > 0) &&
				 !(model->standing.busy > 0) &&
				 !memcmp(model->standing.first_s, model->first_s, sizeof(model->first_s)),
			     "model %u stands as nobody has said", i);
	}
}

static void check_record(struct md_record *record, const json_t *state)
{
	bool cordoned, draining;
	check_told("url", record->url);
	FUZZ_REQUIRE(record->gpu_bytes <= INT64_MAX, "%llu bytes of GPUs", (unsigned long long)record->gpu_bytes);
	for (uint32_t i = 0; i < record->count; i++)
		FUZZ_REQUIRE(record->models[i].bytes <= INT64_MAX && record->models[i].parallel <= INT32_MAX &&
				 record->models[i].min_nodes <= INT32_MAX && record->models[i].max_nodes <= INT32_MAX,
			     "model %u has numbers that no plan takes", i);
	check_names(record);
	check_unsaid(record);
	md_record_apply(record, state, &cordoned, &draining);
	FUZZ_REQUIRE(state || (!cordoned && !draining), "cordoned or draining without a state");
	for (uint32_t i = 0; i < record->count; i++)
		check_standing(&record->models[i].standing);
	md_record_apply(record, NULL, &cordoned, &draining);
	check_unsaid(record);
}

static void check_wish(const char *text, size_t size)
{
	enum md_wish wish = MD_WISH_NONE, again = MD_WISH_NONE;
	struct md_error err = {0};
	enum md_status status = md_wish_read(text, size, &wish, &err);
	if (status != MD_OK) {
		check_refusal(status, &err);
		FUZZ_REQUIRE(wish == MD_WISH_NONE, "refused, and wished");
		return;
	}
	fuzz_accepted = true;
	char *printed = md_wish_print(wish);
	FUZZ_REQUIRE(printed && md_wish_read(printed, strlen(printed), &again, &err) == MD_OK && again == wish,
		     "%s is another wish", printed);
	free(printed);
}

/* A copy of the next line that ends where nobody may read. */
static char *take_line(const uint8_t **data, size_t *left, size_t *size)
{
	const uint8_t *stop = memchr(*data, '\n', *left);
	*size = stop ? (size_t)(stop - *data) : *left;
	char *line = malloc(*size ? *size : 1);
	FUZZ_REQUIRE(line, "memory");
	memcpy(line, *data, *size);
	size_t taken = *size + (stop ? 1 : 0);
	*data += taken;
	*left -= taken;
	return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t record_size, state_size, wish_size;
	char *record_text = take_line(&data, &size, &record_size);
	char *state_text = take_line(&data, &size, &state_size);
	char *wish_text = take_line(&data, &size, &wish_size);
	struct md_error err = {0}, state_err = {0};
	struct md_record *record = NULL;
	enum md_status status = md_record_read(record_text, record_size, &record, &err);
	json_t *state = md_record_read_state(state_text, state_size, &state_err);
	fuzz_accepted = status == MD_OK || state;
	check_wish(wish_text, wish_size);
	if (!state)
		check_refusal(state_err.status, &state_err);
	if (status == MD_OK)
		check_record(record, state);
	else
		check_refusal(status, &err);
	md_record_free(record);
	json_decref(state);
	free(record_text);
	free(state_text);
	free(wish_text);
	return 0;
}
