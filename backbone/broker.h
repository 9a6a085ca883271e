/* SPDX-License-Identifier: Apache-2.0 */
/* Serves backbones to the processes that connect; a connection that ends gives back what it had. */
#ifndef MD_BACKBONE_BROKER_H
#define MD_BACKBONE_BROKER_H

#include <stdbool.h>

#include "backbone/backbone_policy.h"
#include "base/status.h"

/* At most; a process has one for all that it shares, and one more while it asks for memory. */
#define MD_BROKER_CONNECTIONS 4096u
#define MD_BROKER_LEASES 65536u /* of a connection */

struct md_broker_settings {
	int listening; /* a socket */
	bool succeeds; /* another broker has ended here, and processes may have what it gave them */
	bool keep;     /* what is filled stays when nobody has it */
	bool watched;  /* somebody watches, who is asked before a process has memory of its own instead */
	const struct md_backbone_policy *policy;
	int stop;  /* a descriptor that can be read when the broker is to end */
	int until; /* a pipe: it is to end when nobody has the other end any more. -1: none */
};

/*
 * Initializes the driver, and serves until it is told to stop. Processes keep what they have mapped then, and bring it to
 * the next broker; *left: there are such processes.
 */
enum md_status md_broker_run(const struct md_broker_settings *settings, bool *left, struct md_error *err);

#endif
