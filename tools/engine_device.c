/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for a GPU without touching the driver in this process, and puts hostcuda in front of engines. */
#include "tools/engine_device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/preload.h"
#include "tools/run.h"

/* Called in a child process, because a driver that was initialized does not survive the fork that starts an engine. */
static int initialize_driver(void)
{
	unsetenv("CUDA_INJECTION64_PATH"); /* such a tool is meant for the engine, not for this search for a GPU */
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*init)(unsigned flags) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
	return !init || init(0);
}

/* Looks at device files first, which is quick; if they have other names, asks the driver. */
static bool has_gpu(void)
{
	int status;
	pid_t child;
	if (!access("/dev/nvidiactl", F_OK) || !access("/dev/nvidia0", F_OK))
		return true;
	child = fork();
	if (child == 0)
		_exit(initialize_driver());
	while (child > 0 && waitpid(child, &status, 0) < 0)
		;
	return child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool find_hostcuda(char folder[PATH_MAX], struct md_error *err)
{
	char *slash;
	if (md_preload_locate("hostcuda/libcuda.so.1", folder, NULL) != MD_OK &&
	    md_preload_locate("medusa/hostcuda/libcuda.so.1", folder, err) != MD_OK)
		return false;
	slash = strrchr(folder, '/');
	*slash = '\0';
	return true;
}

static int take_hostcuda(const struct md_command *command)
{
	const char *before = secure_getenv("LD_LIBRARY_PATH");
	MD_AUTO_FREE char *value = NULL;
	char folder[PATH_MAX];
	struct md_error err = {0};
	if (!find_hostcuda(folder, &err)) {
		md_options_say(command, "--device host: %s", err.message);
		return MD_EXIT_INPUT;
	}
	if (strchr(folder, ':')) {
		md_options_say(command, "--device host: %s: a colon in the path cannot be in LD_LIBRARY_PATH", folder);
		return MD_EXIT_INPUT;
	}
	if (asprintf(&value, "%s%s%s", folder, before && *before ? ":" : "", before ? before : "") < 0 ||
	    setenv("LD_LIBRARY_PATH", value, 1)) {
		md_options_say(command, "--device host: out of memory for its environment");
		return MD_EXIT_COMMAND;
	}
	return -1;
}

/* The dynamic linker has read LD_LIBRARY_PATH already; it takes a library of this name that is loaded. */
static int load_hostcuda(const struct md_command *command)
{
	char folder[PATH_MAX], path[PATH_MAX + 32];
	struct md_error err = {0};
	if (!find_hostcuda(folder, &err)) {
		md_options_say(command, "--device host: %s", err.message);
		return MD_EXIT_INPUT;
	}
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
		md_options_say(command, "--device host: %s", dlerror());
		return MD_EXIT_COMMAND;
	}
	return -1;
}

static int choose(const struct md_command *command, const char *wish, const char *what,
		  int (*take)(const struct md_command *command))
{
	bool automatic = !wish || !strcmp(wish, "auto");
	if (wish && !strcmp(wish, "host"))
		return take(command);
	if (!automatic && strcmp(wish, "gpu") != 0)
		return md_options_usage_error(command, "--device: \"%s\" is none of auto, gpu, host", wish);
	if (secure_getenv("MEDUSA_LIBCUDA") || has_gpu())
		return -1;
	if (!automatic) {
		md_options_say(command,
			       "--device gpu: there is no GPU here with a driver (libcuda.so.1); --device host "
			       "runs on hostcuda");
		return MD_EXIT_INPUT;
	}
	md_options_say(command, "no GPU here: %s hostcuda, which computes on the host (--device host)", what);
	return take(command);
}

int md_device_choose(const struct md_command *command, const char *wish)
{
	return choose(command, wish, "the engine runs on", take_hostcuda);
}

int md_device_choose_driver(const struct md_command *command, const char *wish)
{
	return choose(command, wish, "processes are looked for on", load_hostcuda);
}
