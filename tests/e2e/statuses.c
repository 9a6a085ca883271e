/* SPDX-License-Identifier: Apache-2.0 */
/* What each function of medusa.h answers to each argument that its manual page names: the name of a call, its code. */
#include <cuda.h>
#include <medusa/medusa.h>
#include <medusa/share.h>
#include <medusa/swap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 64

static CUdeviceptr tokens, logits;

static const char *name_of(int code)
{
	switch (code) {
	case MEDUSA_OK:
		return "OK";
	case MEDUSA_ERR_INVALID:
		return "INVALID";
	case MEDUSA_ERR_NO_MEMORY:
		return "NO_MEMORY";
	case MEDUSA_ERR_NOT_FOUND:
		return "NOT_FOUND";
	case MEDUSA_ERR_UNSUPPORTED:
		return "UNSUPPORTED";
	case MEDUSA_ERR_TIMEOUT:
		return "TIMEOUT";
	case MEDUSA_ERR_DRIVER:
		return "DRIVER";
	case MEDUSA_ERR_MISMATCH:
		return "MISMATCH";
	}
	return "no code of medusa.h";
}

/* A call that fails says why; one that succeeds says nothing. */
static void say(const char *call, int code)
{
	printf("%s: %s%s\n", call, name_of(code), (code == MEDUSA_OK) == !*medusa_reason() ? "" : ", wrong reason");
}

static void begin(void)
{
	CUcontext context;
	CUdevice device;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	    cuCtxSetCurrent(context) || cuMemAlloc(&tokens, BYTES) || cuMemAlloc(&logits, BYTES))
		exit(1);
}

static int forward(void *user)
{
	return user != NULL;
}

static void say_kv(void)
{
	const struct medusa_kv_request good = {
	    .size = sizeof(good), .key = "key", .block_bytes = 4096, .utilization = 0.5, .profile = forward};
	struct medusa_kv_request request = good;
	struct medusa_kv kv = {.size = sizeof(kv)}, small = {.size = 1};
	char key[257];
	/* The call succeeds, and medusa_reason says why no stored answer was given. */
	printf("kv_capacity: %s\n", name_of(medusa_kv_capacity(&request, &kv)));
	say("kv_capacity request NULL", medusa_kv_capacity(NULL, &kv));
	say("kv_capacity out NULL", medusa_kv_capacity(&request, NULL));
	say("kv_capacity size", medusa_kv_capacity(&request, &small));
	request.utilization = 1.5;
	say("kv_capacity utilization", medusa_kv_capacity(&request, &kv));
	request = good;
	request.block_bytes = 0;
	say("kv_capacity block_bytes 0", medusa_kv_capacity(&request, &kv));
	request.block_bytes = UINT64_MAX / 2;
	say("kv_capacity no room", medusa_kv_capacity(&request, &kv));
	request = good;
	request.profile = NULL;
	say("kv_capacity profile NULL", medusa_kv_capacity(&request, &kv));
	request = good;
	request.user = &kv;
	say("kv_capacity profile failed", medusa_kv_capacity(&request, &kv));
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = 0;
	request = good;
	request.key = key;
	say("kv_capacity key too long", medusa_kv_capacity(&request, &kv));
}

static void say_bind(void)
{
	say("bind", medusa_bind("tokens", tokens, BYTES, MEDUSA_BIND_INPUT));
	say("bind again", medusa_bind("tokens", tokens, BYTES, MEDUSA_BIND_INPUT));
	say("bind another", medusa_bind("logits", logits, BYTES, MEDUSA_BIND_OUTPUT));
	say("bind name NULL", medusa_bind(NULL, tokens, BYTES, MEDUSA_BIND_INPUT));
	say("bind name empty", medusa_bind("", tokens, BYTES, MEDUSA_BIND_INPUT));
	say("bind name @", medusa_bind("@a", tokens, BYTES, MEDUSA_BIND_INPUT));
	say("bind size 0", medusa_bind("a", tokens, 0, MEDUSA_BIND_INPUT));
	say("bind role", medusa_bind("a", tokens, BYTES, (enum medusa_role)9));
	say("bind address 0", medusa_bind("zero", 0, BYTES, MEDUSA_BIND_INPUT));
	say("bind beyond the end", medusa_bind("end", tokens, SIZE_MAX, MEDUSA_BIND_INPUT));
}

