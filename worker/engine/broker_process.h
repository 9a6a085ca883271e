/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-backbone as a process of the daemon's: started, and started again when it ends. */
#ifndef MD_WORKER_ENGINE_BROKER_PROCESS_H
#define MD_WORKER_ENGINE_BROKER_PROCESS_H

#include "worker/engine/process.h"

struct md_engine_broker;

/* Borrowed, and unchanged while the broker is there. */
struct md_engine_broker_settings {
	const char *command; /* path of medusa-backbone */
	const char *socket;  /* where it serves; a socket that is there is an earlier daemon's, and is replaced */
	int output;
};

/*
 * Listens at the socket, and starts the process, which inherits that: who connects while there is no process waits for the next
 * one. It is started again at once, and after 1, 2, 4 ... 64 s if it ended within 5 s. It ends when this daemon does, SIGKILL
 * included; what it had handed out lives in the engines, which bring it to the next one.
 */
enum md_status md_engine_broker_create(struct event_base *base, struct md_engine_processes *processes,
				       const struct md_engine_broker_settings *settings,
				       struct md_engine_broker **broker, struct md_error *err);
/* Kills it, and removes the socket. NULL is fine. */
void md_engine_broker_destroy(struct md_engine_broker *broker);
unsigned md_engine_broker_starts(const struct md_engine_broker *broker); /* how often it was started */

#endif
