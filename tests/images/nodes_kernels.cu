// SPDX-License-Identifier: Apache-2.0
// The kernels of nodes_kernels.c for a GPU: same names, same parameters; each element is added to by one thread alone.
#include <cstdint>
#include <cuda.h>

namespace
{

// A launch may begin before the one that it depends on has ended, and then sees nothing of it until here.
__device__ void wait_for_earlier()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ bool is_first()
{
	return !threadIdx.x && !blockIdx.x;
}

// out += factor * in
__device__ void add_scaled(float *out, const float *in, float factor, int32_t n)
{
	wait_for_earlier();
	for (int32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		out[i] += factor * in[i];
}

enum { BOX = 16, BOXES = 4, ROOM = 32 /* floats: what is copied begins at a multiple of 128 bytes */, TRIES = 1 << 22 };

// One thread has the tensor memory accelerator read what the map describes. False if that takes too long.
__device__ bool read_mapped(float (*boxes)[ROOM], uint64_t *barrier, const void *map)
{
	uint32_t done = 0;
#if __CUDA_ARCH__ >= 900
	uint32_t full = (uint32_t)__cvta_generic_to_shared(barrier);
	asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "n"(BOX * BOXES * 4)
		     : "memory");
	for (int k = 0; k < BOXES; k++)
		asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
			     "[%0], [%1, {%2}], [%3];" ::"r"((uint32_t)__cvta_generic_to_shared(boxes[k])),
			     "l"(map), "r"(k * BOX), "r"(full)
			     : "memory");
	for (int tries = 0; !done && tries < TRIES; tries++)
		asm volatile("{\n.reg .pred there;\n"
			     "mbarrier.test_wait.parity.shared::cta.b64 there, [%1], 0;\n"
			     "selp.u32 %0, 1, 0, there;\n}"
			     : "=r"(done)
			     : "r"(full)
			     : "memory");
#endif
	return done;
}

__device__ void add_mapped(float *out, const void *map, int32_t n)
{
	__shared__ alignas(128) float boxes[BOXES][ROOM];
	__shared__ alignas(8) uint64_t barrier;
	if (!is_first() || !read_mapped(boxes, &barrier, map))
		return;
	for (int32_t i = 0; i < n && i < BOX * BOXES; i++)
		out[i] += 3 * boxes[i / BOX][i % BOX];
}

} // namespace

extern "C" {
__global__ void nodes_step(float *out, const float *in, float factor, int32_t n)
{
	add_scaled(out, in, factor, n);
}

__global__ void nodes_told(float *out, const float *in, float factor, int32_t n)
{
	add_scaled(out, in, factor, n);
}

__global__ void nodes_cached(float *out, const float *in, float factor, int32_t n)
{
	add_scaled(out, in, factor, n);
}

struct nodes_range_all {
	int32_t odd, rows;
	float *out;
	int32_t more[2];
	const float *in, *end;
};

__global__ void nodes_range(struct nodes_range_all all)
{
	for (const float *at = all.in; is_first() && at != all.end; at++)
		all.out[(at - all.in) % all.rows] += *at;
}

__global__ void nodes_origin(float *out, const float *origin, const float *in, int64_t first, int32_t n)
{
	for (int32_t i = 0; is_first() && i < n; i++)
		out[i] += origin[first + i] + in[i];
}

__global__ void nodes_mapped(const __grid_constant__ CUtensorMap map, float *out, int32_t n)
{
	add_mapped(out, &map, n);
}

__global__ void nodes_mapped_there(const CUtensorMap *map, float *out, int32_t n)
{
	add_mapped(out, map, n);
}

__global__ void nodes_counted(float *out, const float *in, int32_t *counter, int32_t n)
{
	if (!is_first())
		return;
	for (int32_t i = 0; i < n; i++)
		if (++*counter == n)
			for (int32_t k = 0; k < n; k++)
				out[k] += in[k];
	if (*counter == n)
		*counter = 0;
}

__global__ void nodes_drawn(float *out, const uint64_t *seed, const uint64_t *offset, int32_t n)
{
	for (int32_t i = 0; is_first() && i < n; i++)
		out[i] += (float)((*seed * 6364136223846793005u + *offset + (uint64_t)i) % 1021);
}

__global__ void nodes_numbered(float *out, unsigned long long number, int32_t n)
{
	for (int32_t i = 0; is_first() && i < n; i++)
		out[i] += tex1Dfetch<float>(number, i);
}
}
