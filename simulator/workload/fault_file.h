/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a node, which a file lists beside the requests. */
#ifndef MD_SIMULATOR_WORKLOAD_FAULT_FILE_H
#define MD_SIMULATOR_WORKLOAD_FAULT_FILE_H

#include "simulator/simulator.h"

/*
 * Reads a CSV file with the header seconds,fault,gpu,value, in the order of time, into workload->faults. Times are those
 * of the simulation, whatever the speed of the trace. Errors name file, line and column.
 */
enum md_status md_sim_faults_read(const char *path, const struct md_sim_node *node,
				  const struct md_sim_functions *functions, struct md_sim_workload *workload,
				  struct md_error *err);
/* The same from memory; name stands for the path in messages. */
enum md_status md_sim_faults_parse(const char *name, const char *text, size_t bytes, const struct md_sim_node *node,
				   const struct md_sim_functions *functions, struct md_sim_workload *workload,
				   struct md_error *err);

#endif
