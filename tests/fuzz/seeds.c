/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the corpus's good files and its bombs anew: seeds tests/fuzz. For when a format changes. */
#include <elf.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "format/trace/trace.h"
#include "models/llama/gguf.h"
#include "tests/artifact_samples.h"
#include "tests/fuzz/bombs.h"
#include "tests/fuzz/mend.h"

static const char *root;

static const char *name(const char *target, const char *file)
{
	static char path[4096];
	snprintf(path, sizeof(path), "%s/corpus/%s", root, target);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/corpus/%s/%s", root, target, file);
	return path;
}

static void check(enum md_status status, const struct md_error *err)
{
	if (status == MD_OK)
		return;
	fprintf(stderr, "%s\n", err->message);
	exit(1);
}

static void write_file(const char *path, const void *data, size_t size)
{
	FILE *file = fopen(path, "w");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

/* ---- artifact and text ---- */

static void write_artifact(const char *file, const char *text, const struct md_artifact *artifact)
{
	struct md_error err = {0};
	check(md_artifact_write(artifact, name("artifact", file), NULL, &err), &err);
	FILE *out = fopen(name("text", text), "w");
	if (!out)
		exit(1);
	check(md_artifact_print_text(artifact, out, &err), &err);
	fclose(out);
}

/* A child graph of two nodes, the latter of which records an event, instead of what stands there. */
static void nest(struct md_node *nodes)
{
	nodes[3] = (struct md_node){.type = MD_NODE_CHILD, .kernel = MD_NONE, .child_nodes = 2};
	nodes[5] = (struct md_node){.type = MD_NODE_EVENT_RECORD, .kernel = MD_NONE, .event = 0};
}

static void write_artifacts(void)
{
	static const struct md_secret_key key = {"a seed that everybody may know"};
	struct md_artifact artifact;
	struct md_error err = {0};
	char path[4096];
	sample_artifact(&artifact);
	nest(artifact.graphs[3].nodes);
	write_artifact("ok-all", "ok-all", &artifact);
	md_artifact_finish(&artifact);
	snprintf(path, sizeof(path), "%s", name("artifact", "ok-all"));
	check(md_artifact_sign(path, name("artifact", "ok-signed"), &key, &err), &err);
	sample_artifact(&artifact);
	free(artifact.images[0].path);
	artifact.images[0].path = NULL;
	artifact.images[0].variable = strdup("scale");
	artifact.bindings[0].hashed = artifact.bindings[0].varied = true;
	artifact.bindings[1].adjoins = true;
	artifact.bindings[1].align = 16;
	artifact.bindings[1].overlaps = true;
	artifact.bindings[1].distance = 64;
	artifact.images[1].value_count = 2;
	artifact.images[1].values = sample_array(2, sizeof(*artifact.images[1].values));
	artifact.images[1].values[0] = (struct md_image_value){strdup("one"), 1, sample_array(1, 1), NULL, 0};
	artifact.images[1].values[1] = (struct md_image_value){strdup("seventy"), 70, sample_array(70, 1), NULL, 0};
	artifact.contents[0].compared = true;
	write_artifact("ok-variable", "ok-variable", &artifact);
	md_artifact_finish(&artifact);
	sample_artifact(&artifact);
	sample_addresses(&artifact);
	write_artifact("ok-addresses", "ok-addresses", &artifact);
	md_artifact_finish(&artifact);
	struct md_sequence_request requests[] = {{MD_ALLOC_DEVICE, MD_SEQUENCE_NONE, MD_SEQUENCE_NONE, 64},
						 {MD_ALLOC_ASYNC, MD_SEQUENCE_NONE, 2, 512},
						 {MD_ALLOC_DEVICE, 0, MD_SEQUENCE_NONE, 64}};
	struct md_binding binding = {.name = (char *)(uintptr_t) "@allocation.2", .size = 64, .role = MD_BIND_STATE};
	artifact =
	    (struct md_artifact){.requests = requests, .request_count = 3, .bindings = &binding, .binding_count = 1};
	write_artifact("ok-requests", "ok-requests", &artifact);
	sample_artifact(&artifact);
	sample_doubtful(&artifact.graphs[1]);
	write_artifact("ok-doubtful", "ok-doubtful", &artifact);
	md_artifact_finish(&artifact);
	sample_artifact(&artifact);
	sample_group(&artifact);
	write_artifact("ok-group", "ok-group", &artifact);
	md_artifact_finish(&artifact);
	sample_artifact(&artifact);
	artifact.graphs[0].accepted = (struct md_tolerance){true, 64, MD_ELEMENT_BF16};
	write_artifact("ok-accepted", "ok-accepted", &artifact);
	md_artifact_finish(&artifact);
	sample_artifact(&artifact);
	artifact.provenance.verification = strdup("graphs that were not compared were allowed");
	write_artifact("ok-uncompared", "ok-uncompared", &artifact);
	md_artifact_finish(&artifact);
	sample_artifact(&artifact);
	sample_caches(&artifact, 900);
	write_artifact("ok-caches", "ok-caches", &artifact);
	md_artifact_finish(&artifact);
	snprintf(path, sizeof(path), "%s", name("artifact", "ok-caches"));
	check(md_artifact_sign(path, name("artifact", "ok-caches-signed"), &key, &err), &err);
	artifact = (struct md_artifact){0};
	write_artifact("ok-empty", "ok-empty", &artifact);
	md_artifact_finish(&artifact);
}

/* ---- caches ---- */

/* Bytes of the last block are others, and its digest is right. */
static void write_broken_block(const char *from, const char *to)
{
	static struct mend_file file;
	struct md_file_bytes in;
	struct md_error err = {0};
	struct md_buf out;
	check(md_file_read(from, 1 << 20, &in, &err), &err);
	if (!mend_artifact.open(in.data, in.size, &file))
		exit(1);
	for (uint32_t i = 0; i < file.count; i++)
		if (!strncmp((const char *)file.parts[i].row, "cache_data", 16))
			file.parts[i].raw.data[file.parts[i].raw.size - 40] ^= 0x55;
	mend_blocks(&file);
	md_buf_init(&out);
	mend_artifact.close(&file, &out);
	write_file(to, out.data, out.size);
	md_buf_finish(&out);
	for (uint32_t i = 0; i < file.count; i++)
		md_buf_finish(&file.parts[i].raw);
	md_file_release(&in);
}

static void write_caches(void)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	char path[4096];
	sample_artifact(&artifact);
	sample_caches(&artifact, 900);
	check(md_artifact_write(&artifact, name("caches", "ok-caches"), NULL, &err), &err);
	md_artifact_finish(&artifact);
	snprintf(path, sizeof(path), "%s", name("caches", "ok-caches"));
	write_broken_block(path, name("caches", "should-fail-block-of-other-bytes"));
	sample_artifact(&artifact);
	sample_caches(&artifact, 5u << 20); /* two blocks of one file, which compress well */
	free(artifact.caches.folders[0].files[2].data);
	artifact.caches.folders[0].files[2].data = sample_array(5u << 20, 1);
	artifact.caches.folders[0].files[2].hash = md_hash_bytes(artifact.caches.folders[0].files[2].data, 5u << 20);
	check(md_artifact_write(&artifact, name("caches", "ok-blocks"), NULL, &err), &err);
	md_artifact_finish(&artifact);
}