static void say_graph(void)
{
	const unsigned batches[] = {2, 1};
	char why[1026];
	void *exec;
	say("graph_want", medusa_graph_want("decode", batches, 2));
	say("graph_want none", medusa_graph_want("decode", NULL, 0));
	say("graph_want label NULL", medusa_graph_want(NULL, batches, 2));
	say("graph_want batches NULL", medusa_graph_want("decode", NULL, 2));
	say("graph_get label NULL", medusa_graph_get(NULL, 2, 0, &exec));
	say("graph_get exec NULL", medusa_graph_get("decode", 2, 0, NULL));
	say("graph_get no such graph", medusa_graph_get("decode", 77, UINT64_MAX, &exec));
	say("graph_get", medusa_graph_get("decode", 2, UINT64_MAX, &exec));
	printf("graph_ready: %d\n", medusa_graph_ready("decode", 2));
	printf("graph_ready label NULL: %d\n", medusa_graph_ready(NULL, 2));
	say("graph_label none instantiated", medusa_graph_label(NULL, "x", 1));
	say("graph_label no such exec", medusa_graph_label(why, "x", 1));
	say("graph_label empty", medusa_graph_label(NULL, "", 1));
	say("graph_output none instantiated", medusa_graph_output(NULL, 0, logits, 1));
	say("graph_output index", medusa_graph_output(NULL, 4096, logits, 1));
	say("graph_output address 0", medusa_graph_output(NULL, 0, 0, 1));
	say("graph_output size 0", medusa_graph_output(NULL, 0, logits, 0));
	say("graph_output beyond the end", medusa_graph_output(NULL, 0, logits, SIZE_MAX));
	say("graph_note none instantiated", medusa_graph_note(NULL, "", 0));
	say("graph_note data NULL", medusa_graph_note(NULL, NULL, 1));
	say("graph_note too long", medusa_graph_note(NULL, "", 65537));
	say("graph_refuse none instantiated", medusa_graph_refuse(NULL, "why"));
	say("graph_refuse empty", medusa_graph_refuse(NULL, ""));
	say("graph_scratch", medusa_graph_scratch(logits, BYTES));
	say("graph_scratch address 0", medusa_graph_scratch(0, 1));
	say("graph_scratch size 0", medusa_graph_scratch(logits, 0));
	say("graph_scratch beyond the end", medusa_graph_scratch(logits, SIZE_MAX));
	say("swap_discardable", medusa_swap_discardable(logits, BYTES));
	say("swap_discardable address 0", medusa_swap_discardable(0, 1));
	say("swap_discardable beyond the end", medusa_swap_discardable(logits, SIZE_MAX));
	say("swap_needed", medusa_swap_needed(logits, BYTES));
	say("swap_needed size 0", medusa_swap_needed(logits, 0));
	memset(why, 'w', sizeof(why) - 1);
	why[sizeof(why) - 1] = 0;
	say("graph_refuse too long", medusa_graph_refuse(NULL, why));
}

static int never(const struct medusa_swap_engine *engine, void *user)
{
	(void)engine;
	(void)user;
	return 0;
}

static void say_swap(void)
{
	struct {
		struct medusa_swap_options known;
		uint64_t later;
	} newer = {{.size = sizeof(newer)}, 1};
	struct medusa_swap_options both = {.size = sizeof(both), .verify = 1, .overlap = 1};
	struct medusa_swap_options long_one = {.size = sizeof(long_one), .deadline_ns = 3600000000001};
	struct medusa_swap_options sizeless = {.deadline_ns = 1};
	struct medusa_swap_report report = {.size = sizeof(report)}, small = {.size = 1};
	struct medusa_swap_engine engine = {.size = sizeof(engine)};
	say("swap_out no such engine", medusa_swap_out("no-such-engine", NULL, &report));
	say("swap_out of this process", medusa_swap_out(NULL, NULL, NULL));
	say("swap_out name", medusa_swap_out("a/b", NULL, NULL));
	say("swap_out deadline", medusa_swap_out(NULL, &long_one, NULL));
	say("swap_out options size", medusa_swap_out(NULL, &sizeless, NULL));
	say("swap_out options of a later release", medusa_swap_out(NULL, &newer.known, NULL));
	say("swap_out report size", medusa_swap_out(NULL, NULL, &small));
	say("swap_in no such engine", medusa_swap_in("no-such-engine", NULL, &report));
	say("swap_in verify and overlap", medusa_swap_in(NULL, &both, NULL));
	say("swap_release no such engine", medusa_swap_release("no-such-engine"));
	say("swap_status no such engine", medusa_swap_status("no-such-engine", &engine));
	say("swap_status out NULL", medusa_swap_status(NULL, NULL));
	engine.size = 1;
	say("swap_status size", medusa_swap_status(NULL, &engine));
	say("swap_list each NULL", medusa_swap_list(NULL, NULL));
	say("swap_list", medusa_swap_list(never, NULL));
}

