/* SPDX-License-Identifier: Apache-2.0 */
/* The time that an artifact gives as its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analyze/analyze.h"

#define YEAR_10000 253402300800 /* a year of four digits is all that RFC 3339 can write */

enum md_status md_analyze_time(char text[MD_ANALYZE_TIME_BYTES], struct md_error *err)
{
	const char *epoch = secure_getenv("SOURCE_DATE_EPOCH");
	time_t now = time(NULL);
	struct tm parts;
	if (epoch && *epoch) {
		size_t digits = strspn(epoch, "0123456789");
		errno = 0;
		now = (time_t)strtoll(epoch, NULL, 10);
		if (epoch[digits] || errno || now >= YEAR_10000)
			return md_error_set(err, MD_ERR_INVALID,
					    "SOURCE_DATE_EPOCH=%.100s: not seconds since 1970 before the year 10000",
					    epoch);
	}
	gmtime_r(&now, &parts);
	strftime(text, MD_ANALYZE_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return MD_OK;
}