/* ---- trace ---- */

static void put_tables(struct md_trace_writer *w)
{
	struct md_fingerprint fingerprint = {.device_name = "Test device", .compute_major = 9, .multiprocessors = 132};
	struct md_fingerprint_library library = {(char *)(uintptr_t) "/opt/lib.so", NULL};
	fingerprint.libraries = &library;
	fingerprint.library_count = 1;
	md_trace_put_meta(w, &(struct md_trace_meta){1, 2, 0, "engine --a", "0.1.0"});
	md_trace_put_fingerprint(w, &fingerprint);
	md_trace_put_fact(w, 1, "model", "small");
	struct md_text arguments[] = {{(char *)"engine"}, {(char *)"--port=1"}};
	md_trace_put_arguments(w, &(struct md_argument_list){arguments, 2});
	md_trace_put_alloc(w, 2, MD_ALLOC_DEVICE, 0x7f0000000000, 1 << 16);
	md_trace_put_alloc(w, 3, MD_ALLOC_ASYNC, 0x7f0000100000, 4096);
	md_trace_put_alloc(w, 4, MD_ALLOC_DEVICE, 0x7f0000200000, 8192);
	md_trace_put_free(w, 5, 0x7f0000200000);
	md_trace_put_alloc(w, 6, MD_ALLOC_GLOBAL, 0x7f0000300000, 64);
	md_trace_put_bind(w, 7, "weights", 0x7f0000000000, 1 << 16, MD_BIND_CONSTANT);
	struct md_image image = {.kind = MD_IMAGE_ELF, .size = 5, .data = (uint8_t[]){1, 2, 3, 4, 5}};
	image.hash = md_hash_bytes(image.data, 5);
	md_trace_put_image(w, 8, &image);
	struct md_param params[] = {{0, 8}, {8, 8}, {16, 24}};
	struct md_kernel kernel = {.image = 0,
				   .name = (char *)(uintptr_t) "_Z3addPfS_i",
				   .params = params,
				   .param_count = 3,
				   .state = {.preferred_carveout = -1}};
	md_trace_put_kernel(w, 9, &kernel);
	md_trace_put_launches(w, 10, 0, 3);
	md_trace_put_transfers(w, 11, MD_TRANSFER_TO_DEVICE, &(struct md_transfers){2, 4096});
	md_trace_put_content(w, 12, 0x7f0000100000, 16, "\0\0\x30\0\0\x7f\0\0permanent");
	uint8_t map[MD_TENSOR_MAP_BYTES] = {1};
	md_trace_put_unread(w, 12, 0x7f0000100010, 8, "\0\0\x20\0\0\x7f\0", false);
	md_trace_put_unread(w, 12, 0x7f0000100018, 4072, NULL, false);
	md_trace_put_tensor_map(w, 12, map);
	md_trace_put_event_use(w, 13, 1, "cuEventQuery");
	md_trace_put_variable(w, 13, 0, "scale");
	md_trace_put_request(w, 13, &(struct md_sequence_request){MD_ALLOC_DEVICE, MD_SEQUENCE_NONE, 2, 1 << 16});
	md_trace_put_request(w, 13, &(struct md_sequence_request){MD_ALLOC_ASYNC, 0, MD_SEQUENCE_NONE, 4096});
	md_trace_put_value(w, 13, 0, "scale", "\0\0\x80\x3f", 4);
	md_trace_put_global(w, 13, 0, "scale", 0x7f0000300000, 64);
	md_trace_put_replayed(w, 13, 0, "scale", 2);
	md_trace_put_constant(w, 13, "weights", 0x7f0000000000, 1 << 16, &image.hash, NULL);
	md_trace_put_constant(w, 13, "bias", 0x7f0000100000, 64, NULL, "was freed");
	md_trace_put_mark(w, 13, "capture");
	md_trace_put_stage(w, 14, &(struct md_stage_time){"warmup", 123456});
	md_trace_put_kv(w, 15, &(struct md_kv){true, 1, 2, 3, 4, 5, 6, 900000, "key"});
}

