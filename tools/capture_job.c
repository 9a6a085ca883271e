/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the steps of medusa-capture share. */
#include <signal.h>
#include <string.h>

#include "tools/capture_job.h"
#include "tools/stop.h"

int md_job_fail(const struct md_job *job, const struct md_error *err, int exit_code)
{
	md_job_say(job, "%s", err->message);
	return exit_code;
}

bool md_job_has_end(const struct md_job *job)
{
	return job->wish->until && strcmp(job->wish->until, "exit");
}

bool md_job_asks_engine(const struct md_job *job)
{
	return !job->wish->until;
}

const char *md_job_until(const struct md_job *job)
{
	return md_job_asks_engine(job) ? MD_UNTIL_COMPLETE : job->wish->until;
}

void md_job_forget_terminal(bool done)
{
	if (done && md_stop_signal() == SIGINT && md_stop_came_from_terminal())
		md_stop_forget();
}
