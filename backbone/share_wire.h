/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of JSON between a process that shares a backbone and medusa-backbone, by swap/wire.h. */
#ifndef MD_BACKBONE_SHARE_WIRE_H
#define MD_BACKBONE_SHARE_WIRE_H

#include <limits.h>

#include "base/status.h"

/*
 * The side that connects sends {"medusa_backbone": 1, "do": ...}:
 *   attach  name, layout, device (GPU-UUID), bytes. The answer is {"wait": true} each second while another process
 *           fills the memory, then {"ok": true, "fill": true or false, "bytes": whole granules, "hash": of the content if
 *           it is filled, "id": of this memory} with the descriptor of the memory. The connection is the lease: the memory
 *           is held until it ends. With "now": 1, a refusal (MD_ERR_BUSY) takes the place of "wait". "watched" is true
 *           if somebody is asked before a process has memory of its own instead (own).
 *   hold    name, layout, device, bytes as before, whole (granules), hash and id, with the descriptor: memory that another
 *           broker had handed out before it ended; {"ok": true}. This connection is the lease, too.
 *   keep    id, asks (1: the process will say "own" before it has memory of its own instead), lease (a number of the process's own, not 0): a lease of another connection of this process becomes one of this
 *           connection, which may have any number of them, and it is as if the other one had none. {"ok": true, "lease": number}.
 *   leave   lease: gives it back; no answer.
 *   own     lease: the process wants to have memory of its own in the place of this. {"ok": true, "lease": number, "alone": true or
 *           false} says that there is room for it; alone: nobody else has the memory, or gets it, so the process may write there.
 *           Otherwise MD_ERR_BUSY. Where "watched" was true in the answer to attach, a process that cannot ask has no room.
 *   watch   which process that asks has what, now and from now on: {"has": process, "id", "name", "bytes"}, and "left" for "has" when it has it no
 *           more; {"ok": true} after what there is now. Then {"wants": number, "process", "id", "name", "bytes"} for each "own",
 *           to which this connection answers
 *   let     ask: that number, may: 1 or 0. No answer.
 *   commit  hash; on the connection of the process that fills: {"ok": true}. With lease, of a connection that
 *           keeps it, the answer has it, too.
 *   status  one line for each backbone, then {"ok": true}.
 *   drop    name: those that nobody holds are freed; {"ok": true, "dropped": number}.
 * A refusal is {"ok": false, "status": number, "message": text}, and the end of the connection, but for one that has "lease".
 */
#define MD_BACKBONE_PROTOCOL 1u
#define MD_BACKBONE_NAME_MOST 64u     /* characters */
#define MD_BACKBONE_LAYOUT_MOST 1024u /* bytes */
#define MD_BACKBONE_ID_BYTES 33       /* 32 digits, and the end */
#define MD_BACKBONE_SILENCE_MS 5000   /* the broker says something each second */

/* $MEDUSA_BACKBONE, or ${XDG_RUNTIME_DIR:-/tmp/medusa-UID}/medusa/backbone.sock. */
enum md_status md_backbone_socket(char path[PATH_MAX], struct md_error *err);
/* Letters, digits and . _ - / : + at most MD_BACKBONE_NAME_MOST. */
enum md_status md_backbone_check_name(const char *name, struct md_error *err);

#endif
