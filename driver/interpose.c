/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interposition: dlsym and cuGetProcAddress return what they would return without Medusa, except that addresses of
 * hooked entry points are replaced by the hooks.
 */
#include "driver/interpose.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "driver/cuda_load.h"
#include "driver/hooks.h"

#define MD_LOG_DOMAIN "interpose"
#include "base/child.h"
#include "base/export.h"
#include "base/log.h"
#include "base/uncancelled.h"

/* The path for names that are not CUDA's runs before constructors, and before a sanitizer's runtime is ready. */
#define EARLY __attribute__((no_sanitize_address, no_sanitize_undefined, no_sanitize_thread))

typedef void *dlsym_function(void *handle, const char *name);

/* ---- the real dlsym ---- */

static _Atomic(dlsym_function *) real_dlsym;

EARLY static dlsym_function *find_real_dlsym(void)
{
	/* Since glibc 2.34 dlsym is in libc; before that it is in libdl, with the platform's first version tag. */
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	dlsym_function *found = atomic_load_explicit(&real_dlsym, memory_order_relaxed);
	for (size_t i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
		found = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	atomic_store_explicit(&real_dlsym, found, memory_order_relaxed);
	return found;
}

void *md_interpose_real_dlsym(void *handle, const char *name)
{
	dlsym_function *real = find_real_dlsym();
	return real ? real(handle, name) : NULL;
}

/* ---- from real addresses to hooks ---- */

static void *real_entry(size_t slot)
{
	void *address;
	memcpy(&address, (const char *)&md_cuda_real + slot, sizeof(address));
	return address;
}

/* The entry points that are hooked in this file, for every library. */
static const struct md_hook core_hooks[] = {
    {"cuGetProcAddress", (void *)cuGetProcAddress, offsetof(struct md_cuda, cuGetProcAddress)},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2, offsetof(struct md_cuda, cuGetProcAddress_v2)},
};
#define CORE_COUNT (sizeof(core_hooks) / sizeof(core_hooks[0]))

/* The hooks of a library with two tables. */
extern const struct md_hook md_more_hooks[] __attribute__((weak));
extern const size_t md_more_hook_count __attribute__((weak));

static size_t hooks_known(void)
{
	return CORE_COUNT + md_hook_count + (&md_more_hook_count ? md_more_hook_count : 0);
}

static const struct md_hook *hook_at(size_t i)
{
	if (i < CORE_COUNT)
		return &core_hooks[i];
	i -= CORE_COUNT;
	return i < md_hook_count ? &md_hooks[i] : &md_more_hooks[i - md_hook_count];
}

static const struct md_hook *find_named(const char *symbol)
{
	for (size_t i = 0; i < hooks_known(); i++)
		if (!strcmp(hook_at(i)->symbol, symbol))
			return hook_at(i);
	return NULL;
}

/*
 * cuGetProcAddress need not return the address of an export. What it returns for the version in which an entry point
 * was introduced is that entry point; if that address differs from the export's, it is kept here.
 */
static const struct query {
	size_t slot;
	const char *base;
	int version;
	cuuint64_t flags;
} queries[] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args)                                                \
	{offsetof(struct md_cuda, symbol), #base, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM},
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args)                                             \
	{offsetof(struct md_cuda, symbol), #base, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
#include "driver/cuda_api.def"
};
#define QUERY_COUNT (sizeof(queries) / sizeof(queries[0]))

static _Atomic(void *) other_addresses[QUERY_COUNT];
static atomic_bool other_addresses_known;

static bool is_export(const void *address)
{
	for (size_t i = 0; i < QUERY_COUNT; i++)
		if (real_entry(queries[i].slot) == address)
			return true;
	return false;
}

static void *ask_driver(const struct query *query)
{
	CUdriverProcAddressQueryResult status;
	void *address = NULL;
	CUresult result = CUDA_ERROR_NOT_FOUND;
	if (md_cuda.cuGetProcAddress_v2)
		result = md_cuda.cuGetProcAddress_v2(query->base, &address, query->version, query->flags, &status);
	else if (md_cuda.cuGetProcAddress)
		result = md_cuda.cuGetProcAddress(query->base, &address, query->version, query->flags);
	return result == CUDA_SUCCESS ? address : NULL;
}

