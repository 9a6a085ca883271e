/* SPDX-License-Identifier: Apache-2.0 */
/* Programmatic dependent launch, the kernels' side of it. */
#ifndef LLAMA_DEPENDENCY_CUH
#define LLAMA_DEPENDENCY_CUH

/*
 * First statement of every kernel: waits until the kernels before it are complete and their writes visible, then lets
 * the next one be scheduled, which begins the same way. A launch without the attribute passes through both at once.
 */
static __device__ __forceinline__ void wait_for_inputs()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
