/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into every test program: run by itself, without tests/run.sh, it finds its build folder and
 * the device there. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SKIPPED 77
#ifdef MD_SANITIZED /* as tests/run.sh has them */
static const char asan_options[] = "verify_asan_link_order=0:detect_leaks=1:handle_segv=1:allow_user_segv_handler=1";
#endif

/* The program lies in BUILD/tests. */
static int find_build(char build[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", build, PATH_MAX - 1);
	char *slash;
	if (length <= 0)
		return 0;
	build[length] = '\0';
	for (int up = 0; up < 2; up++) {
		slash = strrchr(build, '/');
		if (!slash)
			return 0;
		*slash = '\0';
	}
	return 1;
}

static int has_device(const char *build)
{
	char path[PATH_MAX + 64];
	snprintf(path, sizeof(path), "%s/lib/hostcuda/libcuda.so.1", build);
	return access(path, R_OK) == 0;
}

/* Tests name their samples from the sources' folder, which has the build folder in it, or in its build/. */
static void enter_sources(const char *build)
{
	char path[PATH_MAX + 64];
	char folder[PATH_MAX];
	char *slash;
	snprintf(folder, sizeof(folder), "%s", build);
	while ((slash = strrchr(folder, '/')) && slash > folder) {
		*slash = '\0';
		snprintf(path, sizeof(path), "%s/models/recipes/tiny.yaml", folder);
		if (access(path, R_OK) == 0) {
			if (chdir(folder))
				perror(folder);
			return;
		}
	}
}

static void set_environment(const char *build)
{
	const char *libraries = getenv("LD_LIBRARY_PATH");
	static char path[2 * PATH_MAX];
	snprintf(path, sizeof(path), "%s/lib/hostcuda%s%s", build, libraries && *libraries ? ":" : "",
		 libraries ? libraries : "");
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("MEDUSA_BUILD", build, 1);
#ifdef MD_SANITIZED
	setenv("ASAN_OPTIONS", asan_options, 0);
#endif
}

/*
 * The dynamic linker and the sanitizers read their settings when a program starts, so it is started anew. MEDUSA_BUILD
 * says that somebody has chosen already: tests/run.sh, or whoever wants the tests on another device.
 */
__attribute__((constructor)) static void start_with_settings(int argc, char **argv)
{
	char build[PATH_MAX] = "";
	(void)argc;
	if (getenv("MEDUSA_BUILD"))
		return;
	if (find_build(build) && has_device(build)) {
		set_environment(build);
		enter_sources(build);
		execv("/proc/self/exe", argv);
	}
	fprintf(stderr,
		"%s: skipped: %s/lib/hostcuda/libcuda.so.1 is not there: run `make all tests`, or set MEDUSA_BUILD to "
		"the build folder and LD_LIBRARY_PATH to that of the driver\n",
		argv[0], build);
	_exit(SKIPPED);
}
