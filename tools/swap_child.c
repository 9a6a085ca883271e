/* SPDX-License-Identifier: Apache-2.0 */
/* Starts processes beside medusa-swap run, and reaps them without waiting for them. */
#include "tools/swap_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(const char *word, int fd, int beside, pid_t *pid)
{
	char *const argv[] = {"medusa-swap", (char *)word, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fd, MD_SWAP_CHILD_CONNECTION);
	if (beside >= 0)
		posix_spawn_file_actions_adddup2(&actions, beside, MD_SWAP_CHILD_BESIDE);
	posix_spawnattr_setsigmask(&attributes, &none);
	/* A session of its own: signals of a terminal, and to the engine's family, are not for it. */
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	int failure = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failure;
}

/* A number above those that the process gets, so that one action does not overwrite the other's source. */
static int raised(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, MD_SWAP_CHILD_BESIDE + 1);
}

enum md_status md_swap_child_start(struct md_swap_server *s, const char *word, enum md_swap_role role, int beside,
				   struct md_swap_client **made, struct md_error *err)
{
	int ends[2];
	pid_t pid;
	struct md_swap_client *client = s->client_count < MD_SWAP_CLIENTS ? calloc(1, sizeof(*client)) : NULL;
	if (!client || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		free(client);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a process beside medusa-swap run");
	}
	int theirs = raised(ends[1]), also = raised(beside);
	int failure = theirs < 0 || (beside >= 0 && also < 0) ? EMFILE : spawn(word, theirs, also, &pid);
	close(ends[1]);
	if (theirs >= 0)
		close(theirs);
	if (also >= 0)
		close(also);
	if (failure) {
		close(ends[0]);
		free(client);
		return md_error_set(err, MD_ERR_IO, "starting a process beside medusa-swap run (%s): %s", word,
				    strerror(failure));
	}
	client->role = role;
	client->pid = pid;
	md_swap_wire_init(&client->wire, ends[0]);
	s->clients[s->client_count++] = client;
	*made = client;
	return MD_OK;
}

void md_swap_child_reap(struct md_swap_server *s, pid_t pid)
{
	for (size_t i = 0; i < MD_SWAP_CHILDREN; i++)
		if (!s->ended[i]) {
			s->ended[i] = pid;
			break;
		}
	md_swap_child_reap_all(s);
}

void md_swap_child_reap_all(struct md_swap_server *s)
{
	for (size_t i = 0; i < MD_SWAP_CHILDREN; i++)
		if (s->ended[i] && waitpid(s->ended[i], NULL, WNOHANG) != 0)
			s->ended[i] = 0;
}