/* Threads that come at the same time find the same addresses. */
static void learn_other_addresses(void)
{
	if (atomic_load_explicit(&other_addresses_known, memory_order_acquire))
		return;
	for (size_t i = 0; i < QUERY_COUNT; i++) {
		void *address = real_entry(queries[i].slot) ? ask_driver(&queries[i]) : NULL;
		if (address && !is_export(address))
			atomic_store_explicit(&other_addresses[i], address, memory_order_relaxed);
	}
	atomic_store_explicit(&other_addresses_known, true, memory_order_release);
}

static void *hook_of_slot(size_t slot)
{
	for (size_t i = 0; i < hooks_known(); i++)
		if (hook_at(i)->slot == slot)
			return hook_at(i)->hook;
	return NULL;
}

/* The hook for a real driver address, or NULL if that address is not hooked. */
static void *swap(void *real)
{
	if (!real)
		return NULL;
	for (size_t i = 0; i < hooks_known(); i++)
		if (real_entry(hook_at(i)->slot) == real)
			return hook_at(i)->hook;
	for (size_t i = 0; i < QUERY_COUNT; i++)
		if (atomic_load_explicit(&other_addresses[i], memory_order_relaxed) == real)
			return hook_of_slot(queries[i].slot);
	return NULL;
}

/* ---- dlsym ---- */

/* True for "cuMemAlloc", but not for "cudaMalloc", "cublasCreate" or "curl_easy_init". */
EARLY static bool is_driver_name(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* True for functions of medusa.h and scheduler.h. */
EARLY static bool is_medusa_name(const char *name)
{
	static const char prefix[] = "medusa_";
	size_t i = 0;
	while (name && prefix[i] && name[i] == prefix[i])
		i++;
	return !prefix[i];
}

static bool is_in_this_library(const void *address)
{
	Dl_info here, there;
	return dladdr((void *)core_hooks, &here) && dladdr(address, &there) && here.dli_fbase == there.dli_fbase;
}

/*
 * A program that opens libmedusa.so itself would find the null library's functions through that handle. It is given
 * this library's functions, as the dynamic linker does for a program that is linked with libmedusa.so.
 */
static void *answer_for_medusa(void *handle, const char *name)
{
	void *answer = md_interpose_real_dlsym(handle, name);
	void *own = answer ? md_interpose_real_dlsym(RTLD_DEFAULT, name) : NULL;
	return own && is_in_this_library(own) ? own : answer;
}

/* The program searched the global scope, where our own export comes first: is there a driver behind it? */
static void *answer_for_export(const struct md_hook *hook)
{
	if (md_cuda_present()) {
		md_cuda_load(NULL);
		if (real_entry(hook->slot))
			return hook->hook;
	}
	/* mostly NULL, and sets dlerror as the caller expects */
	return md_interpose_real_dlsym(RTLD_NEXT, hook->symbol);
}

static void *answer_for(void *handle, const char *name, const struct md_hook *named)
{
	void *answer = md_interpose_real_dlsym(handle, name);
	void *hook;
	if (!answer)
		return NULL;
	if (named && answer == named->hook)
		return answer_for_export(named);
	/* A function of some other library whose name begins with "cu" must not make this process load the driver. */
	if (!md_cuda_present())
		return answer;
	md_cuda_load(NULL);
	hook = swap(answer);
	return hook ? hook : answer;
}

/* How a call of dlsym goes on: it jumps to target with the same arguments or, if target is NULL, returns answer. */
struct route {
	dlsym_function *target;
	void *answer;
};
struct route md_interpose_route(void *handle, const char *name);

/*
 * Jumping keeps the return address, by which the real dlsym determines the caller whose RTLD_NEXT or RTLD_DEFAULT is
 * meant. Answers for RTLD_NEXT are never replaced: the caller wants the definition behind its own. For RTLD_DEFAULT
 * only names that we export are looked at, because the global scope, with our library in front, precedes the caller's
 * own.
 */
EARLY __attribute__((used)) struct route md_interpose_route(void *handle, const char *name)
{
	dlsym_function *real = find_real_dlsym();
	const struct md_hook *named;
	if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && is_medusa_name(name))
		return (struct route){NULL, answer_for_medusa(handle, name)};
	/* RTLD_NEXT callers want the next definition, so the answer is never swapped for them. */
	if (handle == RTLD_NEXT || !is_driver_name(name))
		return (struct route){real, NULL};
	named = find_named(name);
	if (handle == RTLD_DEFAULT && !named)
		return (struct route){real, NULL};
	return (struct route){NULL, answer_for(handle, name, named)};
}

