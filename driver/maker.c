/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the shared object that a call comes from, and remembers it by the call's return address. */
#include "driver/maker.h"

#include <ctype.h>
#include <execinfo.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/map.h"
#include "driver/alloc_sequence.h"

#define FRAMES 32
#define MAKERS_MAX 32

/* Not UCX's libucm: calls of everybody else come through it. */
static const char *const patterns[] = {"libnccl.so*", "libnccl-*.so*", "libnvshmem*.so*", "libucp.so*",
				       "libuct*.so*", "libucs*.so*",   "libucc*.so*",     "libmpi*.so*"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_maker *makers[MAKERS_MAX] MD_GUARDED_BY(lock); /* owned, and never freed */
static size_t maker_count MD_GUARDED_BY(lock);
static struct md_map callers MD_GUARDED_BY(lock);      /* return address -> struct md_maker *, or 0 */
static unsigned long long unloads MD_GUARDED_BY(lock); /* when `callers` was begun */

/* ---- names ---- */

static bool matches_listed(const char *list, const char *soname)
{
	char one[256];
	while (list && *list) {
		size_t size = strcspn(list, ":");
		if (size && size < sizeof(one)) {
			memcpy(one, list, size);
			one[size] = 0;
			if (fnmatch(one, soname, 0) == 0)
				return true;
		}
		list += size + (list[size] == ':');
	}
	return false;
}

bool md_maker_matches(const char *soname)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (fnmatch(patterns[i], soname, 0) == 0)
			return true;
	return matches_listed(md_environment_get("MEDUSA_COMMUNICATION_LIBRARIES"), soname);
}

#define CAPTURED ".captured"
#define EVENT ".event."
#define PEERS "@peers."

static bool is_number(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text);
}

bool md_maker_is_captured(const char *name)
{
	const char *dot = strrchr(name, '.');
	return name[0] == '@' && dot && dot > name + 1 && strcmp(dot, CAPTURED) == 0;
}

bool md_maker_is_name(const char *name)
{
	const char *dot = strrchr(name, '.');
	return name[0] == '@' && dot > name + 1 && is_number(dot + 1) &&
	       strncmp(name, MD_SEQUENCE_PREFIX, strlen(MD_SEQUENCE_PREFIX)) != 0;
}

uint64_t md_maker_place_of(const char *name)
{
	return md_maker_is_name(name) ? strtoull(strrchr(name, '.') + 1, NULL, 10) : UINT64_MAX;
}

bool md_maker_same_library(const char *one, const char *other)
{
	size_t size = strcspn(one, ".");
	return one[0] == '@' && strcspn(other, ".") == size && strncmp(one, other, size) == 0;
}

bool md_maker_event_of(const char *name, uint32_t *event)
{
	const char *at = name[0] == '@' ? strchr(name, '.') : NULL;
	unsigned long long number = 0;
	if (!at || strncmp(at, EVENT, strlen(EVENT)) != 0 || !is_number(at + strlen(EVENT)))
		return false;
	number = strtoull(at + strlen(EVENT), NULL, 10);
	*event = (uint32_t)number;
	return number <= UINT32_MAX;
}

/* "libnccl.so.2" -> "nccl" */
static void shorten(struct md_maker *maker)
{
	const char *from = strncmp(maker->soname, "lib", 3) ? maker->soname : maker->soname + 3;
	const char *end = strstr(from, ".so");
	size_t size = end && end > from ? (size_t)(end - from) : strlen(from);
	size = size < sizeof(maker->name) / 2 ? size : sizeof(maker->name) / 2;
	memcpy(maker->name, from, size);
	for (size_t i = 0; i < size; i++)
		if (!isalnum((unsigned char)maker->name[i]) && maker->name[i] != '_' && maker->name[i] != '-')
			maker->name[i] = '_';
	/* names of Medusa's own begin with these words */
	if (!strcmp(maker->name, "allocation") || !strcmp(maker->name, "peers"))
		snprintf(maker->name + strlen(maker->name), 2, "_");
}

void md_maker_name_next(struct md_maker *maker, char name[MD_MAKER_NAME_BYTES])
{
	pthread_mutex_lock(&lock);
	snprintf(name, MD_MAKER_NAME_BYTES, "@%.32s.%" PRIu64, maker->name, maker->made++);
	pthread_mutex_unlock(&lock);
}

static uint64_t peers_named MD_GUARDED_BY(lock);

void md_maker_name_peers(bool own, char name[MD_MAKER_NAME_BYTES])
{
	pthread_mutex_lock(&lock);
	snprintf(name, MD_MAKER_NAME_BYTES, "%s%s.%" PRIu64, PEERS, own ? "own" : "other", peers_named++);
	pthread_mutex_unlock(&lock);
}

static pthread_once_t peers_once = PTHREAD_ONCE_INIT;
static bool names_peers;

static void look_at_setting(void)
{
	const char *said = md_environment_get("MEDUSA_RANKS_MEMORY");
	names_peers = said && !strcmp(said, "1");
	if (said && *said && strcmp(said, "0") != 0 && !names_peers)
		md_warn("MEDUSA_RANKS_MEMORY: \"%.32s\" is neither 0 nor 1, and counts as 0", said);
}

