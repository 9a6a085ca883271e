/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules whose address the engine has asked for. */
#ifndef MD_CAPTURE_RECORD_MODULE_VARIABLES_H
#define MD_CAPTURE_RECORD_MODULE_VARIABLES_H

#include "capture/capture.h"

struct md_capture_variable { /* of a module, and the engine has its address */
	uint64_t address, size;
	uint32_t image;
	CUcontext context;
	char *name;
};

/* Recorded variables; false past the last one, or where there is none. The name is valid under the lock. */
bool md_capture_variable_at(size_t index, struct md_capture_variable *out) MD_CAPTURE_HELD;
bool md_capture_variable_find(uint64_t address, struct md_capture_variable *out) MD_CAPTURE_HELD;
/* The driver has returned the address of a variable of a module or library. Lock not held. */
void md_capture_variable_asked(CUmodule module, CUlibrary library, const char *name, uint64_t address, uint64_t size);
/* Writes to the trace which variables were written since; lock not held, the driver may be called. */
void md_capture_variables_check(void);
/* Whether the engine has the address of any variable. */
bool md_capture_variables_watching(void);
/* A call of the engine writes at this address, in a variable. */
void md_capture_variable_set(uint64_t address) MD_CAPTURE_HELD;
/* The engine reads it there, or passes the address to a kernel: once graphs are launched, it has no value to keep. */
void md_capture_variable_used(uint64_t address) MD_CAPTURE_HELD;
void md_capture_variables_gone(const void *owner) MD_CAPTURE_HELD; /* before that module or library is unloaded */

#endif
