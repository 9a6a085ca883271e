/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and windows whose copies are on the device; many of them are compared in one launch. */
#ifndef MD_RESTORE_VERIFY_DEVICE_BUFFERS_H
#define MD_RESTORE_VERIFY_DEVICE_BUFFERS_H

#include "restore/restore.h"

struct md_verify_buffer;
struct md_verify_memory;

/* False: there is no room, or a kernel must not touch the memory. */
bool md_verify_device_take(struct md_verify_memory *memory, struct md_verify_buffer *buffer);
/* Allocates room for windows of sampled buffers, as far as there is any; b->gathered says for which. */
void md_verify_device_take_room(struct md_verify_memory *memory);
enum md_status md_verify_device_save(struct md_verify_memory *memory, struct md_error *err);
/*
 * Keeps what the live graph left, puts back what was there, and waits. The windows that the live graph changed become
 * spans, and so do some others.
 */
enum md_status md_verify_device_take_live(struct md_verify_memory *memory, struct md_error *err);
enum md_status md_verify_device_put_back(struct md_verify_memory *memory, struct md_error *err);
/* Notes every difference from what the live graph left, and puts back what was there before. */
enum md_status md_verify_device_compare(struct md_verify_memory *memory, struct md_error *differs,
					struct md_error *err);

#endif
