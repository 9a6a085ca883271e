/* SPDX-License-Identifier: Apache-2.0 */
/* Loads one of our libraries and has it used, as a set-user-ID program might; says whether it is one. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "medusa/medusa.h"

static int profile(void *user)
{
	(void)user;
	return 0;
}

static void use(void *library)
{
	int (*capacity)(const struct medusa_kv_request *, struct medusa_kv *) =
	    (int (*)(const struct medusa_kv_request *, struct medusa_kv *))dlsym(library, "medusa_kv_capacity");
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	struct medusa_kv_request request = {
	    .size = sizeof(request), .key = "", .block_bytes = 4096, .utilization = 0.5, .profile = profile};
	struct medusa_kv kv = {.size = sizeof(kv)};
	if (init)
		printf("cuInit: %d\n", init(0));
	if (capacity)
		printf("medusa_kv_capacity: %d\n", capacity(&request, &kv));
}

int main(int argc, char *argv[])
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	printf("secure %lu, uid %d, euid %d\n", getauxval(AT_SECURE), (int)getuid(), (int)geteuid());
	if (!library) {
		printf("not loaded: %s\n", dlerror());
		return 1;
	}
	use(library);
	return 0;
}
