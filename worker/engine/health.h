/* SPDX-License-Identifier: Apache-2.0 */
/* Asks an engine whether it is ready, again and again until it says so. */
#ifndef MD_WORKER_ENGINE_HEALTH_H
#define MD_WORKER_ENGINE_HEALTH_H

#include <stdbool.h>
#include <stddef.h>

#include "http/address.h"

struct event_base;
struct md_engine_health;

/*
 * GETs the target at once and then after 5, 10, 20 ... ms, at most 250, until the answer is 200; each question takes at
 * most 5 s. Target NULL: until a connection is taken. `healthy` is called from the loop; if it answers false, it says why,
 * and the question is asked again. host: the Host header. NULL: out of memory.
 */
struct md_engine_health *md_engine_health_start(struct event_base *base, const struct md_http_address *address,
						const char *host, const char *target,
						bool (*healthy)(void *context, char *why, size_t size), void *context);
/* After `healthy` has answered true: somebody else has answered, as `why` says, and the question is asked again. */
void md_engine_health_doubt(struct md_engine_health *health, const char *why);
/* What the last question got, as a sentence without its end; "was not asked yet". */
const char *md_engine_health_last(const struct md_engine_health *health);
void md_engine_health_stop(struct md_engine_health *health); /* also after `healthy`, to free it; NULL is fine */

#endif
