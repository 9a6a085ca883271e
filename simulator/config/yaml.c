/* SPDX-License-Identifier: Apache-2.0 */
/* A small YAML document as a tree with line numbers, from the events of libyaml. */
#include "simulator/config/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/array.h"
#include "base/file.h"

struct reader {
	yaml_parser_t parser;
	yaml_event_t event;
	bool held; /* event must be deleted */
	struct md_sim_yaml *yaml;
	struct md_error *err;
	const char *text; /* from where libyaml counts bytes */
	size_t bytes;
};

static uint32_t line_of(const struct reader *reader)
{
	return (uint32_t)reader->event.start_mark.line + 1;
}

static enum md_status refuse(const struct reader *reader, const char *what)
{
	return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:%u: %s", reader->yaml->name, line_of(reader), what);
}

static enum md_status out_of_memory(const struct reader *reader)
{
	return md_error_set(reader->err, MD_ERR_NO_MEMORY, "%s: out of memory for its nodes", reader->yaml->name);
}

/* For bytes that are not text, libyaml reports an offset and no line. */
static enum md_status refuse_byte(const struct reader *reader)
{
	size_t offset = reader->parser.problem_offset, line = 1;
	for (size_t i = 0; i < offset && i < reader->bytes; i++)
		line += reader->text[i] == '\n';
	return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:%zu: byte %zu of the file: %s", reader->yaml->name, line,
			    offset, reader->parser.problem ? reader->parser.problem : "not text");
}

static enum md_status read_event(struct reader *reader)
{
	const yaml_parser_t *parser = &reader->parser;
	if (reader->held)
		yaml_event_delete(&reader->event);
	reader->held = false;
	if (yaml_parser_parse(&reader->parser, &reader->event)) {
		reader->held = true;
		return MD_OK;
	}
	if (parser->error == YAML_MEMORY_ERROR)
		return out_of_memory(reader);
	if (parser->error == YAML_READER_ERROR)
		return refuse_byte(reader);
	return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:%zu: %s", reader->yaml->name,
			    parser->problem_mark.line + 1, parser->problem ? parser->problem : "not YAML");
}

static enum md_status keep_text(const struct reader *reader, uint32_t *at)
{
	const char *value = (const char *)reader->event.data.scalar.value;
	size_t length = reader->event.data.scalar.length;
	if (length > MD_SIM_YAML_SCALAR_MAX)
		return refuse(reader, "a text of over 4096 bytes");
	if (memchr(value, 0, length))
		return refuse(reader, "a text with a zero byte in it");
	*at = (uint32_t)reader->yaml->text.size;
	md_buf_put(&reader->yaml->text, value, length + 1);
	return reader->yaml->text.failed ? out_of_memory(reader) : MD_OK;
}

static enum md_status add_node(const struct reader *reader, enum md_sim_yaml_kind kind, uint32_t *out)
{
	struct md_sim_yaml *yaml = reader->yaml;
	if (yaml->count == MD_SIM_YAML_NODES_MAX)
		return refuse(reader, "more than 100000 values");
	if (!MD_ARRAY_GROW(yaml->nodes, yaml->count, yaml->capacity))
		return out_of_memory(reader);
	*out = yaml->count++;
	yaml->nodes[*out] = (struct md_sim_yaml_node){.kind = kind, .line = line_of(reader)};
	return MD_OK;
}

static void link_child(struct md_sim_yaml *yaml, uint32_t parent, uint32_t last, uint32_t child)
{
	if (last)
		yaml->nodes[last].next = child;
	else
		yaml->nodes[parent].first = child;
	yaml->nodes[parent].count++;
}

static enum md_status read_node(struct reader *reader, uint32_t depth, uint32_t *out);

/* Reads "key: value"; the current event is the key. */
static enum md_status read_pair(struct reader *reader, uint32_t depth, uint32_t *child)
{
	uint32_t key, line = line_of(reader);
	if (reader->event.type != YAML_SCALAR_EVENT)
		return refuse(reader, "a key that is not a plain word");
	if (reader->event.data.scalar.anchor || reader->event.data.scalar.tag)
		return refuse(reader, "anchors and tags are not taken");
	MD_FORWARD(keep_text(reader, &key));
	MD_FORWARD(read_event(reader));
	MD_FORWARD(read_node(reader, depth, child));
	reader->yaml->nodes[*child].key = key;
	reader->yaml->nodes[*child].line = line;
	return MD_OK;
}

