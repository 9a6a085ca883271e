/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel images: an ELF shared object is parsed when it is loaded as a module, and mapped when its first kernel is
 * needed. */
#include <dlfcn.h>
#include <elf.h>
#include <gelf.h>
#include <libelf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "hostcuda/context.h"
#include "hostcuda/device_state.h"
#include "hostcuda/link.h"
#include "hostcuda/module_image.h"

#define KERNEL_PREFIX "hostcuda_kernel_"
#define MAX_IMAGE_BYTES ((uint64_t)1 << 32)
#define MAX_PARAMS 4096

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#else
#error "hostcuda knows no kernel images for this machine"
#endif

/*
 * The length of an image according to its headers: the end of its last segment or of the section table. 0: not such an
 * image.
 */
static uint64_t image_size(const uint8_t *data)
{
	Elf64_Ehdr header;
	if (memcmp(data, ELFMAG, SELFMAG) || data[EI_CLASS] != ELFCLASS64 || data[EI_DATA] != ELFDATA2LSB)
		return 0;
	memcpy(&header, data, sizeof(header));
	if (header.e_type != ET_DYN || header.e_machine != HOST_MACHINE || header.e_phentsize != sizeof(Elf64_Phdr))
		return 0;
	uint64_t size = sizeof(header), end = header.e_phoff + (uint64_t)header.e_phnum * sizeof(Elf64_Phdr);
	if (header.e_phoff > MAX_IMAGE_BYTES || header.e_shoff > MAX_IMAGE_BYTES)
		return 0;
	size = end > size ? end : size;
	end = header.e_shoff + (uint64_t)header.e_shnum * header.e_shentsize;
	size = end > size ? end : size;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr segment;
		memcpy(&segment, data + header.e_phoff + i * sizeof(segment), sizeof(segment));
		if (segment.p_offset > MAX_IMAGE_BYTES || segment.p_filesz > MAX_IMAGE_BYTES)
			return 0;
		end = segment.p_offset + segment.p_filesz;
		size = end > size ? end : size;
	}
	return size <= MAX_IMAGE_BYTES ? size : 0;
}

/* The bytes of a virtual address range in the file, or NULL. */
static const uint8_t *bytes_at(const uint8_t *data, uint64_t size, uint64_t address, uint64_t count)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)data;
	const Elf64_Phdr *segments = (const Elf64_Phdr *)(data + header->e_phoff);
	for (unsigned i = 0; i < header->e_phnum; i++) {
		const Elf64_Phdr *segment = &segments[i];
		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address - segment->p_vaddr > segment->p_filesz ||
		    count > segment->p_filesz - (address - segment->p_vaddr))
			continue;
		uint64_t offset = segment->p_offset + (address - segment->p_vaddr);
		return offset <= size && count <= size - offset ? data + offset : NULL;
	}
	return NULL;
}

/* What the dynamic loader will store at an address: the addend of the relative relocation there. */
static bool relocated_word(Elf *elf, uint64_t address, uint64_t *word)
{
	for (Elf_Scn *section = elf_nextscn(elf, NULL); section; section = elf_nextscn(elf, section)) {
		GElf_Shdr header;
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_RELA || header.sh_entsize == 0)
			continue;
		Elf_Data *table = elf_getdata(section, NULL);
		for (size_t i = 0; table && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Rela relocation;
			if (!gelf_getrela(table, (int)i, &relocation) || relocation.r_offset != address ||
			    GELF_R_SYM(relocation.r_info))
				continue;
			*word = (uint64_t)relocation.r_addend;
			return true;
		}
	}
	return false;
}

/* Reads a kernel's descriptor out of the file, so that parameters are known before any code is mapped. */
static bool read_descriptor(Elf *elf, const uint8_t *data, uint64_t size, struct hc_symbol *kernel)
{
	const uint8_t *at = bytes_at(data, size, kernel->value, sizeof(struct hostcuda_kernel));
	struct hostcuda_kernel descriptor;
	if (!at)
		return false;
	memcpy(&descriptor, at, sizeof(descriptor));
	if (descriptor.magic != HOSTCUDA_KERNEL_MAGIC || descriptor.param_count > MAX_PARAMS ||
	    descriptor.params_size > 65536)
		return false;
	kernel->param_count = descriptor.param_count;
	kernel->params_size = descriptor.params_size;
	if (!descriptor.param_count)
		return true;
	uint64_t where;
	size_t bytes = descriptor.param_count * sizeof(struct hostcuda_param);
	if (!relocated_word(elf, kernel->value + offsetof(struct hostcuda_kernel, params), &where) ||
	    !(at = bytes_at(data, size, where, bytes)) || !(kernel->params = malloc(bytes)))
		return false;
	memcpy(kernel->params, at, bytes);
	for (uint32_t i = 0; i < kernel->param_count; i++)
		if ((uint64_t)kernel->params[i].offset + kernel->params[i].size > kernel->params_size)
			return false;
	return true;
}

