/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of the configuration: Perl's, of which those that llama-swap takes (RE2) are nearly all a part. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/config/patterns.h"

#include <pcre2.h>
#include <string.h>

#define PATTERN_MAX 4096u
#define PATTERNS_MAX 256u
/* Enough for any path; a pattern that needs more does not match. */
#define STEPS_MAX 100000u
#define HEAP_MAX_KIB 1024u

static enum md_status compile(struct md_config_build *build, const char *text, const struct md_tree *at, void **out)
{
	int code;
	PCRE2_SIZE offset;
	PCRE2_UCHAR why[120] = "";
	pcre2_code *pattern;
	if (strlen(text) > PATTERN_MAX)
		return md_tree_refuse(at, build->err, "a pattern has at most %u bytes", PATTERN_MAX);
	pattern = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code,
				&offset, NULL);
	if (!pattern) {
		pcre2_get_error_message(code, why, sizeof(why));
		return md_tree_refuse(at, build->err, "no regular expression, at byte %zu: %s", offset, (char *)why);
	}
	*out = pattern;
	return MD_OK;
}

enum md_status md_config_compile_patterns(struct md_config_build *build, const struct md_tree *list)
{
	const struct md_config_texts *texts = &build->config->ignored_paths;
	const struct md_tree *at = list && list->count ? list->first : NULL;
	struct md_config_inner *inner = build->inner;
	if (texts->count > PATTERNS_MAX)
		return md_tree_refuse_place(list, build->err, "there are more than %u patterns", PATTERNS_MAX);
	inner->patterns = md_config_take(build, texts->count, sizeof(*inner->patterns));
	if (!inner->patterns)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < texts->count; i++, at = at ? at->next : NULL) {
		MD_FORWARD(compile(build, texts->items[i], at, &inner->patterns[i]));
		inner->pattern_count++;
	}
	return MD_OK;
}

void md_config_free_patterns(struct md_config_inner *inner)
{
	for (uint32_t i = 0; i < inner->pattern_count; i++)
		pcre2_code_free(inner->patterns[i]);
	inner->pattern_count = 0;
}

bool md_config_ignores_path(const struct md_worker_config *config, const char *path)
{
	const struct md_config_inner *inner = config->inner;
	pcre2_match_context *limits = pcre2_match_context_create(NULL);
	pcre2_match_data *found = pcre2_match_data_create(1, NULL);
	bool ignored = false;
	if (limits && found) {
		pcre2_set_match_limit(limits, STEPS_MAX);
		pcre2_set_heap_limit(limits, HEAP_MAX_KIB);
		for (uint32_t i = 0; i < inner->pattern_count && !ignored; i++)
			ignored =
			    pcre2_match(inner->patterns[i], (PCRE2_SPTR)path, strlen(path), 0, 0, found, limits) >= 0;
	}
	pcre2_match_data_free(found);
	pcre2_match_context_free(limits);
	return ignored;
}
