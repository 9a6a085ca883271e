/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's bindings: whether they match the artifact's (bound at all, of the same size and alignment, as near to
 * another one), and where they lie.
 */
#include "restore/bindings.h"
#include "restore/restore.h"

/* A launch has the address at which one binding ends and the next begins: the two must lie side by side again. */
static enum md_status check_neighbour(const struct md_restore *r, uint32_t index, struct md_error *err) MD_RESTORE_HELD
{
	const struct md_binding *binding = &r->artifact.bindings[index];
	const char *before = r->artifact.bindings[binding->before].name;
	if (r->binding_of[binding->before] == MD_NONE)
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "binding \"%s\" was not made, and \"%s\" lay right behind it in the capture",
				    before, binding->name);
	const struct md_bound *end = &r->bound[r->binding_of[binding->before]];
	if (end->address + end->size != r->bound[r->binding_of[index]].address)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "binding \"%s\" lay right behind \"%s\" in the capture, and a kernel has the "
				    "address between the two; in this process it does not lie there",
				    binding->name, before);
	return MD_OK;
}

/*
 * Nothing tells to which of two names a pointer into shared
 * memory belongs, so both must lie as they did in the capture.
 */
static enum md_status check_overlap(const struct md_restore *r, uint32_t index, struct md_error *err) MD_RESTORE_HELD
{
	const struct md_binding *binding = &r->artifact.bindings[index];
	const char *other = r->artifact.bindings[binding->within].name;
	if (r->binding_of[binding->within] == MD_NONE)
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "binding \"%s\" was not made, and \"%s\" shared memory with it in the capture",
				    other, binding->name);
	const struct md_bound *first = &r->bound[r->binding_of[binding->within]];
	if (r->bound[r->binding_of[index]].address - first->address != binding->distance)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "binding \"%s\" lay %llu bytes behind the beginning of \"%s\" in the capture, in "
				    "memory that both share; in this process it does not lie there",
				    binding->name, (unsigned long long)binding->distance, other);
	return MD_OK;
}

/* Kernels were chosen for addresses of this alignment: with less, wide loads fault. */
static enum md_status check_alignment(const struct md_binding *binding, uint64_t address, struct md_error *err)
{
	if (binding->align < 2 || address % binding->align == 0)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_MISMATCH,
	    "binding \"%s\" began at a multiple of %u bytes in the capture; in this process it does not", binding->name,
	    binding->align);
}

enum md_status md_restore_binding_check(const struct md_restore *r, uint32_t index, struct md_error *err)
{
	const struct md_binding *binding = &r->artifact.bindings[index];
	if (r->binding_of[index] == MD_NONE)
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "binding \"%s\" (%llu bytes) was not made: call medusa_bind for it first",
				    binding->name, (unsigned long long)binding->size);
	const struct md_bound *bound = &r->bound[r->binding_of[index]];
	if (bound->size != binding->size)
		return md_error_set(err, MD_ERR_MISMATCH, "binding \"%s\": artifact has %llu bytes, the engine %llu",
				    binding->name, (unsigned long long)binding->size, (unsigned long long)bound->size);
	MD_FORWARD(check_alignment(binding, bound->address, err));
	if (binding->overlaps)
		MD_FORWARD(check_overlap(r, index, err));
	return binding->adjoins ? check_neighbour(r, index, err) : MD_OK;
}

enum md_status md_restore_bindings_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	for (uint32_t i = 0; i < graph->binding_count; i++)
		MD_FORWARD(md_restore_binding_check(r, graph->bindings[i], err));
	return MD_OK;
}

/* Host memory that was page-locked must be page-locked again: copies treat it differently, and kernels read it. */
static enum md_status check_host_memory(const struct md_restore *r, const struct md_restore_graph *graph,
					struct md_error *err)
{
	for (uint32_t i = 0; i < r->artifact.alloc_count; i++) {
		const struct md_artifact_alloc *alloc = &r->artifact.allocs[i];
		unsigned type = 0;
		if (alloc->class != MD_CLASS_BOUND || alloc->family != MD_ALLOC_HOST)
			continue;
		for (uint32_t b = 0; b < graph->binding_count; b++) {
			if (graph->bindings[b] != alloc->binding)
				continue;
			CUresult result = md_cuda.cuPointerGetAttribute
					      ? md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
									      r->addresses[alloc->binding])
					      : CUDA_ERROR_NOT_SUPPORTED;
			if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST)
				return md_error_set(err, MD_ERR_MISMATCH,
						    "binding %s: artifact has page-locked host memory, the engine's "
						    "memory is not page-locked",
						    r->artifact.bindings[alloc->binding].name);
		}
	}
	return MD_OK;
}

enum md_status md_restore_bindings_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = md_restore_bindings_check(r, graph, err);
	for (uint32_t i = 0; status == MD_OK && i < graph->binding_count; i++)
		r->addresses[graph->bindings[i]] = r->bound[r->binding_of[graph->bindings[i]]].address;
	pthread_mutex_unlock(&md_restore_lock);
	MD_FORWARD(status);
	return check_host_memory(r, graph, err);
}

enum md_status md_restore_bindings_live(const struct md_restore *r, const struct md_restore_graph *graph,
					struct md_error *err)
{
	for (uint32_t i = 0; i < graph->binding_count; i++) {
		uint32_t at = r->binding_of[graph->bindings[i]];
		if (at != MD_NONE && r->bound[at].freed)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "the engine has freed binding \"%s\" and not bound it again: bind the "
					    "memory that is there in its place",
					    r->bound[at].name);
	}
	return MD_OK;
}

void md_restore_bindings_freed(struct md_restore *r, uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; i < r->bound_count; i++) {
		struct md_bound *bound = &r->bound[i];
		bound->freed |= bound->address < address + bytes && address < bound->address + bound->size;
	}
	pthread_mutex_unlock(&md_restore_lock);
}

uint64_t md_restore_alloc_address(const struct md_restore *r, uint32_t alloc)
{
	const struct md_artifact_alloc *a = &r->artifact.allocs[alloc];
	if (a->class == MD_CLASS_PRIVATE)
		return r->arena + a->arena_offset;
	if (a->class == MD_CLASS_VARIABLE)
		return r->variables[alloc];
	return r->addresses[a->binding];
}
