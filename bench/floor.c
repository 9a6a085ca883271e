/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the floor under a restore of an artifact: the driver calls alone, with everything else prepared before. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/cuda_driver.h"
#include "format/artifact/artifact.h"
#include "format/codec/columns.h"

/*
 * The same images are loaded, on as many threads as a restore takes, the same functions, the same nodes, attributes and
 * edges are added, every graph is instantiated, kept, and uploaded. Reading, expanding and patching are done before.
 * What a graph was instantiated from is destroyed before the next one is built, outside of the timed parts: the driver
 * uses its memory again, and a build takes a third of the time.
 *
 * Nothing is launched, so addresses need only be such that the driver takes them: allocations lie in one reserved range
 * with no memory behind it, and what memset and memcpy nodes name, which the driver looks up, in one small block.
 *
 * What is warm: the page cache (every image was read just now) and what the driver keeps on the disk (compiled PTX).
 * Nothing of this process: run it again for another round.
 */

#define LOADERS_MAX 64
#define PLACE_ALIGNMENT (2ull << 20)
#define BLOCK_BYTES (64ull << 20)

static struct md_error error;

static void must(enum md_status status, const char *what)
{
	if (status == MD_OK)
		return;
	fprintf(stderr, "floor: %s: %s\n", what, error.message);
	exit(4);
}

#define CU(entry, ...) must(md_cuda_call(&error, entry, __VA_ARGS__), #entry)

struct floor {
	struct md_artifact artifact;
	CUcontext context;
	uint64_t *places; /* of allocs */
	CUdeviceptr block;
	uint64_t block_bytes;
	const void **codes;   /* of images; NULL when no kernel needs it */
	uint32_t *load_order; /* longest first */
	uint32_t load_count;
	uint64_t image_device_bytes; /* what they and their functions take there */
	atomic_uint next_load;
	unsigned loaders;
	CUlibrary *libraries;
	CUfunction *functions;
	CUgraph *graphs;
	CUgraphExec *execs;
};

static struct floor f;

struct times {
	uint64_t images, functions, add, instantiate, upload;
};

static uint64_t took(uint64_t *since)
{
	uint64_t now = md_clock_ns(), ns = now - *since;
	*since = now;
	return ns;
}

static void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count + 1, size);
	if (!memory) {
		fprintf(stderr, "floor: out of memory\n");
		exit(4);
	}
	return memory;
}

/* ---- prepared before ---- */

static uint64_t copy_bytes(const struct md_memcpy *copy)
{
	uint64_t from = (copy->src_pitch ? copy->src_pitch : copy->width) * copy->height * copy->depth;
	uint64_t to = (copy->dst_pitch ? copy->dst_pitch : copy->width) * copy->height * copy->depth;
	return (from > to ? from : to) + copy->src_x + copy->dst_x;
}

/* What the longest memset or memcpy touches. */
static uint64_t longest_copy(void)
{
	uint64_t longest = 0;
	for (uint32_t g = 0; g < f.artifact.graph_count; g++) {
		for (uint32_t i = 0; i < f.artifact.graphs[g].node_count; i++) {
			const struct md_node *node = &f.artifact.graphs[g].nodes[i];
			uint64_t bytes = 0;
			if (node->type == MD_NODE_MEMSET)
				bytes = node->memset.height > 1 ? node->memset.pitch * node->memset.height
								: node->memset.width * node->memset.element_size;
			else if (node->type == MD_NODE_MEMCPY)
				bytes = copy_bytes(&node->memcpy);
			longest = bytes > longest ? bytes : longest;
		}
	}
	return longest;
}

static void make_places(void)
{
	CUdeviceptr base = 0;
	uint64_t size = PLACE_ALIGNMENT;
	f.places = zeroed(f.artifact.alloc_count, sizeof(*f.places));
	for (uint32_t i = 0; i < f.artifact.alloc_count; i++) {
		f.places[i] = size;
		size += (f.artifact.allocs[i].size + 2 * PLACE_ALIGNMENT - 1) & ~(PLACE_ALIGNMENT - 1);
	}
	CU(cuMemAddressReserve, &base, size, PLACE_ALIGNMENT, 0, 0);
	for (uint32_t i = 0; i < f.artifact.alloc_count; i++)
		f.places[i] += base;
	f.block_bytes = BLOCK_BYTES + longest_copy();
	CU(cuMemAlloc_v2, &f.block, f.block_bytes);
}

