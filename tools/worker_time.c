/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/worker_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 100000000000ll /* seconds; some 3,000 years */

static bool parse_number(const char *text, int64_t now, int64_t *seconds)
{
	static const char units[] = "smhd";
	static const int64_t lengths[] = {1, 60, 3600, 86400};
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (errno || *text < '0' || *text > '9' || value > MOST || (*end && (!unit || end[1])))
		return false;
	*seconds = unit ? now - value * lengths[unit - units] : value;
	*seconds = *seconds < 0 ? 0 : *seconds;
	return true;
}

static bool parse_date(const char *text, int64_t *seconds)
{
	static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm at = {0};
		const char *end = strptime(text, forms[i], &at);
		if (!end || (*end == 'Z' ? end[1] : *end))
			continue;
		*seconds = timegm(&at);
		return *seconds >= 0;
	}
	return false;
}

bool md_worker_time_parse(const char *text, int64_t now, int64_t *seconds)
{
	return parse_number(text, now, seconds) || parse_date(text, seconds);
}
