/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with graphs that break it when their private memory is not what it was. argv: image, then a kind for each
 * batch size: plain, fault, hang, die, slow; behind a dash, the graph has no label. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/subjects/stepper.h"

/* SUBJECT_OWN=WHEN: it fails by itself, in any of its runs ("always") or under verification ("verify").
 * SUBJECT_RELEASES=N: it calls medusa_release before graph N. */
enum { KEY_BYTES = 4096, KINDS = 5 };

static const char *const kinds[KINDS] = {"plain", "fault", "hang", "die", "slow"};
static CUdeviceptr key;

static void set_up(const char *path)
{
	const uint64_t value = 0x123456789abcdef0;
	set_up_stepper(path, "faulty");
	TRY(cuMemAlloc_v2, &key, KEY_BYTES);
	TRY(cuMemcpyHtoD_v2, key, &value, sizeof(value));
	bind_stepper();
}

static void step(unsigned batch, const char *word)
{
	bool labelled = *word != '-';
	int32_t n = WIDTH, kind = kind_among(kinds, KINDS, word + !labelled);
	void *params[] = {&output, &input, &key, &n, &kind};
	CUgraphExec exec = labelled ? ask_for_step(batch) : NULL;
	if (!exec) {
		exec = capture_step(params);
		if (labelled)
			medusa_graph_label(exec, "step", batch);
	}
	replay_step(exec, batch);
}

static void fail_by_itself(void)
{
	const char *when = getenv("SUBJECT_OWN");
	if (when && (!strcmp(when, "always") || getenv("MEDUSA_VERIFY")))
		abort();
}

int main(int argc, char *argv[])
{
	if (argc < 3) {
		fprintf(stderr, "image and kinds are wanted\n");
		return 1;
	}
	load_driver();
	open_context();
	set_up(argv[1]);
	for (int i = 2; i < argc; i++) {
		const char *releases = getenv("SUBJECT_RELEASES");
		if (releases && atoi(releases) == i - 1)
			medusa_release();
		step((unsigned)i - 1, argv[i]);
	}
	fail_by_itself();
	return 0;
}