/* The same place below the alignment, so that what is aligned stays so. */
static uint64_t in_block(uint64_t address)
{
	return f.block + address % PLACE_ALIGNMENT;
}

static void patch_word(struct md_node *node, const struct md_pointer *pointer, uint64_t address)
{
	if (node->type == MD_NODE_MEMSET) {
		node->memset.dst = in_block(address);
	} else if (node->type == MD_NODE_MEMCPY) {
		*(pointer->at ? &node->memcpy.dst : &node->memcpy.src) = in_block(address);
	} else if (pointer->kind == MD_POINTER_TENSOR_MAP) {
		CUtensorMap map __attribute__((aligned(64)));
		memcpy(&map, node->params + pointer->at, sizeof(map));
		CU(cuTensorMapReplaceAddress, &map, (void *)(uintptr_t)address);
		memcpy(node->params + pointer->at, &map, sizeof(map));
	} else {
		memcpy(node->params + pointer->at, &address, sizeof(address));
	}
}

static void patch(void)
{
	for (uint32_t g = 0; g < f.artifact.graph_count; g++) {
		struct md_artifact_graph *graph = &f.artifact.graphs[g];
		for (uint32_t i = 0; i < graph->pointer_count; i++) {
			const struct md_pointer *pointer = &graph->pointers[i];
			patch_word(&graph->nodes[pointer->node], pointer,
				   f.places[pointer->alloc] + (uint64_t)pointer->offset);
		}
	}
}

static const void *map_image(const struct md_image *image)
{
	struct stat info;
	uint64_t before = image->file_offset % (uint64_t)sysconf(_SC_PAGESIZE);
	int fd = open(image->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) || image->file_offset > (uint64_t)info.st_size ||
	    image->size > (uint64_t)info.st_size - image->file_offset)
		return NULL;
	uint8_t *map = mmap(NULL, image->size + before, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd,
			    (off_t)(image->file_offset - before));
	close(fd);
	return map == MAP_FAILED ? NULL : map + before;
}

/* Stored bytes, or the file's; what is there now must be what was there then. */
static const void *image_code(uint32_t index)
{
	const struct md_image *image = &f.artifact.images[index];
	const void *bytes = image->data ? image->data : image->path ? map_image(image) : NULL;
	struct md_hash hash = bytes ? md_hash_bytes(bytes, image->size) : (struct md_hash){0};
	if (!bytes || !md_hash_equal(&hash, &image->hash)) {
		fprintf(stderr, "floor: image %u is not stored, and %s does not hold it\n", index,
			image->path ? image->path : "no file");
		exit(5);
	}
	if (image->kind != MD_IMAGE_PTX)
		return bytes;
	char *text = zeroed(image->size, 1); /* with its NUL */
	return memcpy(text, bytes, image->size);
}

/* A text is compiled, which takes a thousand times as long as machine code of its size. */
static uint64_t load_cost(uint32_t image)
{
	const struct md_image *what = &f.artifact.images[image];
	return what->kind == MD_IMAGE_PTX ? what->size << 10 : what->size;
}

static int by_cost_descending(const void *left, const void *right)
{
	uint64_t a = load_cost(*(const uint32_t *)left), b = load_cost(*(const uint32_t *)right);
	return a > b ? -1 : a < b;
}

/* The kernels that some node launches, and the images that these need: a restore loads no others. */
static void prepare_images(void)
{
	f.codes = zeroed(f.artifact.image_count, sizeof(*f.codes));
	f.load_order = zeroed(f.artifact.image_count, sizeof(*f.load_order));
	f.libraries = zeroed(f.artifact.image_count, sizeof(CUlibrary));
	for (uint32_t k = 0; k < f.artifact.kernel_count; k++) {
		uint32_t image = f.artifact.kernels[k].image;
		if (image == MD_NONE) {
			fprintf(stderr, "floor: the image of kernel %s is unknown\n", f.artifact.kernels[k].name);
			exit(5);
		}
		if (f.codes[image])
			continue;
		f.codes[image] = image_code(image);
		f.load_order[f.load_count++] = image;
	}
	qsort(f.load_order, f.load_count, sizeof(*f.load_order), by_cost_descending);
}

/* ---- images and functions ---- */

