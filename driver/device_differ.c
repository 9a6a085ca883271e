/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares memory on the device: a kernel of ours flags the grains (blocks of 4 KiB) that differ, and only the flags
 * are copied back.
 */
#define MD_LOG_DOMAIN "driver"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "driver/device_session.h"

#define THREADS (MD_DEVICE_GRAIN / 16) /* each thread compares 16 bytes; a block compares a grain */

/*
 * Parameters: one, two, number of 16-byte words, flags. A thread whose words differ sets the flag of its block. It is
 * PTX, which the driver translates for any device; where that fails, memory is compared on the host.
 */
static const char kernel_text[] = ".version 7.0\n"
				  ".target sm_70\n"
				  ".address_size 64\n"
				  ".visible .entry md_probe_differ(.param .u64 one, .param .u64 two,\n"
				  "		.param .u64 words, .param .u64 flags)\n"
				  "{\n"
				  "	.reg .pred %p<3>;\n"
				  "	.reg .b16 %h<2>;\n"
				  "	.reg .b32 %r<4>;\n"
				  "	.reg .b64 %d<20>;\n"
				  "	mov.u32 %r1, %ctaid.x;\n"
				  "	mov.u32 %r2, %ntid.x;\n"
				  "	mov.u32 %r3, %tid.x;\n"
				  "	mul.wide.u32 %d1, %r1, %r2;\n"
				  "	cvt.u64.u32 %d2, %r3;\n"
				  "	add.s64 %d3, %d1, %d2;\n"
				  "	ld.param.u64 %d4, [words];\n"
				  "	setp.ge.u64 %p1, %d3, %d4;\n"
				  "	@%p1 bra done;\n"
				  "	ld.param.u64 %d5, [one];\n"
				  "	ld.param.u64 %d6, [two];\n"
				  "	cvta.to.global.u64 %d5, %d5;\n"
				  "	cvta.to.global.u64 %d6, %d6;\n"
				  "	shl.b64 %d7, %d3, 4;\n"
				  "	add.s64 %d8, %d5, %d7;\n"
				  "	add.s64 %d9, %d6, %d7;\n"
				  "	ld.global.v2.u64 {%d10, %d11}, [%d8];\n"
				  "	ld.global.v2.u64 {%d12, %d13}, [%d9];\n"
				  "	xor.b64 %d14, %d10, %d12;\n"
				  "	xor.b64 %d15, %d11, %d13;\n"
				  "	or.b64 %d16, %d14, %d15;\n"
				  "	setp.eq.s64 %p2, %d16, 0;\n"
				  "	@%p2 bra done;\n"
				  "	ld.param.u64 %d17, [flags];\n"
				  "	cvta.to.global.u64 %d17, %d17;\n"
				  "	cvt.u64.u32 %d18, %r1;\n"
				  "	add.s64 %d19, %d17, %d18;\n"
				  "	mov.u16 %h1, 1;\n"
				  "	st.global.u8 [%d19], %h1;\n"
				  "done:\n"
				  "	ret;\n"
				  "}\n";

bool md_device_differ_can(const struct md_device_session *session, uint64_t address, uint64_t size)
{
	return session->differ && address % 16 == 0 && size % 16 == 0;
}

enum md_status md_device_differ_begin(struct md_device_session *session, size_t flags, struct md_error *err)
{
	return md_cuda_call(err, cuMemsetD8Async, session->flags, 0, flags, session->stream);
}

enum md_status md_device_differ_launch(struct md_device_session *session, uint64_t one, uint64_t two, uint64_t size,
				       size_t flag, struct md_error *err)
{
	uint64_t words = size / 16, flags = session->flags + flag;
	void *params[] = {&one, &two, &words, &flags};
	unsigned blocks = (unsigned)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
	return md_cuda_call(err, cuLaunchKernel, session->differ, blocks, 1, 1, THREADS, 1, 1, 0, session->stream,
			    params, NULL);
}

enum md_status md_device_differ_end(struct md_device_session *session, size_t flags, struct md_error *err)
{
	return md_device_session_read(session, session->flag_bytes, session->flags, flags, err);
}

