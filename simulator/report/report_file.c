/* SPDX-License-Identifier: Apache-2.0 */
/* Distributions as points, and reports as files that are written whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "simulator/report/report.h"

/* 0, 1 ... 98 per cent, then steps of 0.02 up to 99.9, then 100: the curve is fine where SLO percentiles lie. */
#define COARSE 99
#define FINE 95
#define STEPS (COARSE + FINE + 1)
_Static_assert(STEPS <= MD_SIM_CDF_MAX, "a curve has room for each step");

static double step_percent(size_t i)
{
	return i < COARSE ? (double)i : i + 1 < STEPS ? 98 + 0.02 * (double)(i - COARSE + 1) : 100;
}

void md_sim_report_cdf(struct md_sim_samples *samples, struct md_sim_cdf *cdf)
{
	cdf->count = 0;
	for (size_t i = 0; samples->count && i < STEPS; i++) {
		double value = md_sim_samples_percentile(samples, step_percent(i));
		if (!cdf->count || value > cdf->values[cdf->count - 1])
			cdf->values[cdf->count++] = value;
		cdf->parts[cdf->count - 1] = step_percent(i) / 100;
	}
}

bool md_sim_report_normalize(const struct md_sim_report *report, const struct md_sim_result *result,
			     struct md_sim_samples *samples)
{
	for (uint32_t f = 0; f < result->function_count && f < report->functions->count; f++) {
		double slo_ms = (double)report->functions->functions[f].spec.slo_ns * 1e-6;
		const struct md_sim_samples *latency = &result->functions[f].latency_ms;
		for (size_t i = 0; slo_ms > 0 && i < latency->count; i++)
			if (!md_sim_samples_add(samples, latency->values[i] / slo_ms))
				return false;
	}
	return true;
}

static enum md_status write_all(void *report, md_sim_report_writer writer, int fd, const char *path,
				struct md_error *err)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *out = own < 0 ? NULL : fdopen(own, "w");
	if (!out) {
		md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
		if (own >= 0)
			close(own);
		return MD_ERR_OUTPUT;
	}
	errno = 0;
	writer(report, out);
	bool failed = ferror(out);
	int why = errno;
	if (fclose(out)) {
		why = failed ? why : errno;
		failed = true;
	}
	return failed ? md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(why ? why : EIO)) : MD_OK;
}

/* What replaces a file gets its permissions. */
static enum md_status keep_mode(int fd, const struct stat *replaced, const char *path, struct md_error *err)
{
	if (replaced && fchmod(fd, replaced->st_mode & 0777) != 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	return MD_OK;
}

enum md_status md_sim_report_publish(void *report, md_sim_report_writer writer, const char *path, struct md_error *err)
{
	MD_AUTO_FREE char *temporary = NULL;
	struct stat there;
	if (strcmp(path, "-") == 0) {
		errno = 0;
		writer(report, stdout);
		return fflush(stdout) == 0 && !ferror(stdout)
			   ? MD_OK
			   : md_error_set(err, MD_ERR_OUTPUT, "stdout: %s", strerror(errno ? errno : EIO));
	}
	/* publishing renames a file over the path, which would replace a device or a link such as /dev/stdout */
	bool replaces = lstat(path, &there) == 0;
	if (replaces && !S_ISREG(there.st_mode))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: exists and is not a regular file", path);
	MD_AUTO_FD int fd = md_file_create_unnamed(path);
	if (fd < 0)
		MD_FORWARD(md_file_create_beside(path, &temporary, &fd, err));
	enum md_status status = write_all(report, writer, fd, path, err);
	if (status == MD_OK)
		status = keep_mode(fd, replaces ? &there : NULL, path, err);
	if (status == MD_OK && !temporary) {
		fsync(fd); /* before it has a name; if that fails, it fails again in publishing */
		status = md_file_name_beside(fd, path, &temporary, err);
	}
	if (status == MD_OK)
		status = md_file_publish(fd, temporary, path, err);
	if (status != MD_OK && temporary)
		unlink(temporary);
	return status;
}
