/* SPDX-License-Identifier: Apache-2.0 */
/* Functions from a trace that names models and adapters. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_FUNCTIONS_H
#define MD_SIMULATOR_WORKLOAD_TRACE_FUNCTIONS_H

#include "simulator/simulator.h"

/*
 * If the file is a trace with the header seconds,model,adapter,context,generated, its functions take the place of those
 * given: one for each pair of model and adapter, in the order in which they are first called, with the fields of the model
 * of that name; it is called MODEL/ADAPTER, or MODEL without an adapter. *made: it is such a trace. Errors name file and
 * line; what is wrong otherwise in the trace is found when it is read.
 */
enum md_status md_sim_functions_of_trace(const char *path, struct md_sim_functions *functions, bool *made,
					 struct md_error *err);
/* The same from memory; name stands for the path in messages. */
enum md_status md_sim_functions_of_text(const char *name, const char *text, size_t bytes,
					struct md_sim_functions *functions, bool *made, struct md_error *err);

#endif