static bool add_symbol(struct hc_symbol **symbols, size_t *count, const struct hc_symbol *symbol)
{
	if (!MD_ARRAY_EXTEND(*symbols, *count))
		return false;
	(*symbols)[(*count)++] = *symbol;
	return true;
}

static CUresult take_symbol(struct hc_image *image, Elf *elf, const uint8_t *data, uint64_t size, const char *name,
			    const GElf_Sym *from)
{
	bool local = GELF_ST_BIND(from->st_info) == STB_LOCAL || GELF_ST_VISIBILITY(from->st_other) != STV_DEFAULT;
	bool kernel = !strncmp(name, KERNEL_PREFIX, strlen(KERNEL_PREFIX));
	if (GELF_ST_TYPE(from->st_info) != STT_OBJECT || from->st_shndx == SHN_UNDEF || (local && !kernel))
		return CUDA_SUCCESS;
	struct hc_symbol symbol = {.value = from->st_value, .size = from->st_size, .hidden = local};
	if (kernel && !read_descriptor(elf, data, size, &symbol)) {
		free(symbol.params);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	symbol.name = strdup(kernel ? name + strlen(KERNEL_PREFIX) : name);
	bool added = symbol.name && (kernel ? add_symbol(&image->kernels, &image->kernel_count, &symbol)
					    : add_symbol(&image->globals, &image->global_count, &symbol));
	if (!added) {
		free(symbol.name);
		free(symbol.params);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

static Elf_Scn *symbol_section(Elf *elf, unsigned type, GElf_Shdr *header)
{
	for (Elf_Scn *section = elf_nextscn(elf, NULL); section; section = elf_nextscn(elf, section))
		if (gelf_getshdr(section, header) && header->sh_type == type && header->sh_entsize)
			return section;
	return NULL;
}

static CUresult read_symbols(struct hc_image *image, Elf *elf, const uint8_t *data, uint64_t size)
{
	GElf_Shdr header;
	Elf_Scn *section = symbol_section(elf, SHT_SYMTAB, &header);
	if (!section)
		section = symbol_section(elf, SHT_DYNSYM, &header);
	Elf_Data *table = section ? elf_getdata(section, NULL) : NULL;
	for (size_t i = 0; table && i < header.sh_size / header.sh_entsize; i++) {
		GElf_Sym symbol;
		const char *name =
		    gelf_getsym(table, (int)i, &symbol) ? elf_strptr(elf, header.sh_link, symbol.st_name) : NULL;
		if (name && *name)
			HC_TRY(take_symbol(image, elf, data, size, name, &symbol));
	}
	return image->kernel_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* The code is mapped from this copy, because the caller may free its own. */
static CUresult keep_copy(struct hc_image *image, const void *data, uint64_t size)
{
	int fd = memfd_create("hostcuda-image", MFD_CLOEXEC);
	if (!md_descriptor_keep(&image->file, fd))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return md_descriptor_write(fd, data, size) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Called when nobody else has the image any more. */
static void image_free(struct hc_image *image) MD_LOCKS_UNCHECKED
{
	if (image->library)
		dlclose(image->library);
	md_descriptor_drop(&image->file);
	for (size_t i = 0; i < image->kernel_count; i++) {
		free(image->kernels[i].name);
		free(image->kernels[i].params);
	}
	for (size_t i = 0; i < image->global_count; i++)
		free(image->globals[i].name);
	free(image->kernels);
	free(image->globals);
	free(image);
}

static CUresult parse(const void *data, uint64_t size, struct hc_image **parsed)
{
	struct hc_image *image = calloc(1, sizeof(*image));
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	image->refs = 1;
	image->file = MD_DESCRIPTOR_NONE;
	elf_version(EV_CURRENT);
	Elf *elf = elf_memory((char *)data, size);
	CUresult result = elf ? read_symbols(image, elf, data, size) : CUDA_ERROR_INVALID_IMAGE;
	elf_end(elf);
	if (result == CUDA_SUCCESS)
		result = keep_copy(image, data, size);
	const char *mode = secure_getenv("CUDA_MODULE_LOADING");
	if (result == CUDA_SUCCESS && mode && !strcmp(mode, "EAGER"))
		result = hc_image_load(image);
	if (result != CUDA_SUCCESS) {
		image_free(image);
		return result;
	}
	*parsed = image;
	return CUDA_SUCCESS;
}

/* Tells a user who runs an engine that was built for a GPU more than an error code does. */
static CUresult refuse(const void *data, uint64_t size)
{
	static const uint32_t fat_magic[] = {0xba55ed50u, 0x466243b1u};
	static bool said;
	Elf64_Ehdr header = {0};
	uint32_t magic;
	if (size < sizeof(magic))
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&magic, data, sizeof(magic));
	bool elf = !memcmp(data, ELFMAG, SELFMAG) && size >= sizeof(header);
	if (elf)
		memcpy(&header, data, sizeof(header));
	bool device = magic == fat_magic[0] || magic == fat_magic[1] || header.e_machine == EM_CUDA;
	if (device && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		fprintf(stderr,
			"hostcuda: an image with code for a GPU cannot run on the host: the kernels of an image must "
			"be written in C, as hostcuda/kernel.h in the source tree describes\n");
	return CUDA_ERROR_INVALID_IMAGE;
}

/* The program headers must lie in the bytes before image_size may walk them. */
static bool headers_lie_within(const void *data, uint64_t bytes)
{
	Elf64_Ehdr header;
	if (bytes < sizeof(header))
		return false;
	memcpy(&header, data, sizeof(header));
	return header.e_phoff <= bytes && (uint64_t)header.e_phnum * sizeof(Elf64_Phdr) <= bytes - header.e_phoff;
}

/* A PTX text carries an image of known size. */
static CUresult parse_ptx(const void *text, struct hc_image **image)
{
	MD_AUTO_FREE uint8_t *carried = NULL;
	size_t bytes = 0;
	HC_TRY(hc_ptx_image(text, &carried, &bytes));
	if (!headers_lie_within(carried, bytes))
		return CUDA_ERROR_INVALID_PTX;
	uint64_t size = image_size(carried);
	if (size > bytes)
		return CUDA_ERROR_INVALID_PTX;
	return size ? parse(carried, size, image) : refuse(carried, bytes);
}

/* The caller does not pass the size of an image; the headers say it. */
CUresult hc_image_parse(const void *data, struct hc_image **image)
{
	if (hc_ptx_is(data))
		return parse_ptx(data, image);
	uint64_t size = image_size(data);
	return size ? parse(data, size, image) : refuse(data, sizeof(Elf64_Ehdr));
}

CUresult hc_image_parse_file(const char *path, struct hc_image **image)
{
	struct md_file_bytes file;
	struct md_error err = {0};
	if (md_file_read(path, MAX_IMAGE_BYTES, &file, &err) != MD_OK)
		return err.status == MD_ERR_NO_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND;
	uint64_t announced = headers_lie_within(file.data, file.size) ? image_size(file.data) : 0;
	CUresult result =
	    announced && announced <= file.size ? parse(file.data, announced, image) : refuse(file.data, file.size);
	md_file_release(&file);
	return result;
}

CUresult hc_image_load(struct hc_image *image)
{
	HC_STATE_GUARD();
	if (image->library)
		return CUDA_SUCCESS;
	/*
	 * The descriptor stays open while the image is mapped, so that no other image gets the same path, by which the
	 * loader identifies it.
	 */
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", image->file.fd);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct link_map *map = NULL;
	if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) {
		fprintf(stderr, "hostcuda: an image can't be mapped: %s\n", dlerror());
		return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
	}
	image->library = library;
	image->base = map->l_addr;
	for (size_t i = 0; hc_context_home() && i < image->global_count; i++)
		hc_context_home()->heap_fixed |= !strcmp(image->globals[i].name, "hostcuda_uses_heap");
	return CUDA_SUCCESS;
}

struct hc_image *hc_image_ref(struct hc_image *image)
{
	__atomic_add_fetch(&image->refs, 1, __ATOMIC_RELAXED);
	return image;
}

void hc_image_unref(struct hc_image *image)
{
	if (image && !__atomic_sub_fetch(&image->refs, 1, __ATOMIC_ACQ_REL))
		image_free(image);
}
