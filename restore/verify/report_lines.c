/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a verify run: one line for each comparison, written at once, so that the findings outlive the engine.
 */
#define MD_LOG_DOMAIN "verify"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "format/verify_line.h"
#include "restore/restore.h"
#include "restore/verify/report_lines.h"

static atomic_bool lost; /* a line was lost: the report gets no end, so that nobody takes it for whole */

static enum md_status append(const char *path, const char *line, size_t size, struct md_error *err)
{
	MD_AUTO_FD int fd = md_file_open_append(path, true);
	int failure = fd < 0 ? errno : md_descriptor_write(fd, line, size);
	return failure ? md_error_set(err, MD_ERR_IO, "%s", strerror(failure)) : MD_OK;
}

static bool write_line(const struct md_verify_line *line)
{
	MD_AUTO_FREE char *text = NULL;
	struct md_error err = {0};
	size_t size = 0;
	if (!md_restore.report)
		return true;
	if (md_verify_line_write(line, &text, &size, &err) == MD_OK &&
	    append(md_restore.report, text, size, &err) == MD_OK)
		return true;
	atomic_store(&lost, true);
	md_warn("report %s: %s", md_restore.report, err.message);
	return false;
}

bool md_verify_report_begin(const char *label, unsigned batch)
{
	const struct md_verify_line line = {MD_VERDICT_BEGUN, label, batch, 0, ""};
	return write_line(&line);
}

void md_verify_report(const char *label, unsigned batch, enum md_verdict verdict, uint64_t bytes, const char *reason)
{
	const struct md_verify_line line = {verdict, label, batch, bytes, reason};
	write_line(&line);
	bool right = verdict == MD_VERDICT_PASS || verdict == MD_VERDICT_SKIPPED || verdict == MD_VERDICT_BEGINS ||
		     verdict == MD_VERDICT_DROPPED || verdict == MD_VERDICT_OWED || verdict == MD_VERDICT_SETTLED;
	md_log(right ? MD_LOG_INFO : MD_LOG_WARN, MD_LOG_DOMAIN, "graph %s/%u: %s %s", label, batch,
	       md_verdict_name(verdict), reason);
}

static void report_alone(enum md_verdict verdict)
{
	const struct md_verify_line line = {.verdict = verdict};
	if (!atomic_load(&lost))
		write_line(&line);
}

void md_verify_report_until(void)
{
	report_alone(MD_VERDICT_UNTIL);
}

void md_verify_report_end(void)
{
	report_alone(MD_VERDICT_END);
}
