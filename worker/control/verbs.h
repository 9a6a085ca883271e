/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked and ordered over the control socket. */
#ifndef MD_WORKER_CONTROL_VERBS_H
#define MD_WORKER_CONTROL_VERBS_H

#include "worker/control/socket.h"
#include "worker/core/worker.h"

struct md_verbs;

struct md_verbs *md_verbs_create(struct md_worker *worker); /* NULL: out of memory */
void md_verbs_destroy(struct md_verbs *verbs);              /* after the socket; NULL is fine */

/* For md_control_create; the context is a struct md_verbs. */
md_control_take md_verbs_take;
/* Answers who waits for the drain to end; called now and then. */
void md_verbs_look(struct md_verbs *verbs);

#endif
