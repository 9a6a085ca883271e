/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file, build-id and offset that an address of this process is mapped from. */
#include "driver/image.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptor.h"

struct search {
	uintptr_t address;
	struct md_image_home *home;
	bool found; /* the address lies in a loaded object, whether or not its file holds the byte */
	bool main_program;
};

/* Notes lie in loaded segments in a valid file, but a header may say anything. */
static bool is_loaded(const struct dl_phdr_info *object, const ElfW(Phdr) * part)
{
	for (size_t i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		if (segment->p_type == PT_LOAD && segment->p_flags & PF_R && part->p_vaddr >= segment->p_vaddr &&
		    part->p_memsz <= segment->p_memsz &&
		    part->p_vaddr - segment->p_vaddr <= segment->p_memsz - part->p_memsz)
			return true;
	}
	return false;
}

/* The GNU build-id note in [at, at + size), which is mapped. */
static void read_build_id(const char *at, size_t size, struct md_image_home *home)
{
	while (size >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) note;
		size_t name_size, whole;
		memcpy(&note, at, sizeof(note));
		name_size = ((size_t)note.n_namesz + 3) & ~(size_t)3;
		whole = sizeof(note) + name_size + (((size_t)note.n_descsz + 3) & ~(size_t)3);
		if (whole > size)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(at + sizeof(note), "GNU", 4)) {
			home->build_id_size = note.n_descsz < MD_BUILD_ID_BYTES ? note.n_descsz : MD_BUILD_ID_BYTES;
			memcpy(home->build_id, at + sizeof(note) + name_size, home->build_id_size);
			return;
		}
		at += whole;
		size -= whole;
	}
}

static int visit_object(struct dl_phdr_info *object, size_t size, void *user)
{
	struct search *search = user;
	bool in_file = false;
	(void)size;
	for (size_t i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr;
		if (segment->p_type != PT_LOAD || search->address - start >= segment->p_memsz)
			continue;
		search->found = true;
		if (search->address - start < segment->p_filesz) {
			in_file = true;
			search->home->offset = segment->p_offset + (search->address - start);
		}
	}
	if (!search->found)
		return 0;
	if (!in_file) /* zero-initialized data lies in the object's memory, but in no file */
		return 1;
	search->main_program = !object->dlpi_name || !*object->dlpi_name;
	if (!search->main_program)
		snprintf(search->home->path, sizeof(search->home->path), "%s", object->dlpi_name);
	for (size_t i = 0; i < object->dlpi_phnum && !search->home->build_id_size; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		if (part->p_type == PT_NOTE && is_loaded(object, part))
			read_build_id((const char *)object->dlpi_addr + part->p_vaddr, part->p_memsz, search->home);
	}
	return 1;
}

static enum md_status name_program(struct md_image_home *home, struct md_error *err)
{
	ssize_t size = readlink("/proc/self/exe", home->path, sizeof(home->path) - 1);
	if (size < 0)
		return md_error_set(err, MD_ERR_IO, "/proc/self/exe: %s", strerror(errno));
	home->path[size] = '\0';
	return MD_OK;
}

/*
 * Parses "start-end perms offset device inode    path" of /proc/self/maps: a part of a file that the program has mapped
 * itself.
 */
static bool parse_mapping(const char *line, uintptr_t address, struct md_image_home *home)
{
	unsigned long long start, end, offset, inode;
	const char *path;
	int used = 0;
	if (sscanf(line, "%llx-%llx %*s %llx %*s %llu %n", &start, &end, &offset, &inode, &used) != 4)
		return false;
	if (address < start || address >= end)
		return false;
	path = line + used;
	/* A deleted file, a memfd or shared memory cannot be found again by its name. */
	if (inode && *path == '/' && !strstr(path, " (deleted)") && strncmp(path, "/memfd:", 7)) {
		snprintf(home->path, sizeof(home->path), "%.*s", (int)strcspn(path, "\n"), path);
		home->offset = offset + (address - start);
	}
	return true;
}

static enum md_status search_mappings(uintptr_t address, struct md_image_home *home, struct md_error *err)
{
	MD_AUTO_FILE FILE *maps = md_descriptor_read_stream("/proc/self/maps");
	MD_AUTO_FREE char *line = NULL;
	size_t capacity = 0;
	if (!maps)
		return md_error_set(err, MD_ERR_IO, "/proc/self/maps: %s", strerror(errno));
	while (getline(&line, &capacity, maps) > 0)
		if (parse_mapping(line, address, home))
			return MD_OK;
	return md_error_set(err, MD_ERR_NOT_FOUND, "image: address %p is not mapped", (void *)address);
}

enum md_status md_image_home(const void *address, struct md_image_home *home, struct md_error *err)
{
	struct search search = {.address = (uintptr_t)address, .home = home};
	char resolved[sizeof(home->path)];
	memset(home, 0, sizeof(*home));
	dl_iterate_phdr(visit_object, &search);
	if (!search.found)
		return search_mappings(search.address, home, err);
	if (search.main_program)
		return name_program(home, err);
	if (*home->path && realpath(home->path, resolved))
		memcpy(home->path, resolved, sizeof(resolved));
	return MD_OK;
}