/* A sample graph, with addresses where an artifact has pointers. */
static void put_graph(struct md_trace_writer *w, uint64_t id, uint32_t batch, bool nested)
{
	static const uint64_t addresses[] = {0x7f0000000000, 0x7f0000100000, 0x7f0000300008};
	struct md_artifact_graph made;
	sample_graph(&made, "decode", batch);
	struct md_trace_graph graph = {.id = id,
				       .nodes = made.nodes,
				       .node_count = made.node_count,
				       .edges = made.edges,
				       .edge_count = made.edge_count,
				       .batch = batch};
	for (uint32_t i = 0; i < made.node_count; i++) {
		struct md_node *node = &made.nodes[i];
		node->sequence = 20 * id + i;
		node->kernel = node->type == MD_NODE_KERNEL ? 0 : MD_NONE;
		for (uint32_t k = 0; node->params_size && k < 3; k++)
			memcpy(node->params + 8 * k, &addresses[k], 8);
	}
	if (nested) {
		nest(made.nodes);
		graph.edge_count = 2; /* no edge crosses the child graph's border */
	} else {
		made.nodes[3].memset.dst = addresses[1];
	}
	made.nodes[4].memcpy.src = made.nodes[4].memcpy.dst = addresses[0];
	md_trace_put_graph(w, 20 * id + 10, &graph);
	md_trace_put_label(w, 20 * id + 11, id, "decode", batch);
	md_trace_put_output(w, 20 * id + 12, id, 0, addresses[1], 512);
	md_trace_put_note(w, 20 * id + 13, id, "note", 4);
	md_trace_put_written(w, 20 * id + 14, id,
			     (struct md_trace_range[]){{addresses[1], 64}, {addresses[1] + 80, 16}}, 2);
	md_trace_put_given(w, 20 * id + 14, &(struct md_trace_given){0, addresses[1] + 64, 0, 0, 8, true});
	md_trace_put_given(w, 20 * id + 14, &(struct md_trace_given){MD_NONE, addresses[1], 256, 0, MD_NONE, false});
	md_trace_put_scratch(w, 20 * id + 13, addresses[1], 128);
	md_trace_put_probe(w, 20 * id + 14, id, MD_PROBE_CLEAN, NULL);
	free(graph.nodes);
	free(graph.edges);
	free(made.pointers);
	free(made.noise);
	free(made.label);
	md_arena_free(&made.arena);
}

