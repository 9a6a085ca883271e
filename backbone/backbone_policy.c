/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/backbone_policy.h"

#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"

#define POLICY_MOST (1u << 20) /* bytes */

static enum md_status find_user(const char *word, struct md_backbone_rule *rule, struct md_error *err)
{
	char *end;
	errno = 0;
	unsigned long number = strtoul(word, &end, 10);
	if (!strcmp(word, "*")) {
		rule->any_user = true;
		return MD_OK;
	}
	if (*word >= '0' && *word <= '9' && !*end && !errno && (uid_t)number == number) {
		rule->user = (uid_t)number;
		return MD_OK;
	}
	const struct passwd *entry = getpwnam(word);
	if (!entry)
		return md_error_set(err, MD_ERR_INVALID, "there is no user \"%.60s\"", word);
	rule->user = entry->pw_uid;
	return MD_OK;
}

static enum md_status read_rule(char *line, struct md_backbone_policy *policy, struct md_error *err)
{
	char *rest = NULL, *words[4] = {NULL};
	size_t count = 0;
	line[strcspn(line, "#")] = '\0';
	for (char *word = strtok_r(line, " \t\r", &rest); word && count < 4; word = strtok_r(NULL, " \t\r", &rest))
		words[count++] = word;
	if (!count)
		return MD_OK;
	if (count != 3 || (strcmp(words[0], "read") && strcmp(words[0], "fill")))
		return md_error_set(err, MD_ERR_INVALID, "a rule is \"read USER PATTERN\" or \"fill USER PATTERN\"");
	struct md_backbone_rule rule = {.fills = !strcmp(words[0], "fill")};
	MD_FORWARD(find_user(words[1], &rule, err));
	if (!MD_ARRAY_EXTEND(policy->rules, policy->count) || !(rule.pattern = strdup(words[2])))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a rule");
	policy->rules[policy->count++] = rule;
	return MD_OK;
}

enum md_status md_backbone_policy_read(const char *path, struct md_backbone_policy *policy, struct md_error *err)
{
	struct md_file_bytes bytes;
	unsigned number = 0;
	enum md_status status = MD_OK;
	*policy = (struct md_backbone_policy){0};
	MD_FORWARD(md_file_read(path, POLICY_MOST, &bytes, err));
	char *text = strndup((const char *)bytes.data, bytes.size), *rest = text;
	md_file_release(&bytes);
	if (!text)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %s", path);
	for (char *line; status == MD_OK && (line = strsep(&rest, "\n"));) {
		number++;
		if (read_rule(line, policy, err) != MD_OK)
			status = md_error_prefix(err, "%s: line %u", path, number);
	}
	free(text);
	if (status != MD_OK)
		md_backbone_policy_finish(policy);
	return status;
}

void md_backbone_policy_finish(struct md_backbone_policy *policy)
{
	for (size_t i = 0; i < policy->count; i++)
		free(policy->rules[i].pattern);
	free(policy->rules);
	*policy = (struct md_backbone_policy){0};
}

bool md_backbone_policy_allows(const struct md_backbone_policy *policy, uid_t user, const char *name, bool fill)
{
	if (user == geteuid() || !user)
		return true;
	for (size_t i = 0; policy && i < policy->count; i++) {
		const struct md_backbone_rule *rule = &policy->rules[i];
		if ((rule->any_user || rule->user == user) && (rule->fills || !fill) &&
		    !fnmatch(rule->pattern, name, 0))
			return true;
	}
	return false;
}
