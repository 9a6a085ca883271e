/* SPDX-License-Identifier: Apache-2.0 */
/* On which device the commands that start an engine let it run: a GPU, or hostcuda, which computes on the host. */
#ifndef MD_TOOLS_ENGINE_DEVICE_H
#define MD_TOOLS_ENGINE_DEVICE_H

#include "tools/options.h"

/* Row of an option table; target is a const char *. */
#define MD_DEVICE_OPTION(target)                                                                                       \
	{                                                                                                              \
		.name = "device", .argument = "WHERE", .value = &(target),                                             \
		.help = "gpu, host (hostcuda), or auto (default): a GPU if there is one, else host."                   \
	}

/*
 * Prepares the environment that engines inherit: for hostcuda, its folder comes first in LD_LIBRARY_PATH. wish: "auto",
 * "gpu", "host" or NULL for auto, which says in one line on stderr when it takes hostcuda. MEDUSA_LIBCUDA, which names
 * a driver, is left as it is. Returns -1 when the command should go on, else its exit code.
 */
int md_device_choose(const struct md_command *command, const char *wish);
/*
 * The same for a command that asks the driver itself, about processes that run already: hostcuda is loaded into this
 * process.
 */
int md_device_choose_driver(const struct md_command *command, const char *wish);

#endif