static void write_trace(const char *target)
{
	struct md_trace_writer *w;
	struct md_error err = {0};
	check(md_trace_writer_create(name(target, "ok-all"), &w, &err), &err);
	put_tables(w);
	put_graph(w, 1, 1, false);
	check(md_trace_writer_flush(w, &err), &err);
	put_graph(w, 2, 8, false);
	md_trace_put_refusal(w, 60, 2, "the engine says so");
	put_graph(w, 3, 16, false);
	put_graph(w, 4, 32, true);
	check(md_trace_writer_close(w, &err), &err);
	check(md_trace_writer_create(name(target, "ok-tolerance"), &w, &err), &err);
	put_tables(w);
	put_graph(w, 1, 1, false);
	md_trace_put_tolerance(w, 40, 1, &(struct md_tolerance){true, 64, MD_ELEMENT_BF16});
	check(md_trace_writer_close(w, &err), &err);
}

/* ---- GGUF ---- */

static void put_text(struct md_buf *buf, const char *text)
{
	md_buf_put_u64(buf, strlen(text));
	md_buf_put(buf, text, strlen(text));
}

static void put_value(struct md_buf *buf, const char *key, uint32_t type)
{
	put_text(buf, key);
	md_buf_put_u32(buf, type);
}

static void put_strings(struct md_buf *buf, const char *key, const char *const *texts, uint64_t count)
{
	put_value(buf, key, GGUF_ARRAY);
	md_buf_put_u32(buf, GGUF_STRING);
	md_buf_put_u64(buf, count);
	for (uint64_t i = 0; i < count; i++)
		put_text(buf, texts[i]);
}

static void put_tokenizer(struct md_buf *buf)
{
	static const char *const merges[] = {"T h", "Th e", "q u"};
	const char *tokens[104];
	static char single[96][2];
	uint64_t count = 0;
	for (int c = 33; c < 127; c++) {
		single[count][0] = (char)c;
		tokens[count] = single[count];
		count++;
	}
	const char *const more[] = {"Th", "The", "qu", "<|im_start|>", "<|im_end|>"};
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
		tokens[count++] = more[i];
	put_value(buf, "tokenizer.ggml.model", GGUF_STRING);
	put_text(buf, "gpt2");
	put_value(buf, "tokenizer.ggml.pre", GGUF_STRING);
	put_text(buf, "smollm");
	put_strings(buf, "tokenizer.ggml.tokens", tokens, count);
	put_strings(buf, "tokenizer.ggml.merges", merges, 3);
	put_value(buf, "tokenizer.ggml.token_type", GGUF_ARRAY);
	md_buf_put_u32(buf, GGUF_I32);
	md_buf_put_u64(buf, count);
	for (uint64_t i = 0; i < count; i++)
		md_buf_put_u32(buf, i + 2 < count ? 1 : 3);
	put_value(buf, "tokenizer.ggml.eos_token_id", GGUF_U32);
	md_buf_put_u32(buf, (uint32_t)count - 1);
}

static void put_tensor(struct md_buf *buf, const char *tensor, uint64_t columns, uint64_t rows, uint32_t type,
		       uint64_t offset)
{
	put_text(buf, tensor);
	md_buf_put_u32(buf, 2);
	md_buf_put_u64(buf, columns);
	md_buf_put_u64(buf, rows);
	md_buf_put_u32(buf, type);
	md_buf_put_u64(buf, offset);
}

