/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the engine's buffers for verify mode: saved, put back and compared byte for byte, on the device if it has
 * room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "restore/restore.h"

#define CHUNK (4u << 20)
#define DEVICE_MARGIN (64u << 20) /* left for the engine */
#define CONSTANT_HEAD (1u << 20)
#define CONSTANT_PIECE 4096u
#define CONSTANT_PIECES 64u

static uint64_t host_available(void)
{
	MD_AUTO_FILE FILE *info = fopen("/proc/meminfo", "re");
	char line[256];
	unsigned long long kilobytes = 0;
	while (info && fgets(line, sizeof(line), info))
		if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
			return kilobytes * 1024u;
	return UINT64_MAX;
}

static enum md_status list_buffers(struct md_verify_memory *m, struct md_restore *r, struct md_error *err)
{
	m->buffers = calloc(r->artifact.binding_count + 1u, sizeof(*m->buffers));
	m->constants = calloc(r->artifact.binding_count + 1u, sizeof(*m->constants));
	if (!m->buffers || !m->constants)
		return md_error_set(err, MD_ERR_NO_MEMORY, "no memory to list %u buffers", r->artifact.binding_count);
	pthread_mutex_lock(&r->lock);
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		if (r->binding_of[i] == MD_NONE)
			continue;
		const struct md_bound *bound = &r->bound[r->binding_of[i]];
		struct md_verify_buffer buffer = {r->artifact.bindings[i].name, bound->address, bound->size, m->bytes};
		if (bound->role == MD_BIND_CONSTANT) {
			m->constants[m->constant_count++] = buffer;
			continue;
		}
		m->buffers[m->count++] = buffer;
		m->bytes += (bound->size + 255u) & ~(uint64_t)255u;
	}
	pthread_mutex_unlock(&r->lock);
	return MD_OK;
}

static enum md_status reserve(struct md_verify_memory *m, struct md_error *err)
{
	size_t available = 0, total = 0;
	uint64_t need = 2 * m->bytes;
	m->staging = malloc(2 * CHUNK);
	if (!m->staging)
		return md_error_set(err, MD_ERR_NO_MEMORY, "no memory to compare in");
	if (!need)
		return MD_OK;
	if (md_cuda.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS && available > need + DEVICE_MARGIN &&
	    md_cuda.cuMemAlloc_v2(&m->device, need) == CUDA_SUCCESS)
		return MD_OK;
	m->device = 0;
	if (need < host_available())
		m->host = malloc(need);
	if (!m->host)
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "neither device nor host has %llu bytes for two copies of the buffers",
				    (unsigned long long)need);
	return MD_OK;
}

enum md_status md_verify_memory_init(struct md_verify_memory *m, struct md_restore *r, struct md_error *err)
{
	*m = (struct md_verify_memory){0};
	MD_FORWARD(list_buffers(m, r, err));
	return reserve(m, err);
}

void md_verify_memory_finish(struct md_verify_memory *m)
{
	if (m->device)
		md_cuda.cuMemFree_v2(m->device);
	free(m->buffers);
	free(m->constants);
	free(m->constant_hashes);
	free(m->host);
	free(m->staging);
	*m = (struct md_verify_memory){0};
}

enum md_status md_verify_memory_save(struct md_verify_memory *m, CUstream stream, enum md_snapshot which,
				     struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		uint64_t at = (uint64_t)which * m->bytes + b->at;
		if (m->device)
			MD_FORWARD(md_cuda_call(err, cuMemcpyAsync, m->device + at, b->address, b->size, stream));
		else
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->host + at, b->address, b->size, stream));
	}
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

enum md_status md_verify_memory_put_back(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		const struct md_verify_buffer *b = &m->buffers[i];
		if (m->device)
			MD_FORWARD(md_cuda_call(err, cuMemcpyAsync, b->address, m->device + b->at, b->size, stream));
		else
			MD_FORWARD(
			    md_cuda_call(err, cuMemcpyHtoDAsync_v2, b->address, m->host + b->at, b->size, stream));
	}
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

static enum md_status differ(const struct md_verify_buffer *b, uint64_t base, const uint8_t *live, const uint8_t *now,
			     size_t size, struct md_error *err)
{
	size_t at = 0;
	char text[2][17] = {"", ""};
	while (live[at] == now[at])
		at++;
	at &= ~(size_t)3;
	for (size_t i = 0; i < 4 && at + i < size; i++) {
		snprintf(text[0] + 2 * i, 3, "%02x", live[at + i]);
		snprintf(text[1] + 2 * i, 3, "%02x", now[at + i]);
	}
	return md_error_set(err, MD_ERR_MISMATCH, "buffer \"%s\" differs at offset %llu: live %s, restored %s", b->name,
			    (unsigned long long)(base + at), text[0], text[1]);
}

static enum md_status compare_buffer(struct md_verify_memory *m, const struct md_verify_buffer *b, CUstream stream,
				     struct md_error *err)
{
	for (uint64_t at = 0; at < b->size; at += CHUNK) {
		size_t size = b->size - at < CHUNK ? (size_t)(b->size - at) : CHUNK;
		uint64_t live_at = (uint64_t)MD_SNAPSHOT_LIVE * m->bytes + b->at + at;
		const uint8_t *live = m->device ? m->staging + CHUNK : m->host + live_at;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->staging, b->address + at, size, stream));
		if (m->device)
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->staging + CHUNK, m->device + live_at,
						size, stream));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
		if (memcmp(live, m->staging, size))
			return differ(b, at, live, m->staging, size, err);
	}
	return MD_OK;
}

enum md_status md_verify_memory_compare(struct md_verify_memory *m, CUstream stream, uint64_t *compared,
					struct md_error *err)
{
	for (uint32_t i = 0; i < m->count; i++) {
		MD_FORWARD(compare_buffer(m, &m->buffers[i], stream, err));
		*compared += m->buffers[i].size;
	}
	return MD_OK;
}

/* The first MiB, and pieces at even distances over the rest. */
static enum md_status sample_constant(struct md_verify_memory *m, const struct md_verify_buffer *b, CUstream stream,
				      struct md_hash *out, struct md_error *err)
{
	size_t used = b->size < CONSTANT_HEAD ? (size_t)b->size : CONSTANT_HEAD;
	uint64_t rest = b->size - used;
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->staging, b->address, used, stream));
	for (uint32_t i = 0; i < CONSTANT_PIECES && rest >= CONSTANT_PIECE; i++) {
		uint64_t at = CONSTANT_HEAD + (rest - CONSTANT_PIECE) / (CONSTANT_PIECES - 1) * i;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->staging + used, b->address + at, CONSTANT_PIECE,
					stream));
		used += CONSTANT_PIECE;
	}
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
	*out = md_hash_bytes(m->staging, used);
	return MD_OK;
}

enum md_status md_verify_constants_check(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	bool first = !m->constant_hashes;
	if (first)
		m->constant_hashes = calloc(m->constant_count + 1u, sizeof(*m->constant_hashes));
	if (!m->constant_hashes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "no memory for the samples of %u buffers",
				    m->constant_count);
	for (uint32_t i = 0; i < m->constant_count; i++) {
		struct md_hash now;
		MD_FORWARD(sample_constant(m, &m->constants[i], stream, &now, err));
		if (first)
			m->constant_hashes[i] = now;
		else if (!md_hash_equal(&now, &m->constant_hashes[i]))
			return md_error_set(err, MD_ERR_MISMATCH, "constant buffer \"%s\" was written",
					    m->constants[i].name);
	}
	return MD_OK;
}
