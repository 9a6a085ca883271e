/* SPDX-License-Identifier: Apache-2.0 */
/* Reads switches and numbers of the environment strictly, and names the value that is neither. */
#include "base/setting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/environment.h"

#define MD_LOG_DOMAIN "setting"
#include "base/log.h"

#define NAMED_MOST 32u

/* A process reads some variables many times, and at times from a child that shares nothing with its parent but memory. */
static const char *named[NAMED_MOST];

static bool is_first(const char *name)
{
	for (unsigned i = 0; i < NAMED_MOST; i++) {
		const char *nobody = NULL;
		if (__atomic_compare_exchange_n(&named[i], &nobody, name, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
		if (!strcmp(nobody, name))
			return false;
	}
	return true; /* rather twice than never */
}

void md_setting_say_unreadable(const char *name, const char *value, const char *wanted, const char *so)
{
	if (is_first(name))
		md_error_log("%s=%.60s: %s is wanted; %s", name, value, wanted, so);
}

/* 1: on, 0: off, -1: neither. */
static int parse_switch(const char *text)
{
	static const char *const words[] = {"0", "1", "off", "on", "false", "true", "no", "yes"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcasecmp(text, words[i]))
			return (int)(i % 2);
	return -1;
}

bool md_setting_is_on(const char *name, bool otherwise, bool unreadable, const char *so)
{
	const char *text = md_environment_get(name);
	int answer = text && *text ? parse_switch(text) : otherwise;
	if (answer >= 0)
		return answer;
	md_setting_say_unreadable(name, text, "one of " MD_SETTING_SWITCH, so);
	return unreadable;
}

bool md_setting_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	const char *digits = text + (hexadecimal ? 2 : 0);
	size_t count = strspn(digits, hexadecimal ? "0123456789abcdefABCDEF" : "0123456789");
	if (!count || digits[count])
		return false;
	errno = 0;
	unsigned long long value = strtoull(digits, NULL, hexadecimal ? 16 : 10);
	if (errno || value < least || value > most)
		return false;
	*out = value;
	return true;
}

uint64_t md_setting_number_in(const char *text, const char *name, uint64_t least, uint64_t most, uint64_t otherwise)
{
	char wanted[96], so[48];
	uint64_t value = otherwise;
	if (!text || !*text || md_setting_parse_number(text, least, most, &value))
		return value;
	if (most == UINT64_MAX)
		snprintf(wanted, sizeof(wanted), "a whole number from %" PRIu64 " on", least);
	else
		snprintf(wanted, sizeof(wanted), "a whole number from %" PRIu64 " to %" PRIu64, least, most);
	if (otherwise == UINT64_MAX)
		snprintf(so, sizeof(so), "there is no limit now");
	else
		snprintf(so, sizeof(so), "%" PRIu64 " is used", otherwise);
	md_setting_say_unreadable(name, text, wanted, so);
	return otherwise;
}

uint64_t md_setting_number(const char *name, uint64_t least, uint64_t most, uint64_t otherwise)
{
	return md_setting_number_in(md_environment_get(name), name, least, most, otherwise);
}
