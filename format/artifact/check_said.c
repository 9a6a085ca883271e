/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the facts and arguments of the engine: names, lengths and order. */
#include <string.h>

#include "format/artifact/bad.h"
#include "format/artifact/sections.h"

static enum md_status check_facts(const struct md_fingerprint *fingerprint, struct md_error *err)
{
	if (fingerprint->fact_count > MD_FACTS_MAX)
		return md_bad_section(err, "fingerprint", "%u facts, at most %d", fingerprint->fact_count,
				      MD_FACTS_MAX);
	for (uint32_t i = 0; i < fingerprint->fact_count; i++) {
		const struct md_fingerprint_fact *fact = &fingerprint->facts[i];
		if (!fact->name || !*fact->name || strlen(fact->name) > MD_FACT_NAME_MAX)
			return md_bad_section(err, "fingerprint", "fact %u has no name, or one of over %d bytes", i,
					      MD_FACT_NAME_MAX);
		if (!fact->value || strlen(fact->value) > MD_FACT_VALUE_MAX)
			return md_bad_section(err, "fingerprint", "fact %.100s has no value, or one of over %d bytes",
					      fact->name, MD_FACT_VALUE_MAX);
		if (i && strcmp(fingerprint->facts[i - 1].name, fact->name) >= 0)
			return md_bad_section(err, "fingerprint", "fact %.100s is not behind the one before",
					      fact->name);
	}
	return MD_OK;
}

static enum md_status check_texts(const struct md_argument_list *list, const char *what, struct md_error *err)
{
	if (list->count > MD_ARGUMENTS_MAX)
		return md_bad_section(err, "fingerprint", "%u %s, at most %d", list->count, what, MD_ARGUMENTS_MAX);
	for (uint32_t i = 0; i < list->count; i++)
		if (!list->items[i].text)
			return md_bad_section(err, "fingerprint", "%s: number %u has no text", what, i);
	return MD_OK;
}

enum md_status md_artifact_check_said(const struct md_fingerprint *fingerprint, struct md_error *err)
{
	MD_FORWARD(check_facts(fingerprint, err));
	MD_FORWARD(check_texts(&fingerprint->arguments, "arguments", err));
	return check_texts(&fingerprint->vary, "patterns of arguments that may vary", err);
}
