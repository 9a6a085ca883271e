/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of medusa-capture share. */
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

void md_job_forget_terminal(const struct md_job *job, bool done)
{
	if (md_job_has_end(job) && done && md_stop_signal() == SIGINT && md_stop_came_from_terminal())
		md_stop_forget();
}

enum md_status md_job_write(const struct md_artifact *artifact, const char *path, struct md_artifact_sizes *sizes,
			    struct md_error *err)
{
	md_stop_hold();
	enum md_status status = md_artifact_write(artifact, path, sizes, err);
	md_stop_release();
	return status;
}