static enum md_status read_children(struct reader *reader, uint32_t depth, uint32_t parent)
{
	bool mapping = reader->yaml->nodes[parent].kind == MD_SIM_MAPPING;
	yaml_event_type_t end = mapping ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
	uint32_t last = 0, child;
	if (depth == MD_SIM_YAML_DEPTH_MAX)
		return refuse(reader, "values nested more than 12 deep");
	for (;;) {
		MD_FORWARD(read_event(reader));
		if (reader->event.type == end)
			return MD_OK;
		MD_FORWARD(mapping ? read_pair(reader, depth + 1, &child) : read_node(reader, depth + 1, &child));
		link_child(reader->yaml, parent, last, child);
		last = child;
	}
}

/* Reads a node from the current event to the event that ends it. */
static enum md_status read_node(struct reader *reader, uint32_t depth, uint32_t *out)
{
	const yaml_event_t *event = &reader->event;
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		if (event->data.scalar.anchor || event->data.scalar.tag)
			return refuse(reader, "anchors and tags are not taken");
		MD_FORWARD(add_node(reader, MD_SIM_SCALAR, out));
		return keep_text(reader, &reader->yaml->nodes[*out].text);
	case YAML_SEQUENCE_START_EVENT:
		if (event->data.sequence_start.anchor || event->data.sequence_start.tag)
			return refuse(reader, "anchors and tags are not taken");
		MD_FORWARD(add_node(reader, MD_SIM_SEQUENCE, out));
		return read_children(reader, depth, *out);
	case YAML_MAPPING_START_EVENT:
		if (event->data.mapping_start.anchor || event->data.mapping_start.tag)
			return refuse(reader, "anchors and tags are not taken");
		MD_FORWARD(add_node(reader, MD_SIM_MAPPING, out));
		return read_children(reader, depth, *out);
	case YAML_ALIAS_EVENT:
		return refuse(reader, "aliases are not taken");
	default:
		return refuse(reader, "a value is missing");
	}
}

static enum md_status read_document(struct reader *reader)
{
	uint32_t root;
	do
		MD_FORWARD(read_event(reader));
	while (reader->event.type == YAML_STREAM_START_EVENT);
	if (reader->event.type != YAML_DOCUMENT_START_EVENT)
		return refuse(reader, "there is nothing in it");
	MD_FORWARD(read_event(reader));
	if (reader->event.type != YAML_MAPPING_START_EVENT)
		return refuse(reader, "fields are expected, \"name: value\"");
	MD_FORWARD(read_node(reader, 0, &root));
	do
		MD_FORWARD(read_event(reader));
	while (reader->event.type == YAML_DOCUMENT_END_EVENT);
	return reader->event.type == YAML_STREAM_END_EVENT ? MD_OK : refuse(reader, "a second document begins here");
}

enum md_status md_sim_yaml_parse(const char *name, const char *text, size_t bytes, struct md_sim_yaml *yaml,
				 struct md_error *err)
{
	struct reader reader = {.yaml = yaml, .err = err};
	enum md_status status;
	*yaml = (struct md_sim_yaml){.name = name};
	md_buf_init(&yaml->text);
	if (bytes > MD_SIM_YAML_BYTES_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s: %zu bytes, over 4 MiB", name, bytes);
	if (!yaml_parser_initialize(&reader.parser))
		return out_of_memory(&reader);
	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* the byte order mark that some programs write */
		text += 3;
		bytes -= 3;
	}
	reader.text = text;
	reader.bytes = bytes;
	yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
	yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
	status = read_document(&reader);
	if (reader.held)
		yaml_event_delete(&reader.event);
	yaml_parser_delete(&reader.parser);
	if (status != MD_OK)
		md_sim_yaml_finish(yaml);
	return status;
}

void md_sim_yaml_finish(struct md_sim_yaml *yaml)
{
	free(yaml->nodes);
	md_buf_finish(&yaml->text);
	*yaml = (struct md_sim_yaml){0};
}

const char *md_sim_yaml_key(const struct md_sim_yaml *yaml, uint32_t node)
{
	return (const char *)yaml->text.data + yaml->nodes[node].key;
}

const char *md_sim_yaml_text(const struct md_sim_yaml *yaml, uint32_t node)
{
	return (const char *)yaml->text.data + yaml->nodes[node].text;
}

/* ---- files ---- */

enum md_status md_sim_file_read(const char *path, size_t max, char **text, size_t *bytes, struct md_error *err)
{
	struct md_file_bytes file;
	MD_FORWARD(md_file_read(path, max, &file, err));
	*text = (char *)file.data;
	*bytes = file.size;
	return MD_OK;
}
