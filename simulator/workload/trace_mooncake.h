/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's traces: a JSON object in each line. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_MOONCAKE_H
#define MD_SIMULATOR_WORKLOAD_TRACE_MOONCAKE_H

#include "simulator/workload/trace_text.h"

/* Returns false, with what is wrong. */
bool md_sim_mooncake_row(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error);

#endif
