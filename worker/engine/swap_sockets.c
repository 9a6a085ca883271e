/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/swap_sockets.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swap/swap_place.h"
#include "swap/wire.h"

void md_swap_sockets_remove(const char *name)
{
	char path[PATH_MAX];
	struct md_error err;
	if (md_swap_place_socket(name, path, &err) == MD_OK)
		unlink(path);
}

/* Whether the daemon has ended that has given this name. */
static bool is_left(const char *name)
{
	size_t prefix = strlen(MD_SWAP_SOCKETS_PREFIX);
	char *end;
	if (strncmp(name, MD_SWAP_SOCKETS_PREFIX, prefix) != 0)
		return false;
	long pid = strtol(name + prefix, &end, 10);
	return *end == '-' && pid > 0 && pid != getpid() && kill((pid_t)pid, 0) && errno == ESRCH;
}

/* Also one that does not take this connection. */
static bool listens(const char *name)
{
	char path[PATH_MAX];
	struct md_error err;
	int fd = -1;
	if (md_swap_place_socket(name, path, &err) != MD_OK)
		return false;
	enum md_status status = md_swap_wire_connect_to_ask(path, &fd, &err);
	if (status == MD_OK)
		close(fd);
	return status != MD_ERR_NOT_FOUND;
}

void md_swap_sockets_sweep(void)
{
	struct md_argument_list names = {0};
	struct md_error err;
	if (md_swap_place_names(&names, &err) == MD_OK)
		for (size_t i = 0; i < names.count; i++)
			if (is_left(names.items[i].text) && !listens(names.items[i].text))
				md_swap_sockets_remove(names.items[i].text);
	md_arguments_finish(&names);
}
