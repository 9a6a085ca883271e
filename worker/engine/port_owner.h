/* SPDX-License-Identifier: Apache-2.0 */
/* Who listens at the address of an engine, as the kernel says: this engine, another one, or somebody else. */
#ifndef MD_WORKER_ENGINE_PORT_OWNER_H
#define MD_WORKER_ENGINE_PORT_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

#include "http/address.h"

/*
 * Each engine has this variable, with a value of its own: whoever leaves the engine's process group, as a container's
 * helper does, still has it.
 */
#define MD_ENGINE_MARK "MEDUSA_WORKER_ENGINE"

/* Whether a process of this machine listens there. False for addresses that are not the loopback's, and if unknown. */
bool md_port_is_taken(const struct md_http_address *address);
/*
 * The process that listens there although it can't be this engine: it is in another process group and has another mark, or
 * none and began before the engine. 0: there is none, or it is not known who listens (another user's process).
 */
pid_t md_port_foreign_owner(const struct md_http_address *address, pid_t group, const char *mark);

#endif
