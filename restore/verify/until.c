/* SPDX-License-Identifier: Apache-2.0 */
/* MEDUSA_UNTIL in verify mode: the report ends where a recording would, so that an engine may be killed after that. */
#define MD_LOG_DOMAIN "verify"

#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"
#include "restore/restore.h"
#include "restore/verify/live_graphs.h"
#include "restore/verify/report_lines.h"
#include "restore/verify/until.h"

static bool reached MD_GUARDED_BY(md_verify_table_lock), ended MD_GUARDED_BY(md_verify_table_lock);

bool md_verify_until_mark(const char *name)
{
	const char *until = md_environment_get("MEDUSA_UNTIL");
	reached |= until && !strncmp(until, "mark=", 5) && !strcmp(until + 5, name);
	return reached && !ended;
}

bool md_verify_until_graphs(size_t labelled)
{
	const char *until = md_environment_get("MEDUSA_UNTIL");
	uint64_t wanted = 0;
	bool given =
	    until && !strncmp(until, "graphs=", 7) && md_setting_parse_number(until + 7, 1, UINT64_MAX, &wanted);
	reached |= given && labelled >= wanted;
	return reached && !ended;
}

bool md_verify_until_over(void)
{
	return ended && md_setting_is_on("MEDUSA_STOP", false, false, "comparing goes on");
}

void md_verify_until_end(void)
{
	ended = true;
	md_info("all graphs until %s are compared", md_environment_get("MEDUSA_UNTIL"));
	md_verify_report_until();
	md_verify_report_end();
}
