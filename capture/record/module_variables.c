/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of modules whose address the engine has asked for. No
 * other copy of their image has the values that the engine writes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/allocs.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/images.h"
#include "capture/record/module_variables.h"

#define CHUNK (64u << 10)

#define VALUE_MAX (16u << 20) /* bytes of a variable whose value is recorded */

struct variable {
	struct md_capture_variable is; /* the name is owned */
	const void *owner;             /* its module or library */
	uint64_t before;               /* checksum of its value when it was asked for, before anyone could write it */
	uint64_t said;                 /* checksum of the last value in the trace */
	bool unread;                   /* the value could not be read when it was asked for */
	bool written, valued;          /* the trace says that it is written; the trace has a value */
	bool again;                    /* the engine writes it between replays, so it has no single value */
};

/* Variables of unloaded modules are removed. */
static struct {
	struct variable *items;
	size_t count;
	struct md_map written; /* image -> 1: some variable of the image is written */
	struct md_map places;  /* addresses in variables to which the engine has copied */
} variables MD_CAPTURE_GUARDED;
static atomic_bool watching; /* some variable was asked for */

/* Not inside of stream captures, which a copy could break. In the current context. */
static bool read_checksum(uint64_t address, uint64_t size, uint64_t *sum)
{
	uint8_t *bytes = atomic_load(&md_capture.capturing) ? NULL : malloc(CHUNK);
	bool read = bytes != NULL;
	*sum = 0;
	for (uint64_t at = 0, step; read && at < size; at += step) {
		step = size - at < CHUNK ? size - at : CHUNK;
		read = md_cuda.cuMemcpyDtoH_v2(bytes, address + at, step) == CUDA_SUCCESS;
		*sum = *sum * 1099511628211u + md_hash_checksum(bytes, step);
	}
	free(bytes);
	return read;
}

static void say_written(struct variable *variable) MD_CAPTURE_HELD
{
	if (variable->written || !md_capture.writer)
		return;
	variable->written = true;
	md_trace_put_variable(md_capture.writer, md_capture_next(), variable->is.image, variable->is.name);
	if (!md_map_put(&variables.written, variable->is.image, 1))
		md_capture_trouble("out of memory for variable %s", variable->is.name);
}

/* The host may write a managed variable at any time, so it has no value that could be stored. */
static bool is_managed(uint64_t address)
{
	unsigned managed = 0;
	return md_cuda.cuPointerGetAttribute &&
	       !md_cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) && managed;
}

/* The variable's context is current. Without a value, only the engine's own copy of the image can be used. */
static void say_value(struct variable *variable, uint64_t now) MD_CAPTURE_HELD
{
	if (variable->again)
		return;
	uint8_t *bytes =
	    variable->is.size <= VALUE_MAX && !is_managed(variable->is.address) ? malloc(variable->is.size) : NULL;

	if (variable->valued && variable->said == now)
		bytes = (free(bytes), NULL);
	if (bytes && md_capture.writer &&
	    md_cuda.cuMemcpyDtoH_v2(bytes, variable->is.address, variable->is.size) == CUDA_SUCCESS) {
		md_trace_put_value(md_capture.writer, md_capture_next(), variable->is.image, variable->is.name, bytes,
				   variable->is.size);
		variable->valued = true;
		variable->said = now;
		md_capture_constants_needed();
	}
	free(bytes);
}

static void forget(size_t at) MD_CAPTURE_HELD
{
	free(variables.items[at].is.name);
	variables.items[at] = variables.items[--variables.count];
}

/*
 * The variable's context is current. A copy of the module whose
 * variable is not written counts, too, once another copy was written.
 */
static void look_at(struct variable *variable) MD_CAPTURE_HELD
{
	uint64_t now = 0;
	bool read = !variable->unread && md_cuda.cuCtxSynchronize() == CUDA_SUCCESS &&
		    read_checksum(variable->is.address, variable->is.size, &now);
	if (!read || now != variable->before)
		say_written(variable);
	if (read && md_map_get(&variables.written, variable->is.image, NULL))
		say_value(variable, now);
}

/* Looks at the variables of one owner, which is about to go, or at all of them (NULL). */
static void check(const void *owner) MD_CAPTURE_HELD
{
	CUcontext popped;
	if (!owner && atomic_load(&md_capture.capturing))
		return; /* there will be another time */
	for (size_t i = variables.count; i-- > 0;) {
		struct variable *variable = &variables.items[i];
		if (owner && variable->owner != owner)
			continue;
		if (atomic_load(&md_capture.capturing)) {
			say_written(variable);
			/* otherwise the context is gone, and its graphs with it */
		} else if (!md_cuda.cuCtxPushCurrent_v2(variable->is.context)) {
			look_at(variable);
			md_cuda.cuCtxPopCurrent_v2(&popped);
		}
		if (owner) {
			md_capture_free_note_locked(variable->is.address);
			forget(i);
		}
	}
}

