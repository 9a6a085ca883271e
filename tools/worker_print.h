/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a medusa-worker says of itself. */
#ifndef MD_TOOLS_WORKER_PRINT_H
#define MD_TOOLS_WORKER_PRINT_H

#include <jansson.h>
#include <stdbool.h>

void md_worker_print_json(json_t *value); /* one line; takes over the reference */
/* Answers to status and models (md_report_status, md_report_models); borrowed. */
void md_worker_print_status(const json_t *status);
void md_worker_print_models(const json_t *answer);
void md_worker_print_reload(const json_t *answer);
void md_worker_print_bill(const json_t *answer, bool csv);
/* The same line by line; a row with "node" has that column, too. */
void md_worker_print_bill_head(bool by_node, bool csv);
void md_worker_print_bill_row(const json_t *row, bool csv);

/* What `cluster` answers: of the node, or lists of nodes or models; of a wish nothing. */
void md_worker_print_cluster(const json_t *answer);

#endif