#if defined(__x86_64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	".p2align 4\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call md_interpose_route\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	jmp *%rax\n"
	"1:	movq %rdx, %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n"
	".hidden md_interpose_dlsym\n"
	".globl md_interpose_dlsym\n"
	".set md_interpose_dlsym, dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	".p2align 4\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	stp x29, x30, [sp, -32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	stp x0, x1, [sp, 16]\n"
	"	bl md_interpose_route\n"
	"	mov x16, x0\n"
	"	mov x17, x1\n"
	"	ldp x0, x1, [sp, 16]\n"
	"	ldp x29, x30, [sp], 32\n"
	"	.cfi_restore 29\n"
	"	.cfi_restore 30\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cbz x16, 1f\n"
	"	br x16\n"
	"1:	mov x0, x17\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n"
	".hidden md_interpose_dlsym\n"
	".globl md_interpose_dlsym\n"
	".set md_interpose_dlsym, dlsym\n");
#else
#error "dlsym needs a few instructions of assembly for this architecture"
#endif

/* ---- cuGetProcAddress ---- */

static void swap_answer(CUresult result, void **function)
{
	void *hook;
	if (result != CUDA_SUCCESS || !function || !*function)
		return;
	learn_other_addresses();
	hook = swap(*function);
	if (hook)
		*function = hook;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	CUresult (*real)(const char *, void **, int, cuuint64_t) = MD_HOOK_REAL(cuGetProcAddress);
	CUresult result = real ? real(symbol, function, version, flags) : CUDA_ERROR_NOT_FOUND;
	swap_answer(result, function);
	return result;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	CUresult (*real)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
	    MD_HOOK_REAL(cuGetProcAddress_v2);
	CUresult result = real ? real(symbol, function, version, flags, status) : CUDA_ERROR_NOT_FOUND;
	swap_answer(result, function);
	return result;
}

/* ---- who stands in front ---- */

/* Our own dlsym, also when a library in front of this one defines the name. */
dlsym_function md_interpose_dlsym;

void md_interpose_check_order(void)
{
	dlsym_function *first = (dlsym_function *)dlsym;
	Dl_info who;
	/*
	 * If that library looks the C library's dlsym up by version, it bypasses ours, and so does the program that
	 * calls it.
	 */
	if (first == md_interpose_dlsym || first == find_real_dlsym())
		return;
	md_warn("%s was preloaded before this library and defines dlsym: lookups through its dlsym may bypass Medusa; "
		"preload it after this library",
		dladdr((void *)first, &who) && who.dli_fname ? who.dli_fname : "another library");
}

/* ---- CUDA_INJECTION64_PATH ---- */

MD_EXPORT int InitializeInjection(void);

/*
 * The driver calls this inside cuInit (CUDA_INJECTION64_PATH). A library that is loaded so late, into a local scope,
 * intercepts nothing: the CUDA runtime has its entry points by then, and everybody else's dlsym is the C library's.
 * Without the preload it can only report that.
 */
int InitializeInjection(void)
{
	if ((dlsym_function *)dlsym == find_real_dlsym())
		md_warn("loaded by CUDA_INJECTION64_PATH and not by LD_PRELOAD: no driver call of this process reaches "
			"Medusa, so nothing is recorded or restored; preload the library");
	return 1;
}

/* ---- guard ---- */

static _Thread_local bool inside __attribute__((tls_model("initial-exec")));
static _Thread_local int cancel_state __attribute__((tls_model("initial-exec")));
static atomic_bool closed;

bool md_guard_enter(void)
{
	md_child_check(); /* a child's renewal may close the guard */
	if (inside || atomic_load_explicit(&closed, memory_order_relaxed))
		return false;
	cancel_state = md_uncancelled_begin();
	inside = true;
	return true;
}

void md_guard_leave(void)
{
	inside = false;
	md_uncancelled_end(&cancel_state);
}

void md_guard_close(void)
{
	atomic_store(&closed, true);
}

bool md_guard_is_closed(void)
{
	md_child_check();
	return atomic_load_explicit(&closed, memory_order_relaxed);
}
