/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's answer is, and where a stream of events may be cut, in whatever pieces it comes. */
#include <criterion/criterion.h>
#include <string.h>

#include "worker/core/answer_kind.h"
#include "worker/core/event_border.h"

/* ---- borders ---- */

#define STREAM_MAX 200

/* A stream, in which | stands where it may be cut. */
static const char *const streams[] = {
    "|data: a\n\n|data: b\n\n|",
    "|data: a\r\n\r|\n|data: b\r\n\r|\n|",
    "|data: a\r\r|data: b\r\r|",
    /* all mixtures of line ends, and more blank lines than are needed */
    "|data: a\r\n\r|data: b\n\r|\r|\n|\n|data: c\r\n\n|",
    "|data: a\n\r|\n|\r|\n|\r|\n|data: b",
    "|\n|\r|\r|\n|",
    /* an event has several lines */
    "|event: x\ndata: a\ndata: b\n\n|id\nretry: 5\n\n|data",
    "|data: a\rdata: b\r\r|data: c\r",
    /* a comment may stand between events; within one it is no border */
    "|: keep\n|: alive\r|: you\r|\n|:\n|data: a\n: within\ndata: b\n\n|: c",
    "|:\r|\n|:\r|data: a\r:\r\r|",
    /* blanks make no blank line, nor a comment */
    "|data: a\n \n\n| : x\n\n|",
    /* the byte order mark */
    "|\xef\xbb\xbf: a comment\n|data: a\n\n|",
    "|\xef\xbb\xbf\n|\xef\xbb\xbf: none\n\n|",
    "|\xef\xbb\xbf"
    "data: a\n\n|",
    "|\xef\xbb: none\n\n|",
    "|\xef\xbb\n\n|",
    "|\xef: none\r\n\r|\n|",
    "|x\xef\xbb\xbf\n\n|",
};

/* The stream without its marks; is_border[n]: it may be cut behind n bytes. */
static size_t read_stream(const char *marked, char *stream, bool *is_border)
{
	size_t size = 0;
	for (; *marked; marked++) {
		if (*marked == '|')
			is_border[size] = true;
		else
			stream[size++] = *marked;
	}
	return size;
}

static void check_pieces(const char *marked, const char *stream, const bool *is_border, const size_t *cuts)
{
	struct md_event_border border = {0};
	for (; cuts[1]; cuts++) {
		size_t found = md_event_border_find(&border, stream + cuts[0], cuts[1] - cuts[0]), last = cuts[1];
		while (last > cuts[0] && !is_border[last])
			last--;
		cr_assert_eq(found, last - cuts[0], "\"%s\" from %zu to %zu: %zu bytes and not %zu", marked, cuts[0],
			     cuts[1], found, last - cuts[0]);
		cr_assert(!border.pending || !is_border[cuts[1]], "\"%s\" from %zu to %zu: pending", marked, cuts[0],
			  cuts[1]);
	}
}

Test(worker_answer, borders_are_found_however_a_stream_is_cut)
{
	for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
		char stream[STREAM_MAX] = "";
		bool is_border[STREAM_MAX] = {false};
		size_t size = read_stream(streams[i], stream, is_border);
		for (size_t first = 1; first < size; first++)
			for (size_t second = first; second < size; second++)
				check_pieces(streams[i], stream, is_border, (size_t[]){0, first, second, size, 0});
		size_t single[STREAM_MAX + 1] = {0};
		for (size_t at = 0; at <= size; at++)
			single[at] = at;
		check_pieces(streams[i], stream, is_border, single);
		check_pieces(streams[i], stream, is_border, (size_t[]){0, size, 0});
	}
}

Test(worker_answer, an_event_is_pending_from_its_first_byte_to_its_blank_line)
{
	static const struct {
		const char *text;
		bool pending;
	} begun[] = {{"", false},
		     {"d", true},
		     {"data: a\n", true},
		     {"data: a\n: c", true},
		     {"data: a\r\n\r", false},
		     {": c", false},
		     {": c\n", false},
		     {"\xef\xbb", false},
		     {"\xef\xbb\xbf", false},
		     {"\xef\xbb\xbf:", false},
		     {"\xef\xbb\xbfx", true}};
	for (size_t i = 0; i < sizeof(begun) / sizeof(*begun); i++) {
		struct md_event_border border = {0};
		md_event_border_find(&border, begun[i].text, strlen(begun[i].text));
		cr_assert_eq(border.pending, begun[i].pending, "\"%s\"", begun[i].text);
	}
}

/* ---- heads ---- */

static void add(struct md_http_head *head, const char *name, const char *value)
{
	if (!value)
		return;
	head->headers[head->count].name = (uint32_t)head->text.size;
	md_buf_put(&head->text, name, strlen(name) + 1);
	head->headers[head->count++].value = (uint32_t)head->text.size;
	md_buf_put(&head->text, value, strlen(value) + 1);
}

Test(worker_answer, what_an_answer_is)
{
	static const struct {
		const char *type, *encoding; /* NULL: the head has none */
		enum md_answer_kind kind;
	} heads[] = {
	    {"application/json", NULL, MD_ANSWER_JSON},
	    {"Application/JSON; charset=utf-8", "", MD_ANSWER_JSON},
	    {"application/problem+json", "Identity", MD_ANSWER_JSON},
	    {"application/problem+json;x=y", NULL, MD_ANSWER_JSON},
	    {"text/event-stream", NULL, MD_ANSWER_EVENTS},
	    {"text/event-stream;charset=utf-8", "identity", MD_ANSWER_EVENTS},
	    {"text/event-stream", "gzip", MD_ANSWER_OPAQUE},
	    {"application/json", "identity, br", MD_ANSWER_OPAQUE},
	    {"application/json-seq", NULL, MD_ANSWER_OPAQUE},
	    {"application/+json", NULL, MD_ANSWER_OPAQUE},
	    {"application/jsonl", NULL, MD_ANSWER_OPAQUE},
	    {"text/json+json", NULL, MD_ANSWER_OPAQUE},
	    {"text/html", NULL, MD_ANSWER_OPAQUE},
	    {"json", NULL, MD_ANSWER_OPAQUE},
	    {"", NULL, MD_ANSWER_OPAQUE},
	    {NULL, NULL, MD_ANSWER_OPAQUE},
	};
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct md_http_head head;
		md_http_head_init(&head);
		add(&head, "Content-Type", heads[i].type);
		add(&head, "content-encoding", heads[i].encoding);
		cr_assert_eq(md_answer_kind(&head), heads[i].kind, "%s, %s", heads[i].type ? heads[i].type : "no type",
			     heads[i].encoding ? heads[i].encoding : "no encoding");
		md_http_head_finish(&head);
	}
}
