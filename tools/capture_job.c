/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the steps of medusa-capture share. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/capture_job.h"
#include "tools/stop.h"

uint32_t md_job_rank(const struct md_job *job)
{
	return (uint32_t)(job->at - job->ranks);
}

void md_job_say(const struct md_job *job, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	va_start(args, format);
	int size = vasprintf(&text, format, args);
	va_end(args);
	if (size < 0)
		md_options_say(job->command, "out of memory for a message");
	else if (job->bundle && job->at)
		md_options_say(job->command, "rank %u: %s", md_job_rank(job), text);
	else
		md_options_say(job->command, "%s", text);
	if (size >= 0)
		free(text);
}

int md_job_each(struct md_job *job, int (*step)(struct md_job *job))
{
	int result = -1;
	for (uint32_t i = 0; i < job->rank_count && result < 0; i++) {
		job->at = &job->ranks[i];
		result = step(job);
	}
	job->at = job->bundle ? NULL : job->ranks;
	return result;
}

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
