/* SPDX-License-Identifier: Apache-2.0 */
/* Notes as lines: what is written is read again, whatever a label holds; what a kill has cut is no note. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/note.h"

static const char *const labels[] = {NULL, "step", "%", "%41", "a b\tc\nd", "\xff\x01\x7f", "decode \"8\""};
#define LABELS (sizeof(labels) / sizeof(labels[0]))

Test(note, whatever_a_label_holds)
{
	FILE *file = tmpfile();
	struct md_note note;
	cr_assert(file, "a file for the test");
	for (size_t i = 0; i < LABELS; i++)
		cr_assert(md_note_write(file, &(struct md_note){.pid = 7,
								.event = MD_NOTE_BROKE,
								.of = {MD_NOTE_POISON, labels[i], 8, UINT64_MAX},
								.why = "line\nof % and \t"}),
			  "label %zu is written", i);
	rewind(file);
	for (size_t i = 0; i < LABELS; i++) {
		const struct md_note_of of = {MD_NOTE_POISON, labels[i], 8, UINT64_MAX};
		cr_assert(md_note_read(file, &note), "label %zu is read", i);
		cr_assert(md_note_same(&note.of, &of), "label %zu is the same", i);
		cr_assert(note.pid == 7 && note.event == MD_NOTE_BROKE && note.of.graph == UINT64_MAX, "and the rest");
		cr_assert_str_eq(note.why, "line\nof % and \t");
		md_note_finish(&note);
	}
	cr_assert(!md_note_read(file, &note), "no more");
	fclose(file);
}

Test(note, should_fail_lines_that_are_none)
{
	static const char text[] = "\n"
				   "7\tbroke\tproof\tstep\t1\n"
				   "7\tbroken\tproof\tstep\t1\t0\twhy\t\n"
				   "7\tbroke\tproof\t%zz\t1\t0\twhy\t\n"
				   "7\thung\tproof\tstep\t1\t0\twhy\t\n"
				   "7\tbroke\tproof\tstep\t1\t0\twhy\t"; /* cut */
	FILE *file = fmemopen((void *)(uintptr_t)text, sizeof(text) - 1, "r");
	struct md_note note;
	cr_assert(file && md_note_read(file, &note), "one of them is a note");
	cr_assert(note.event == MD_NOTE_HUNG, "the only one");
	md_note_finish(&note);
	cr_assert(!md_note_read(file, &note), "and no other");
	fclose(file);
}

Test(note, graphs_go_by_their_names)
{
	const struct md_note_of a = {"proof", "step", 1, 1}, same = {"proof", "step", 1, 9},
				batch = {"proof", "step", 2, 1}, test = {"poison test", "step", 1, 1},
				bare = {"proof", NULL, 1, 1}, number = {"proof", NULL, 5, 1},
				other = {"proof", NULL, 1, 2};
	cr_assert(md_note_same(&a, &same) && md_note_same(&bare, &number), "by label, else by number");
	cr_assert(!md_note_same(&a, &batch) && !md_note_same(&a, &test) && !md_note_same(&a, &bare) &&
		      !md_note_same(&bare, &other),
		  "and not by anything else");
}
