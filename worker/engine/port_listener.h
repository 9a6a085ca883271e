/* SPDX-License-Identifier: Apache-2.0 */
/* The socket that takes connections to an address of this machine. */
#ifndef MD_WORKER_ENGINE_PORT_LISTENER_H
#define MD_WORKER_ENGINE_PORT_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "http/address.h"

bool md_port_is_loopback(const struct md_http_address *address);
/*
 * The inode of the socket that would take a connection to this address of the loopback; 0: there is none, or it is unknown. The
 * kernel looks it up as it does for a connection, so this takes no longer where there are many (sock_diag(7)). A kernel that
 * cannot be asked has its tables of all connections read, which takes longer; the log says so once.
 */
uint64_t md_port_listener(const struct md_http_address *address);

#endif
