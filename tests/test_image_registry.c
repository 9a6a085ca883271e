/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has loaded: by content, and gone with its context, for a later one may have the same handle. */
#include "restore/image_registry.h"
#include "restore/restore.h"
#include "tests/hostcuda_fixture.h"

TestSuite(image_registry, .init = device_open, .fini = device_close);

static struct md_registry registry = {.lock = PTHREAD_MUTEX_INITIALIZER};
static char modules[2], library;

static void assert_holds(void *handle, bool holds, const char *what)
{
	cr_assert_eq(md_registry_holds(&registry, handle), holds, "%s: %s be there", what, holds ? "must" : "must not");
}

Test(image_registry, modules_go_with_their_context)
{
	CUcontext home, other;
	ok(md_cuda.cuCtxGetCurrent(&home));
	md_registry_add(&registry, &modules[0], false, NULL, NULL);
	ok(md_cuda.cuCtxCreate_v2(&other, 0, 0));
	md_registry_add(&registry, &modules[1], false, NULL, NULL);
	md_registry_add(&registry, &library, true, NULL, NULL);
	md_registry_remove_context(&registry, other);
	assert_holds(&modules[0], true, "a module of another context");
	assert_holds(&modules[1], false, "a module of the context");
	assert_holds(&library, true, "a library, which is in no context");
	ok(md_cuda.cuCtxDestroy_v2(other));
	ok(md_cuda.cuCtxSetCurrent(home));
	md_registry_remove(&registry, &library);
	assert_holds(&library, false, "an unloaded library");
	md_registry_clear(&registry);
	assert_holds(&modules[0], false, "what was cleared");
}

Test(image_registry, one_image_loaded_twice_is_there_until_both_are_gone)
{
	size_t size;
	char *image = image_read(&size);
	struct md_image_span span = {0};
	cr_assert_eq(md_image_span(image, &span, NULL), MD_OK);
	struct md_hash hash = md_hash_bytes(span.data, span.size);
	md_registry_add(&registry, &modules[0], false, image, NULL);
	md_registry_add(&registry, &modules[1], false, image, NULL);
	md_registry_remove(&registry, &modules[0]);
	cr_assert(md_registry_has(&registry, &hash), "the second copy must be found by content");
	md_registry_remove(&registry, &modules[1]);
	cr_assert(!md_registry_has(&registry, &hash), "nothing is left of it");
	md_registry_clear(&registry);
	free(image);
}