bool md_maker_names_peers(void)
{
	pthread_once(&peers_once, look_at_setting);
	return names_peers;
}

void md_maker_name_peers_late(char name[MD_MAKER_NAME_BYTES])
{
	snprintf(name, MD_MAKER_NAME_BYTES, "%s", PEERS "captured");
}

bool md_maker_is_peers(const char *name)
{
	return strncmp(name, PEERS, strlen(PEERS)) == 0;
}

uint32_t md_maker_next_event(struct md_maker *maker)
{
	pthread_mutex_lock(&lock);
	uint64_t event = maker->events < UINT32_MAX ? maker->events++ : UINT32_MAX;
	pthread_mutex_unlock(&lock);
	return (uint32_t)event;
}

void md_maker_name_captured(const struct md_maker *maker, char name[MD_MAKER_NAME_BYTES])
{
	snprintf(name, MD_MAKER_NAME_BYTES, "@%.32s" CAPTURED, maker->name);
}

void md_maker_name_event(const struct md_maker *maker, uint32_t event, char name[MD_MAKER_NAME_BYTES])
{
	snprintf(name, MD_MAKER_NAME_BYTES, "@%.32s" EVENT "%" PRIu32, maker->name, event);
}

/* ---- shared objects ---- */

struct object {
	uintptr_t address; /* looked for */
	uintptr_t base;    /* 0: not found */
	char soname[MD_MAKER_NAME_BYTES];
};

static bool holds(const struct dl_phdr_info *info, uintptr_t address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		if (header->p_type == PT_LOAD && address - info->dlpi_addr - header->p_vaddr < header->p_memsz)
			return true;
	}
	return false;
}

/* NULL: it has none. The dynamic loader has made the table's address absolute, but for the kernel's own object. */
static const char *soname_of(const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *dynamic = NULL;
	uintptr_t strings = 0, at = 0;
	bool named = false;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag == DT_STRTAB)
			strings = dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_SONAME) {
			at = dynamic->d_un.d_val;
			named = true;
		}
	}
	if (strings && strings < info->dlpi_addr)
		strings += info->dlpi_addr;
	return named && strings ? (const char *)strings + at : NULL;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *user)
{
	struct object *object = user;
	(void)size;
	if (!holds(info, object->address))
		return 0;
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	const char *file = slash ? slash + 1 : info->dlpi_name ? info->dlpi_name : "";
	const char *soname = soname_of(info);
	object->base = info->dlpi_addr ? info->dlpi_addr : 1;
	snprintf(object->soname, sizeof(object->soname), "%s", soname ? soname : file);
	return 1;
}

static struct object object_of(const void *address)
{
	struct object object = {.address = (uintptr_t)address};
	dl_iterate_phdr(look_at, &object);
	return object;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *user)
{
	(void)size;
	*(unsigned long long *)user = info->dlpi_subs;
	return 1;
}

static bool is_runtime(const struct object *object)
{
	return fnmatch("libcudart.so*", object->soname, 0) == 0;
}

/* Whoever called the CUDA runtime. */
static void pass_runtime(struct object *object)
{
	void *frames[FRAMES];
	int count = backtrace(frames, FRAMES);
	uintptr_t runtime = object->base;
	bool seen = false;
	for (int i = 0; i < count; i++) {
		struct object at = object_of(frames[i]);
		seen |= at.base == runtime;
		if (!seen || !at.base || is_runtime(&at))
			continue;
		*object = at;
		return;
	}
}

/* ---- finding ---- */

static struct md_maker *maker_called(const char *soname) MD_REQUIRES(lock)
{
	for (size_t i = 0; i < maker_count; i++)
		if (!strcmp(makers[i]->soname, soname))
			return makers[i];
	struct md_maker *maker = maker_count < MAKERS_MAX ? calloc(1, sizeof(*maker)) : NULL;
	if (!maker)
		return NULL;
	snprintf(maker->soname, sizeof(maker->soname), "%s", soname);
	shorten(maker);
	return makers[maker_count++] = maker;
}

/* The dynamic loader's lock is never taken under ours: a thread that holds it may call the driver, and get here. */
struct md_maker *md_maker_find(const void *caller)
{
	unsigned long long now = 0;
	uint64_t known = 0;
	dl_iterate_phdr(count_unloads, &now);
	pthread_mutex_lock(&lock);
	if (now != unloads) { /* other objects may lie at these addresses */
		md_map_finish(&callers);
		md_map_init(&callers);
		unloads = now;
	}
	bool found = md_map_get(&callers, (uintptr_t)caller, &known);
	pthread_mutex_unlock(&lock);
	if (found)
		return (struct md_maker *)(uintptr_t)known;
	struct object object = object_of(caller);
	bool runtime = is_runtime(&object);
	if (runtime)
		pass_runtime(&object);
	bool makes = md_maker_matches(object.soname);
	pthread_mutex_lock(&lock);
	struct md_maker *maker = makes ? maker_called(object.soname) : NULL;
	if (!runtime) /* others come through the same call of the runtime */
		md_map_put(&callers, (uintptr_t)caller, (uintptr_t)maker);
	pthread_mutex_unlock(&lock);
	return maker;
}

void md_maker_renew(void)
{
	pthread_mutex_init(&lock, NULL);
}
