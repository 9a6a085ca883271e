/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a configuration from a text in a test, and what it must be refused for. */
#ifndef TESTS_WORKER_CONFIG_FIXTURE_H
#define TESTS_WORKER_CONFIG_FIXTURE_H

#include <criterion/criterion.h>
#include <string.h>

#include "worker/config/config.h"

/* A refusal: the text, and a part of the message that it must give. */
struct refusal {
	const char *text, *message;
};

static inline const struct md_worker_config *read_config(const char *text)
{
	struct md_error err = {0};
	const struct md_worker_config *config = md_worker_config_parse("c.yaml", text, strlen(text), &err);
	cr_assert_not_null(config, "was refused: %s\n%s", err.message, text);
	return config;
}

static inline void assert_config_refused(const char *text, const char *message)
{
	struct md_error err = {0};
	const struct md_worker_config *config = md_worker_config_parse("c.yaml", text, strlen(text), &err);
	cr_assert_null(config, "was read:\n%s", text);
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
}

static inline void assert_all_refused(const struct refusal *refusals, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_config_refused(refusals[i].text, refusals[i].message);
}

#define ASSERT_ALL_REFUSED(table) assert_all_refused(table, sizeof(table) / sizeof((table)[0]))

static inline const struct md_config_model *model_of(const struct md_worker_config *config, const char *id)
{
	const struct md_config_model *model = md_config_find_model(config, id);
	cr_assert_not_null(model, "there is no model %s", id);
	return model;
}

static inline void assert_noted(const struct md_worker_config *config, const char *path, const char *text)
{
	for (uint32_t i = 0; i < config->note_count; i++)
		if (!strcmp(config->notes[i].path, path) && strstr(config->notes[i].text, text))
			return;
	cr_assert(false, "no note about %s says '%s'; there are %u", path, text, config->note_count);
}

/* The words of a command, with "|" between them. */
static inline void assert_words(const char *const *argv, const char *words)
{
	char joined[4096] = "";
	for (size_t i = 0; argv[i]; i++) {
		if (i)
			strncat(joined, "|", sizeof(joined) - strlen(joined) - 1);
		strncat(joined, argv[i], sizeof(joined) - strlen(joined) - 1);
	}
	cr_assert_str_eq(joined, words);
}

#endif