static void *loader_main(void *unused)
{
	(void)unused;
	CU(cuCtxSetCurrent, f.context);
	for (unsigned i; (i = atomic_fetch_add(&f.next_load, 1)) < f.load_count;) {
		uint32_t image = f.load_order[i];
		CU(cuLibraryLoadData, &f.libraries[image], f.codes[image], NULL, NULL, 0, NULL, NULL, 0);
	}
	return NULL;
}

static void load_images(void)
{
	pthread_t threads[LOADERS_MAX];
	unsigned count = 0;
	while (count + 1 < f.loaders && pthread_create(&threads[count], NULL, loader_main, NULL) == 0)
		count++;
	loader_main(NULL);
	while (count > 0)
		pthread_join(threads[--count], NULL);
}

/* Local symbols are listed, but not found by name. */
static CUkernel find_listed(CUlibrary library, const char *name)
{
	unsigned count = 0;
	CUkernel kernel = NULL;
	CU(cuLibraryGetKernelCount, &count, library);
	CUkernel *all = zeroed(count, sizeof(CUkernel));
	CU(cuLibraryEnumerateKernels, all, count, library);
	for (unsigned i = 0; i < count; i++) {
		const char *its_name = NULL;
		if (md_cuda.cuKernelGetName(&its_name, all[i]) == CUDA_SUCCESS && !strcmp(its_name, name))
			kernel = all[i];
	}
	free(all);
	return kernel;
}

/* What nodes do not carry. */
static void set_state(CUfunction function, const struct md_func_state *state)
{
	if (state->max_dynamic_shared_bytes > 0)
		CU(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		   state->max_dynamic_shared_bytes);
	if (state->non_portable_cluster > 0)
		CU(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
	if (state->preferred_carveout > 0)
		CU(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
		   state->preferred_carveout);
}

/* On one thread: the driver takes them one after the other. */
static void load_functions(void)
{
	for (uint32_t i = 0; i < f.artifact.kernel_count; i++) {
		const struct md_kernel *kernel = &f.artifact.kernels[i];
		CUlibrary library = f.libraries[kernel->image];
		CUkernel handle = NULL;
		if (md_cuda.cuLibraryGetKernel(&handle, library, kernel->name) != CUDA_SUCCESS)
			handle = find_listed(library, kernel->name);
		if (!handle) {
			fprintf(stderr, "floor: image %u has no kernel %s\n", kernel->image, kernel->name);
			exit(5);
		}
		CU(cuKernelGetFunction, &f.functions[i], handle);
		CU(cuFuncLoad, f.functions[i]);
		set_state(f.functions[i], &kernel->state);
	}
}

/* ---- graphs ---- */

static void set_attributes(const struct md_node *node, CUgraphNode handle)
{
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		CUlaunchAttributeValue value;
		memcpy(&value, node->attributes[i].value, sizeof(value));
		/* an empty window is no attribute; one with an address is refused by a restore */
		if (node->attributes[i].id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			CU(cuGraphKernelNodeSetAttribute, handle, (CUlaunchAttributeID)node->attributes[i].id, &value);
	}
}

static void add_kernel_node(const struct md_node *node, CUgraph graph, void **slots, CUgraphNode *out)
{
	const struct md_kernel *kernel = &f.artifact.kernels[node->kernel];
	static uint8_t whole[MD_PARAMS_MAX]; /* a driver may read on behind a buffer that ends within a struct */
	size_t size = node->params_size;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, node->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS params = {.func = f.functions[node->kernel],
					  .gridDimX = node->grid[0],
					  .gridDimY = node->grid[1],
					  .gridDimZ = node->grid[2],
					  .blockDimX = node->block[0],
					  .blockDimY = node->block[1],
					  .blockDimZ = node->block[2],
					  .sharedMemBytes = node->shared_bytes};
	for (uint32_t i = 0; !node->via_extra && i < kernel->param_count; i++)
		slots[i] = node->params + kernel->params[i].offset;
	if (node->via_extra) {
		extra[1] = memcpy(whole, node->params, size);
		params.extra = extra;
	} else {
		params.kernelParams = slots;
	}
	CU(cuGraphAddKernelNode_v2, out, graph, NULL, 0, &params);
	set_attributes(node, *out);
}

static void add_memcpy_node(const struct md_memcpy *copy, CUgraph graph, CUgraphNode *out)
{
	CUDA_MEMCPY3D params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = copy->src,
				.dstDevice = copy->dst,
				.srcXInBytes = copy->src_x,
				.srcY = copy->src_y,
				.srcZ = copy->src_z,
				.srcPitch = copy->src_pitch,
				.srcHeight = copy->src_height,
				.dstXInBytes = copy->dst_x,
				.dstY = copy->dst_y,
				.dstZ = copy->dst_z,
				.dstPitch = copy->dst_pitch,
				.dstHeight = copy->dst_height,
				.WidthInBytes = copy->width,
				.Height = copy->height,
				.Depth = copy->depth};
	CU(cuGraphAddMemcpyNode, out, graph, NULL, 0, &params, f.context);
}

