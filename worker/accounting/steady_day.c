/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/steady_day.h"

#define SLACK_US 60000000 /* by which a clock that is set right may be ahead of one that is not */

int64_t md_steady_day_now(struct md_steady_day *day, int64_t system_us, uint64_t now_ns, uint64_t patience_ns)
{
	int64_t expected = day->us ? day->us + (int64_t)((now_ns - day->at) / 1000) : system_us;
	if (system_us <= expected + SLACK_US)
		day->ahead_ns = 0;
	else if (!day->ahead_ns)
		day->ahead_ns = now_ns;
	bool believed = !day->ahead_ns || now_ns - day->ahead_ns >= patience_ns;
	day->us = believed ? system_us : expected;
	day->at = now_ns;
	if (believed)
		day->ahead_ns = 0;
	return day->us;
}
