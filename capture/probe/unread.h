/* SPDX-License-Identifier: Apache-2.0 */
/* Memory beside the contents of graphs. */
#ifndef MD_CAPTURE_PROBE_UNREAD_H
#define MD_CAPTURE_PROBE_UNREAD_H

#include "capture/probe/probe.h"

/* Writes the memory beside contents of graphs to the trace. A context is current. */
void md_capture_unread_put(struct md_probe_session *session) MD_CAPTURE_HELD;

#endif
