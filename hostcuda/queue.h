/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, and the operations in their queues. */
#ifndef HOSTCUDA_QUEUE_H
#define HOSTCUDA_QUEUE_H

#include "hostcuda/device_state.h"

struct hc_op *hc_op_new(CUresult (*run)(struct hc_op *), void (*release)(struct hc_op *));
struct hc_op *hc_op_ref(struct hc_op *op); /* NULL is fine in both */
void hc_op_unref(struct hc_op *op);
bool hc_op_wait_for(struct hc_op *op, struct hc_op *other);        /* op runs after other */
CUresult hc_op_submit(struct hc_stream *stream, struct hc_op *op); /* takes over op, also on failure */
/* The same, but returns a reference for hc_op_join. */
CUresult hc_op_submit_keep(struct hc_stream *stream, struct hc_op *op, struct hc_op **kept);
CUresult hc_op_do(struct hc_stream *stream, struct hc_op *op); /* submits and waits; no state lock held */
void hc_op_join(struct hc_op *op);                             /* waits, and releases the reference */
bool hc_op_done(struct hc_op *op);
void hc_op_finish(struct hc_op *op); /* of a marker in no stream: it is done now; nothing if it was already */

CUresult hc_stream_make(struct hc_context *context, unsigned flags, int priority, struct hc_stream **stream);
void hc_stream_finish(struct hc_stream *stream); /* drains, joins the worker, frees; no state lock held */
CUresult hc_stream_join(struct hc_stream *stream);
struct hc_op *hc_stream_last(struct hc_stream *stream); /* a reference, or NULL */

#endif
