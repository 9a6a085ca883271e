/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of a device session's kernels: a session whose kernels are those of an image of the tests, or the real ones on a GPU. */
#ifndef TESTS_DEVICE_SESSION_FIXTURE_H
#define TESTS_DEVICE_SESSION_FIXTURE_H

#include "driver/device_session.h"
#include "tests/hostcuda_fixture.h"

static struct md_device_session session;
static struct md_error err;

/* image: NAME of tests/images/NAME_kernels.c */
static void open_with(const char *image)
{
	char path[4096];
	const char *build = getenv("MEDUSA_BUILD");
	device_open();
	snprintf(path, sizeof(path), "%s/tests/images/%s_kernels.host.so", build ? build : "build", image);
	if (on_hostcuda())
		setenv("MEDUSA_PROBE_KERNEL", path, 1);
	cr_assert_eq(md_device_session_open(&session, UINT64_MAX, &err), MD_OK, "%s", err.message);
}

static void finish(void)
{
	md_device_session_close(&session);
}

static void done(enum md_status status)
{
	cr_assert_eq(status, MD_OK, "%s", err.message);
}

#endif