static void add_node(const struct md_node *node, CUgraph graph, void **slots, CUgraphNode *out)
{
	if (node->type == MD_NODE_KERNEL) {
		add_kernel_node(node, graph, slots, out);
	} else if (node->type == MD_NODE_MEMSET) {
		CUDA_MEMSET_NODE_PARAMS params = {.dst = node->memset.dst,
						  .pitch = node->memset.pitch,
						  .value = node->memset.value,
						  .elementSize = node->memset.element_size,
						  .width = node->memset.width,
						  .height = node->memset.height};
		CU(cuGraphAddMemsetNode, out, graph, NULL, 0, &params, f.context);
	} else if (node->type == MD_NODE_MEMCPY) {
		add_memcpy_node(&node->memcpy, graph, out);
	} else {
		CU(cuGraphAddEmptyNode, out, graph, NULL, 0);
	}
}

/* Full dependencies first, then the others, because a driver gives all edges of one call the data of the first one. */
static void add_edges(const struct md_artifact_graph *graph, CUgraph into, const CUgraphNode *nodes, uint64_t *ns)
{
	CUgraphNode *from = zeroed(graph->edge_count, sizeof(*from)), *to = zeroed(graph->edge_count, sizeof(*to));
	CUgraphEdgeData *data = zeroed(graph->edge_count, sizeof(*data));
	uint32_t count = 0, plain = 0;
	for (unsigned pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < graph->edge_count; i++) {
			const struct md_edge *edge = &graph->edges[i];
			if ((edge->from_port || edge->to_port || edge->type) != (pass == 1))
				continue;
			from[count] = nodes[edge->from];
			to[count] = nodes[edge->to];
			data[count++] = (CUgraphEdgeData){
			    .from_port = edge->from_port, .to_port = edge->to_port, .type = edge->type};
		}
		plain = pass ? plain : count;
	}
	uint64_t since = md_clock_ns();
	if (count && !md_cuda.cuGraphAddDependencies_v2)
		CU(cuGraphAddDependencies, into, from, to, count);
	if (plain && md_cuda.cuGraphAddDependencies_v2)
		CU(cuGraphAddDependencies_v2, into, from, to, data, plain);
	if (plain < count && md_cuda.cuGraphAddDependencies_v2)
		CU(cuGraphAddDependencies_v2, into, from + plain, to + plain, data + plain, count - plain);
	*ns += took(&since);
	free(from);
	free(to);
	free(data);
}

static uint32_t most_params(void)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < f.artifact.kernel_count; i++)
		most = f.artifact.kernels[i].param_count > most ? f.artifact.kernels[i].param_count : most;
	return most;
}

static void build(uint32_t index, void **slots, uint64_t *ns)
{
	const struct md_artifact_graph *graph = &f.artifact.graphs[index];
	CUgraphNode *nodes = zeroed(graph->node_count, sizeof(*nodes));
	uint64_t since = md_clock_ns();
	CU(cuGraphCreate, &f.graphs[index], 0);
	for (uint32_t i = 0; i < graph->node_count; i++)
		add_node(&graph->nodes[i], f.graphs[index], slots, &nodes[i]);
	*ns += took(&since);
	add_edges(graph, f.graphs[index], nodes, ns);
	free(nodes);
}

static void make_graphs(struct times *t)
{
	void **slots = zeroed(most_params(), sizeof(*slots));
	for (uint32_t g = 0; g < f.artifact.graph_count; g++) {
		unsigned long long flags = f.artifact.graphs[g].instantiate_flags;
		flags &= ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* is measured by itself */
		build(g, slots, &t->add);
		uint64_t since = md_clock_ns();
		CU(cuGraphInstantiateWithFlags, &f.execs[g], f.graphs[g], flags);
		t->instantiate += took(&since);
		CU(cuGraphDestroy, f.graphs[g]);
	}
	free(slots);
}

