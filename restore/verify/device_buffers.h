/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers whose copies are on the device. */
#ifndef MD_RESTORE_VERIFY_DEVICE_BUFFERS_H
#define MD_RESTORE_VERIFY_DEVICE_BUFFERS_H

#include "restore/restore.h"

struct md_verify_buffer;
struct md_verify_memory;

/* False: there is no room, or too little to compare. */
bool md_verify_device_take(struct md_verify_memory *memory, struct md_verify_buffer *buffer);
enum md_status md_verify_device_save(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
/* Keeps what the live graph left, and puts back what was there. */
enum md_status md_verify_device_take_live(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
enum md_status md_verify_device_put_back(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
/* Notes every difference from what the live graph left. What wrote the buffer must be done. */
enum md_status md_verify_device_compare(struct md_verify_memory *memory, uint32_t buffer, struct md_error *differs,
					struct md_error *err);

#endif