static void say_share(void)
{
	struct {
		struct medusa_share_options known;
		uint64_t later;
	} newer = {{.size = sizeof(newer)}, 1};
	struct medusa_share_options sizeless = {.verify = 1};
	medusa_deviceptr address;
	int filled;
	say("share name NULL", medusa_share(NULL, "v", 4096, NULL, &address, &filled));
	say("share name", medusa_share("a b", "v", 4096, NULL, &address, &filled));
	say("share layout NULL", medusa_share("a", NULL, 4096, NULL, &address, &filled));
	say("share bytes 0", medusa_share("a", "v", 0, NULL, &address, &filled));
	say("share address NULL", medusa_share("a", "v", 4096, NULL, NULL, &filled));
	say("share filled NULL", medusa_share("a", "v", 4096, NULL, &address, NULL));
	say("share options size", medusa_share("a", "v", 4096, &sizeless, &address, &filled));
	say("share options of a later release", medusa_share("a", "v", 4096, &newer.known, &address, &filled));
	say("share without a broker", medusa_share("a", "v", 4096, NULL, &address, &filled));
	say("share_commit no such memory", medusa_share_commit(4096));
	say("share_end no such memory", medusa_share_end(4096));
}

static void say_rest(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)}, small = {.size = 1};
	const void *data;
	CUdeviceptr address;
	size_t bytes;
	say("graph_output_get no such output", medusa_graph_output_get("decode", 2, 0, &address, &bytes));
	say("graph_output_get not handed out", medusa_graph_output_get("decode", 1, 0, &address, &bytes));
	say("graph_output_get address NULL", medusa_graph_output_get("decode", 2, 0, NULL, &bytes));
	say("graph_note_get", medusa_graph_note_get("decode", 2, &data, &bytes));
	say("graph_note_get not handed out", medusa_graph_note_get("decode", 1, &data, &bytes));
	say("graph_note_get bytes NULL", medusa_graph_note_get("decode", 2, &data, NULL));
	say("trigger", medusa_trigger("name", forward, NULL));
	say("trigger name NULL", medusa_trigger(NULL, forward, NULL));
	say("trigger run NULL", medusa_trigger("name", NULL, NULL));
	say("mark", medusa_mark("mark"));
	say("mark NULL", medusa_mark(NULL));
	say("mark empty", medusa_mark(""));
	say("stage", medusa_stage("stage", 1));
	say("stage NULL", medusa_stage(NULL, 1));
	say("stage empty", medusa_stage("", 1));
	say("stats_read", medusa_stats_read(&stats));
	say("stats_read NULL", medusa_stats_read(NULL));
	say("stats_read size", medusa_stats_read(&small));
}

static void say_end(void)
{
	char name[258];
	void *exec;
	say("bind a buffer of a graph that was handed out", medusa_bind("tokens", logits, BYTES, MEDUSA_BIND_INPUT));
	say("graph_get of a binding that was moved", medusa_graph_get("decode", 2, UINT64_MAX, &exec));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	say("fingerprint_add name NULL", medusa_fingerprint_add(NULL, "value"));
	say("fingerprint_add name empty", medusa_fingerprint_add("", "value"));
	say("fingerprint_add name too long", medusa_fingerprint_add(name, "value"));
	say("fingerprint_add value NULL", medusa_fingerprint_add("name", NULL));
	say("fingerprint_add", medusa_fingerprint_add("name", "value"));
	medusa_release();
	say("graph_get after release", medusa_graph_get("decode", 2, UINT64_MAX, &exec));
}

int main(int argc, char **argv)
{
	void *exec;
	(void)argv;
	if (argc > 1) { /* a capture takes the first word or the first call for its beginning */
		say("bind without a driver", medusa_bind("tokens", 4096, BYTES, MEDUSA_BIND_INPUT));
		say("graph_get without a driver", medusa_graph_get("decode", 2, 0, &exec));
		return 0;
	}
	begin();
	say_kv();
	say_bind();
	say_graph();
	say_swap();
	say_share();
	say_rest();
	say_end();
	return 0;
}
