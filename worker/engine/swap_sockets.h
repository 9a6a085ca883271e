/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets by which medusa-swap finds engines: those of engines that were killed stay, and are removed here. */
#ifndef MD_WORKER_ENGINE_SWAP_SOCKETS_H
#define MD_WORKER_ENGINE_SWAP_SOCKETS_H

#define MD_SWAP_SOCKETS_PREFIX "worker-" /* of engines' names; the daemon's process id and a dash follow */

/* The socket of an engine whose processes have ended. */
void md_swap_sockets_remove(const char *name);
/* Sockets of daemons that have ended, as far as nobody answers there. */
void md_swap_sockets_sweep(void);

#endif
