/* SPDX-License-Identifier: Apache-2.0 */
/* Points in time, as a user writes them. */
#ifndef MD_TOOLS_WORKER_TIME_H
#define MD_TOOLS_WORKER_TIME_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Seconds since 1970, from 90s, 30m, 24h or 7d (before now), 2026-11-01, 2026-11-01T12:30, 2026-11-01T12:30:15 (UTC; a
 * Z may follow), or a whole number of seconds since 1970. False: it is none of these.
 */
bool md_worker_time_parse(const char *text, int64_t now, int64_t *seconds);

#endif
