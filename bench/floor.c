/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the floor under a restore of an artifact: the driver calls alone, with everything else prepared before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/cuda_driver.h"
#include "format/artifact.h"

/*
 * The same images and functions are loaded, the same nodes, attributes and edges are added, every graph is
 * instantiated, kept, and uploaded. Pointers are patched outside of the timed parts; memory for every allocation is
 * there already.
 */

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
	CUdeviceptr *bases; /* of allocs */
	CUlibrary *libraries;
	CUfunction *functions;
	CUgraph *graphs;
	CUgraphExec *execs;
};

static uint64_t took(uint64_t *since)
{
	uint64_t now = md_clock_ns(), ns = now - *since;
	*since = now;
	return ns;
}

static void allocate(struct floor *f)
{
	f->bases = calloc(f->artifact.alloc_count + 1, sizeof(*f->bases));
	for (uint32_t i = 0; i < f->artifact.alloc_count; i++) {
		size_t size = f->artifact.allocs[i].size;
		CU(cuMemAlloc_v2, &f->bases[i], size ? size : 1);
	}
}

/* The bytes of an image: stored ones, or the file's, mapped. */
static const void *image_bytes(const struct md_image *image)
{
	if (image->data)
		return image->data;
	if (!image->path)
		return NULL;
	int fd = open(image->path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	if (fd < 0 || fstat(fd, &status))
		return NULL;
	uint8_t *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : map + image->file_offset;
}

static void load_images(struct floor *f)
{
	f->libraries = calloc(f->artifact.image_count + 1, sizeof(*f->libraries));
	for (uint32_t i = 0; i < f->artifact.image_count; i++) {
		const void *bytes = image_bytes(&f->artifact.images[i]);
		if (bytes)
			CU(cuLibraryLoadData, &f->libraries[i], bytes, NULL, NULL, 0, NULL, NULL, 0);
	}
}

static CUkernel find_kernel(CUlibrary library, const char *name)
{
	CUkernel kernel = NULL;
	if (md_cuda.cuLibraryGetKernel(&kernel, library, name) == CUDA_SUCCESS)
		return kernel;
	unsigned count = 0;
	CU(cuLibraryGetKernelCount, &count, library);
	CUkernel *all = calloc(count + 1, sizeof(*all));
	CU(cuLibraryEnumerateKernels, all, count, library);
	for (unsigned i = 0; i < count; i++) {
		const char *its_name = NULL;
		if (md_cuda.cuKernelGetName(&its_name, all[i]) == CUDA_SUCCESS && !strcmp(its_name, name))
			kernel = all[i];
	}
	free(all);
	return kernel;
}

static void load_functions(struct floor *f)
{
	f->functions = calloc(f->artifact.kernel_count + 1, sizeof(*f->functions));
	for (uint32_t i = 0; i < f->artifact.kernel_count; i++) {
		const struct md_kernel *kernel = &f->artifact.kernels[i];
		CUlibrary library = kernel->image == MD_NONE ? NULL : f->libraries[kernel->image];
		CUkernel handle = library ? find_kernel(library, kernel->name) : NULL;
		if (!handle) {
			fprintf(stderr, "floor: kernel %s is in no image that the artifact stores\n", kernel->name);
			exit(5);
		}
		CU(cuKernelGetFunction, &f->functions[i], handle);
		CU(cuFuncLoad, f->functions[i]);
		if (kernel->state.max_dynamic_shared_bytes > 0)
			CU(cuFuncSetAttribute, f->functions[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			   kernel->state.max_dynamic_shared_bytes);
	}
}

static void patch(struct floor *f)
{
	for (uint32_t g = 0; g < f->artifact.graph_count; g++) {
		struct md_artifact_graph *graph = &f->artifact.graphs[g];
		for (uint32_t i = 0; i < graph->pointer_count; i++) {
			const struct md_pointer *pointer = &graph->pointers[i];
			struct md_node *node = &graph->nodes[pointer->node];
			uint64_t address = f->bases[pointer->alloc] + (uint64_t)pointer->offset;
			if (node->type == MD_NODE_KERNEL)
				memcpy(node->params + pointer->at, &address, sizeof(address));
			else if (node->type == MD_NODE_MEMSET)
				node->memset.dst = address;
			else
				*(pointer->at ? &node->memcpy.dst : &node->memcpy.src) = address;
		}
	}
}

static void add_kernel_node(const struct floor *f, const struct md_node *node, CUgraph graph, CUgraphNode *out)
{
	const struct md_kernel *kernel = &f->artifact.kernels[node->kernel];
	void *slots[512];
	size_t size = node->params_size;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, node->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS params = {.func = f->functions[node->kernel],
					  .gridDimX = node->grid[0],
					  .gridDimY = node->grid[1],
					  .gridDimZ = node->grid[2],
					  .blockDimX = node->block[0],
					  .blockDimY = node->block[1],
					  .blockDimZ = node->block[2],
					  .sharedMemBytes = node->shared_bytes};
	if (node->via_extra) {
		params.extra = extra;
	} else {
		for (uint32_t i = 0; i < kernel->param_count && i < 512; i++)
			slots[i] = node->params + kernel->params[i].offset;
		params.kernelParams = slots;
	}
	CU(cuGraphAddKernelNode_v2, out, graph, NULL, 0, &params);
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		CUlaunchAttributeValue value;
		memcpy(&value, node->attributes[i].value, sizeof(value));
		CU(cuGraphKernelNodeSetAttribute, *out, node->attributes[i].id, &value);
	}
}

static void add_node(const struct floor *f, const struct md_node *node, CUgraph graph, CUcontext context,
		     CUgraphNode *out)
{
	if (node->type == MD_NODE_KERNEL) {
		add_kernel_node(f, node, graph, out);
	} else if (node->type == MD_NODE_MEMSET) {
		CUDA_MEMSET_NODE_PARAMS params = {.dst = node->memset.dst,
						  .pitch = node->memset.pitch,
						  .value = node->memset.value,
						  .elementSize = node->memset.element_size,
						  .width = node->memset.width,
						  .height = node->memset.height};
		CU(cuGraphAddMemsetNode, out, graph, NULL, 0, &params, context);
	} else if (node->type == MD_NODE_MEMCPY) {
		CUDA_MEMCPY3D params = {.srcMemoryType = node->memcpy.src_type,
					.dstMemoryType = node->memcpy.dst_type,
					.srcDevice = node->memcpy.src,
					.dstDevice = node->memcpy.dst,
					.srcPitch = node->memcpy.src_pitch,
					.srcHeight = node->memcpy.src_height,
					.dstPitch = node->memcpy.dst_pitch,
					.dstHeight = node->memcpy.dst_height,
					.WidthInBytes = node->memcpy.width,
					.Height = node->memcpy.height,
					.Depth = node->memcpy.depth};
		CU(cuGraphAddMemcpyNode, out, graph, NULL, 0, &params, context);
	} else {
		CU(cuGraphAddEmptyNode, out, graph, NULL, 0);
	}
}

static uint64_t build(struct floor *f, CUcontext context)
{
	uint64_t ns = 0;
	for (uint32_t g = 0; g < f->artifact.graph_count; g++) {
		const struct md_artifact_graph *graph = &f->artifact.graphs[g];
		CUgraphNode *nodes = calloc(graph->node_count + 1, sizeof(*nodes));
		CUgraphNode *from = calloc(graph->edge_count + 1, sizeof(*from)),
			    *to = calloc(graph->edge_count + 1, sizeof(*to));
		CUgraphEdgeData *data = calloc(graph->edge_count + 1, sizeof(*data));
		uint64_t since = md_clock_ns();
		CU(cuGraphCreate, &f->graphs[g], 0);
		for (uint32_t i = 0; i < graph->node_count; i++)
			add_node(f, &graph->nodes[i], f->graphs[g], context, &nodes[i]);
		ns += took(&since);
		for (uint32_t i = 0; i < graph->edge_count; i++) {
			from[i] = nodes[graph->edges[i].from];
			to[i] = nodes[graph->edges[i].to];
			data[i].from_port = graph->edges[i].from_port;
			data[i].to_port = graph->edges[i].to_port;
			data[i].type = graph->edges[i].type;
		}
		since = md_clock_ns();
		if (md_cuda.cuGraphAddDependencies_v2)
			CU(cuGraphAddDependencies_v2, f->graphs[g], from, to, data, graph->edge_count);
		else
			CU(cuGraphAddDependencies, f->graphs[g], from, to, graph->edge_count);
		ns += took(&since);
		free(nodes);
		free(from);
		free(to);
		free(data);
	}
	return ns;
}

int main(int argc, char **argv)
{
	struct floor f = {0};
	CUdevice device;
	CUcontext context;
	CUstream stream;
	char name[256] = "";

	if (argc != 2) {
		fprintf(stderr, "usage: floor ARTIFACT\n");
		return 2;
	}
	must(md_artifact_read(argv[1], &f.artifact, NULL, &error), argv[1]);
	must(md_cuda_load(&error), "driver");
	CU(cuInit, 0);
	CU(cuDeviceGet, &device, 0);
	CU(cuDeviceGetName, name, sizeof(name), device);
	CU(cuDevicePrimaryCtxRetain, &context, device);
	CU(cuCtxSetCurrent, context);
	CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	allocate(&f);
	patch(&f);
	f.graphs = calloc(f.artifact.graph_count + 1, sizeof(*f.graphs));
	f.execs = calloc(f.artifact.graph_count + 1, sizeof(*f.execs));

	uint64_t since = md_clock_ns(), nodes = 0;
	load_images(&f);
	uint64_t images = took(&since);
	load_functions(&f);
	uint64_t functions = took(&since);
	uint64_t add = build(&f, context);
	since = md_clock_ns();
	for (uint32_t g = 0; g < f.artifact.graph_count; g++) {
		CU(cuGraphInstantiateWithFlags, &f.execs[g], f.graphs[g], f.artifact.graphs[g].instantiate_flags);
		nodes += f.artifact.graphs[g].node_count;
	}
	uint64_t instantiate = took(&since);
	for (uint32_t g = 0; g < f.artifact.graph_count; g++)
		CU(cuGraphUpload, f.execs[g], stream);
	CU(cuStreamSynchronize, stream);
	uint64_t upload = took(&since);
	printf("{\"device\": \"%s\", \"graphs\": %u, \"nodes\": %" PRIu64
	       ", \"images_ms\": %.3f, \"functions_ms\": %.3f, "
	       "\"add_ms\": %.3f, \"instantiate_ms\": %.3f, \"upload_ms\": %.3f, \"total_ms\": %.3f}\n",
	       name, f.artifact.graph_count, nodes, images / 1e6, functions / 1e6, add / 1e6, instantiate / 1e6,
	       upload / 1e6, (images + functions + add + instantiate + upload) / 1e6);
	return 0;
}