/* Any launch outside of a graph has this effect, and so has a copy on the device, which is a kernel, too. */
enum md_status md_device_forget_maps(struct md_device_session *session, CUstream stream, struct md_error *err)
{
	uint64_t none = 0;
	void *params[] = {&none, &none, &none, &none};
	if (session->differ)
		return md_cuda_call(err, cuLaunchKernel, session->differ, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	if (session->spot)
		return md_cuda_call(err, cuMemcpyDtoDAsync_v2, session->spot, session->spot + 256, 64, stream);
	return MD_OK;
}

/* ---- trying it out ---- */

#define TRIED (3 * MD_DEVICE_GRAIN + 48) /* bytes; the last grain is a partial one */
#define OWN_TRIED (2 * MD_DEVICE_GRAIN * 4)
#define OWN_SPOT 512

/* Compares memory that is equal except for one bit at `at` (no bit, if that is TRIED): the kernel must find it. */
static bool says(struct md_device_session *session, CUdeviceptr one, CUdeviceptr two, size_t at)
{
	struct md_error err = {0};
	memset(session->now, 0xa5, TRIED);
	if (md_device_session_write(session, one, session->now, TRIED, &err) != MD_OK ||
	    md_cuda_call(&err, cuStreamSynchronize, session->stream) != MD_OK)
		return false;
	if (at < TRIED)
		session->now[at] ^= 1u << at % 8;
	if (md_device_session_write(session, two, session->now, TRIED, &err) != MD_OK ||
	    md_device_differ_begin(session, 4, &err) != MD_OK ||
	    md_device_differ_launch(session, one, two, TRIED, 0, &err) != MD_OK ||
	    md_device_differ_end(session, 4, &err) != MD_OK)
		return false;
	for (size_t i = 0; i < 4; i++) {
		if (session->flag_bytes[i] != (at < TRIED && at / MD_DEVICE_GRAIN == i))
			return false;
	}
	return true;
}

static bool is_right(struct md_device_session *session)
{
	static const size_t places[] = {TRIED, 0, 15, 4095, 4096, 8191, 3 * MD_DEVICE_GRAIN, TRIED - 1};
	CUdeviceptr memory = md_device_session_take(session, OWN_TRIED);
	bool right = memory != 0;
	for (size_t i = 0; right && i < sizeof(places) / sizeof(places[0]); i++)
		right = says(session, memory, memory + 4 * MD_DEVICE_GRAIN, places[i]);
	return right;
}

#define PROBE_KERNEL_MAX (64ull << 20) /* bytes */

/* Reads the file here, because the driver would wait for ever for the writer of a pipe. */
static CUresult load_file(const struct md_cuda *driver, const char *path, CUmodule *module)
{
	struct md_file_bytes file;
	struct md_error err = {0};
	if (md_file_read(path, PROBE_KERNEL_MAX, &file, &err) != MD_OK) {
		md_warn("MEDUSA_PROBE_KERNEL: %s", err.message);
		return CUDA_ERROR_FILE_NOT_FOUND;
	}
	CUresult result = driver->cuModuleLoadData(module, file.data);
	md_file_release(&file);
	return result;
}

/* A device that cannot translate PTX is given an image that holds kernels of the same names. */
CUresult md_device_kernel_load(const struct md_cuda *driver, const char *text, const char *name, CUmodule *module,
			       CUfunction *function)
{
	const char *kernel = md_environment_get("MEDUSA_PROBE_KERNEL");
	char path[PATH_MAX];
	CUresult result;
	if (kernel && !strcmp(kernel, "none"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (md_environment_path("MEDUSA_PROBE_KERNEL", path, sizeof(path)))
		result = load_file(driver, path, module);
	else
		result = driver->cuModuleLoadData(module, text);
	return result ? result : driver->cuModuleGetFunction(function, *module, name);
}

void md_device_differ_load(struct md_device_session *session)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (session->device_left)
		result =
		    md_device_kernel_load(&md_cuda, kernel_text, "md_probe_differ", &session->module, &session->differ);
	md_device_session_reserve(session, result ? OWN_SPOT : MD_DEVICE_GRAINS + OWN_TRIED + OWN_SPOT);
	session->flags = result ? 0 : md_device_session_take(session, MD_DEVICE_GRAINS);
	session->flag_bytes = session->flags ? malloc(MD_DEVICE_GRAINS) : NULL;
	if (!session->flag_bytes || !is_right(session)) {
		md_debug("memory is compared on the host: %s",
			 result ? md_cuda_error_name(result)
				: "no device memory is left for the kernel, or the kernel failed its own test");
		session->differ = NULL;
		session->spot = md_device_session_take(session, OWN_SPOT);
	}
}

void md_device_differ_unload(struct md_device_session *session)
{
	free(session->flag_bytes);
	if (session->module)
		md_cuda.cuModuleUnload(session->module);
}
