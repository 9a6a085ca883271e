/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/process_spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INHERITED (STDERR_FILENO + 1)

extern char **environ;

/* ---- variables ---- */

static size_t count(const char *const *list)
{
	size_t entries = 0;
	while (list && list[entries])
		entries++;
	return entries;
}

static size_t name_size(const char *entry)
{
	return strcspn(entry, "=");
}

static bool is_replaced(const char *entry, const char *const *extra, size_t extras)
{
	for (size_t i = 0; i < extras; i++)
		if (name_size(extra[i]) == name_size(entry) && !strncmp(extra[i], entry, name_size(entry)))
			return true;
	return false;
}

const char **md_process_environment(const char *const *extra)
{
	size_t extras = count(extra), own = count((const char *const *)environ), used = 0;
	const char **made = malloc((own + extras + 1) * sizeof(*made));
	if (!made)
		return NULL;
	for (size_t i = 0; i < own; i++)
		if (!is_replaced(environ[i], extra, extras))
			made[used++] = environ[i];
	for (size_t i = 0; i < extras; i++)
		if (!is_replaced(extra[i], extra + i + 1, extras - i - 1)) /* the last one of a name counts */
			made[used++] = extra[i];
	made[used] = NULL;
	return made;
}

/* ---- starting ---- */

int md_process_spawn(const struct md_engine_command *command, char *const *environment, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (command->output >= 0)
		posix_spawn_file_actions_adddup2(&actions, command->output, STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	if (command->inherits)
		posix_spawn_file_actions_adddup2(&actions, *command->inherits, INHERITED);
	posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + (command->inherits ? 2 : 1));
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int failure = posix_spawnp(pid, command->argv[0], &actions, &attributes, command->argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failure;
}
