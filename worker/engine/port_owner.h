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

enum md_port_use {
	MD_PORT_FREE,
	MD_PORT_LISTENED,  /* a process of this machine listens there */
	MD_PORT_CONNECTED, /* a connection has the port, or had it a minute ago, so nobody can listen there */
};
/* MD_PORT_FREE for addresses that are not the loopback's, and if it is unknown. */
enum md_port_use md_port_use(const struct md_http_address *address);
/* The inode of the socket that listens there. 0: none does, it is no address of the loopback, or it is unknown. */
uint64_t md_port_socket(const struct md_http_address *address);
/*
 * The process that has this socket although it can't be this engine: it is in another process group and has another mark, or
 * none and began before the engine. 0: there is none, or it is not known who has it (another user's process). This looks into all
 * processes of the machine, so it is for other threads than the loop's (port_search.h).
 */
pid_t md_port_foreign_owner(uint64_t inode, pid_t group, const char *mark);

#endif