static uint64_t free_device_memory(void)
{
	size_t free_bytes = 0, total = 0;
	CU(cuMemGetInfo_v2, &free_bytes, &total);
	return free_bytes;
}

static void measure(CUstream stream, struct times *t)
{
	uint64_t free_before = free_device_memory(), since = md_clock_ns();
	load_images();
	t->images = took(&since);
	load_functions();
	t->functions = took(&since);
	f.image_device_bytes = free_before - free_device_memory();
	make_graphs(t);
	since = md_clock_ns();
	for (uint32_t g = 0; g < f.artifact.graph_count; g++)
		CU(cuGraphUpload, f.execs[g], stream);
	CU(cuStreamSynchronize, stream);
	t->upload = took(&since);
}

/* ---- the whole ---- */

static void report(const char *device, const struct times *t)
{
	uint64_t nodes = 0, bytes = 0, total = t->images + t->functions + t->add + t->instantiate + t->upload;
	for (uint32_t g = 0; g < f.artifact.graph_count; g++)
		nodes += f.artifact.graphs[g].node_count;
	for (uint32_t i = 0; i < f.load_count; i++)
		bytes += f.artifact.images[f.load_order[i]].size;
	printf("{\"device\": \"%s\", \"graphs\": %u, \"nodes\": %" PRIu64 ", \"images\": %u, \"image_bytes\": %" PRIu64
	       ", \"image_device_bytes\": %" PRIu64
	       ", \"kernels\": %u, \"threads\": %u, \"warm\": \"page cache, driver's disk cache\", ",
	       device, f.artifact.graph_count, nodes, f.load_count, bytes, f.image_device_bytes,
	       f.artifact.kernel_count, f.loaders);
	const struct {
		const char *name;
		uint64_t ns;
	} parts[] = {{"images", t->images},           {"functions", t->functions}, {"add", t->add},
		     {"instantiate", t->instantiate}, {"upload", t->upload},       {"total", total}};
	size_t count = sizeof(parts) / sizeof(*parts);
	for (size_t i = 0; i < count; i++)
		printf("\"%s_ns\": %" PRIu64 ", \"%s_ms\": %.3f%s", parts[i].name, parts[i].ns, parts[i].name,
		       (double)parts[i].ns / 1e6, i + 1 < count ? ", " : "}\n");
}

/* --threads N: loaders; without, as many as a restore takes. --device N. */
static bool read_options(int argc, char **argv, int *ordinal)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	f.loaders = cpus < 2 ? 1 : cpus > 4 ? 4 : (unsigned)cpus;
	*ordinal = 0;
	for (; argc > 3; argc -= 2, argv += 2) {
		int value = atoi(argv[2]);
		if (!strcmp(argv[1], "--threads") && value >= 1 && value <= LOADERS_MAX)
			f.loaders = (unsigned)value;
		else if (!strcmp(argv[1], "--device") && value >= 0)
			*ordinal = value;
		else
			return false;
	}
	return argc == 2;
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUstream stream;
	char name[256] = "";
	int ordinal;
	struct times t = {0};
	if (!read_options(argc, argv, &ordinal)) {
		fprintf(stderr, "usage: floor [--threads N] [--device N] ARTIFACT\n");
		return 2;
	}
	const char *path = argv[argc - 1];
	must(md_artifact_read(path, &f.artifact, NULL, &error), path);
	must(md_cuda_load(&error), "driver");
	CU(cuInit, 0);
	CU(cuDeviceGet, &device, ordinal);
	CU(cuDeviceGetName, name, sizeof(name), device);
	CU(cuDevicePrimaryCtxRetain, &f.context, device);
	CU(cuCtxSetCurrent, f.context);
	CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	make_places();
	patch();
	prepare_images();
	f.functions = zeroed(f.artifact.kernel_count, sizeof(CUfunction));
	f.graphs = zeroed(f.artifact.graph_count, sizeof(*f.graphs));
	f.execs = zeroed(f.artifact.graph_count, sizeof(*f.execs));
	measure(stream, &t);
	report(name, &t);
	return 0;
}