static void write_gguf(void)
{
	static const struct {
		const char *key;
		uint32_t value;
	} numbers[] = {{"llama.embedding_length", 64}, {"llama.feed_forward_length", 128},
		       {"llama.block_count", 1},       {"llama.attention.head_count", 1},
		       {"llama.context_length", 128},  {"general.alignment", 32}};
	static const uint32_t types[] = {GGUF_TENSOR_F32,  GGUF_TENSOR_F16,  GGUF_TENSOR_BF16,
					 GGUF_TENSOR_Q4_0, GGUF_TENSOR_Q4_1, GGUF_TENSOR_Q8_0};
	struct md_buf buf;
	float epsilon = 1e-5f;
	md_buf_init(&buf);
	md_buf_put(&buf, "GGUF", 4);
	md_buf_put_u32(&buf, 3);
	md_buf_put_u64(&buf, 7);
	md_buf_put_u64(&buf, 8 + 6);
	put_value(&buf, "general.architecture", GGUF_STRING);
	put_text(&buf, "llama");
	for (size_t i = 0; i < 6; i++) {
		put_value(&buf, numbers[i].key, GGUF_U32);
		md_buf_put_u32(&buf, numbers[i].value);
	}
	put_value(&buf, "llama.attention.layer_norm_rms_epsilon", GGUF_F32);
	md_buf_put(&buf, &epsilon, 4);
	put_tokenizer(&buf);
	for (uint64_t i = 0; i < 6; i++) {
		char tensor[] = "blk.0.x.weight";
		tensor[6] = (char)('a' + i);
		put_tensor(&buf, tensor, 32, 1, types[i], i * 128);
	}
	put_tensor(&buf, "token_embd.weight", 64, 99, GGUF_TENSOR_Q4_0, 768);
	while (buf.size % 32)
		md_buf_put_u8(&buf, 0);
	for (int i = 0; i < 768 + 99 * 36; i++)
		md_buf_put_u8(&buf, (uint8_t)i);
	write_file(name("gguf", "ok-model"), buf.data, buf.size);
	md_buf_finish(&buf);
}

/* ---- images ---- */

static void write_images(void)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segment;
		Elf64_Shdr sections[3];
		char tail[32];
	} elf = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1},
			    .e_phoff = sizeof(Elf64_Ehdr),
			    .e_phentsize = sizeof(Elf64_Phdr),
			    .e_phnum = 1,
			    .e_shoff = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
			    .e_shentsize = sizeof(Elf64_Shdr),
			    .e_shnum = 3}};
	elf.segment = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = sizeof(elf), .p_memsz = sizeof(elf)};
	elf.sections[1] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = sizeof(elf) - 32, .sh_size = 32};
	write_file(name("image", "ok-elf"), &elf, sizeof(elf));
	elf.header.e_shnum = 0; /* the number of sections is in section 0 */
	elf.sections[0].sh_size = 3;
	write_file(name("image", "ok-elf-many"), &elf, sizeof(elf));
	const uint32_t wrapper[] = {0x466243b1, 1, 24, 0, 0, 0, 0xba55ed50, 1 | 16 << 16, 8, 0, 1, 2};
	write_file(name("image", "ok-fatbin"), wrapper + 6, sizeof(wrapper) - 24);
	write_file(name("image", "ok-wrapper"), wrapper, sizeof(wrapper));
	static const char ptx[] = "// made by hand\n/* ** */\t.version 8.0\n.target sm_90\n";
	write_file(name("image", "ok-ptx"), ptx, sizeof(ptx));
}

static void write_home(void)
{
	struct {
		uint8_t count;
		Elf64_Phdr segments[2];
		Elf64_Nhdr note;
		char gnu[4];
		uint8_t id[20];
		char tail[64];
	} __attribute__((packed)) object = {.count = 2, .note = {4, 20, NT_GNU_BUILD_ID}, .gnu = "GNU"};
	object.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = 100, .p_memsz = 100, .p_flags = PF_R};
	object.segments[1] = (Elf64_Phdr){.p_type = PT_NOTE, .p_filesz = 36, .p_memsz = 36};
	write_file(name("home", "ok-object"), &object, sizeof(object));
	object.segments[1].p_vaddr = 1 << 20;
	write_file(name("home", "should-fail-note-outside-of-segments"), &object, sizeof(object));
	static const char line[] = "7f0000000000-7f0000002000 r-xp 00001000 08:01 1234    /usr/lib/libthis.so\n";
	write_file(name("home", "mapping"), line, sizeof(line) - 1);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	root = argv[1];
	write_artifacts();
	write_caches();
	write_trace("trace");
	write_trace("analysis");
	write_gguf();
	write_images();
	write_home();
	bombs_write(root);
	return 0;
}