void md_capture_variables_check(void)
{
	md_capture_lock();
	check(NULL);
	md_capture_unlock();
}

void md_capture_variables_gone(const void *owner)
{
	if (owner && variables.count)
		check(owner);
}

static void keep(struct variable variable, const char *name) MD_CAPTURE_HELD
{
	for (size_t i = variables.count; i-- > 0;) {
		if (variables.items[i].is.address != variable.is.address)
			continue;
		if (variables.items[i].owner == variable.owner)
			return;
		forget(i); /* of a module that went with its context */
	}
	variable.is.name = strdup(name);
	if (!variable.is.name || !MD_ARRAY_EXTEND(variables.items, variables.count)) {
		free(variable.is.name);
		md_capture_trouble("out of memory for variable %s", name);
		return;
	}
	variable.unread = !read_checksum(variable.is.address, variable.is.size, &variable.before);
	variables.items[variables.count++] = variable;
	atomic_store(&watching, true);
	md_capture_given_watch_range(variable.is.address, variable.is.size);
	md_trace_put_global(md_capture.writer, md_capture_next(), variable.is.image, name, variable.is.address,
			    variable.is.size);
}

/* An engine may ask for the same memory several times. */
static bool is_noted(uint64_t address, uint64_t size)
{
	const struct md_interval *item;
	bool noted;
	md_capture_lock();
	item = md_interval_find(&md_capture.live, address);
	noted = item && item->start == address && item->size == size && item->value == MD_ALLOC_GLOBAL;
	md_capture_unlock();
	return noted;
}

/* ---- what the engine writes between replays ---- */

static bool is_serving(void) MD_CAPTURE_HELD
{
	bool labelled = md_capture_graphs_labelled() > 0;
	const struct md_capture_graph *graph;
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++)
		if (graph->launched && (graph->labelled || !labelled))
			return true;
	return false;
}

static void say_again(struct variable *variable) MD_CAPTURE_HELD
{
	variable->again = true;
	say_written(variable);
	if (md_capture.writer)
		md_trace_put_value(md_capture.writer, md_capture_next(), variable->is.image, variable->is.name, NULL,
				   0);
}

bool md_capture_variables_watching(void)
{
	return atomic_load_explicit(&watching, memory_order_relaxed);
}

void md_capture_variable_used(uint64_t address)
{
	for (size_t i = 0; i < variables.count; i++)
		if (address - variables.items[i].is.address < variables.items[i].is.size && !variables.items[i].again &&
		    is_serving())
			say_again(&variables.items[i]);
}

/* A table that is filled as it is needed is written at one place after the other, and at each of them once. */
void md_capture_variable_set(uint64_t address)
{
	bool known = md_map_get(&variables.places, address, NULL);
	if (!known && !md_map_put(&variables.places, address, 1))
		md_capture_trouble("out of memory for what the engine copies to variables");
	if (known)
		md_capture_variable_used(address);
}

bool md_capture_variable_at(size_t index, struct md_capture_variable *out)
{
	if (index >= variables.count)
		return false;
	*out = variables.items[index].is;
	return true;
}

bool md_capture_variable_find(uint64_t address, struct md_capture_variable *out)
{
	for (size_t i = 0; i < variables.count; i++)
		if (address - variables.items[i].is.address < variables.items[i].is.size)
			return md_capture_variable_at(i, out);
	return false;
}

void md_capture_variable_asked(CUmodule module, CUlibrary library, const char *name, uint64_t address, uint64_t size)
{
	struct variable variable = {.is = {.address = address, .size = size},
				    .owner = library ? (const void *)library : (const void *)module};
	if (!address || !size || !name)
		return;
	if (!is_noted(address, size))
		md_capture_alloc_note(MD_ALLOC_GLOBAL, address, size);
	md_capture_lock();
	variable.is.image = library ? md_capture_image_of_library(library) : md_capture_image_of_module(module);
	md_cuda.cuCtxGetCurrent(&variable.is.context);
	if (md_capture.writer && variable.is.image != MD_NONE)
		keep(variable, name);
	md_capture_unlock();
}
