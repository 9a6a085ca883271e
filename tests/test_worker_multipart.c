/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of forms with files: found, not found where a body is cut off or wrong, and replaced. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/multipart.h"

#define TYPE "multipart/form-data; boundary=xyz"
#define PART(headers, value) "--xyz\r\n" headers "\r\n\r\n" value "\r\n"
#define NAMED(name, value) PART("Content-Disposition: form-data; name=\"" name "\"", value)

static const struct {
	const char *type, *body, *value; /* NULL: no such field */
} forms[] = {
    {TYPE, NAMED("model", "a") "--xyz--\r\n", "a"},
    {TYPE, NAMED("other", "b") NAMED("model", "") "--xyz--", ""},
    {TYPE, "a preamble\r\n" NAMED("model", "a\r\n--xy") "--xyz--", "a\r\n--xy"},
    {TYPE, PART("X: y\r\nCONTENT-DISPOSITION: form-data; x=1; name=model", "a") "--xyz--", "a"},
    {"Multipart/Form-Data;charset=utf-8; boundary=\"x y\"",
     "--x y\r\nContent-Disposition: form-data; name=model\r\n\r\nq\r\n--x y--", "q"},
    {TYPE, PART("Content-Disposition: form-data; name=\"model\"; filename=\"a\"", "a") "--xyz--", NULL},
    {TYPE, PART("Content-Disposition: form-data; x=\"; name=model\"", "a") "--xyz--", NULL},
    {TYPE, PART("", "name=model") "--xyz--", NULL},
    {TYPE, NAMED("model", "a") "--xyZ--", NULL},
    {TYPE, "--xyz--\r\n" NAMED("model", "a"), NULL},
    {TYPE, "", NULL},
    {"multipart/form-data", NAMED("model", "a") "--xyz--", NULL},
    {"multipart/form-data; boundary=", NAMED("model", "a") "--xyz--", NULL},
    {"multipart/form-data; boundary=0123456789012345678901234567890123456789012345678901234567890123456789x", "", NULL},
    {"application/json; boundary=xyz", NAMED("model", "a") "--xyz--", NULL},
};

Test(worker_multipart, fields_are_found)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct md_multipart_field field;
		const char *why =
		    md_multipart_find(forms[i].type, forms[i].body, strlen(forms[i].body), "model", &field);
		bool found = !why && field.value;
		cr_assert_eq(found, forms[i].value != NULL, "form %zu: found is %d", i, found);
		cr_assert(!found || (field.size == strlen(forms[i].value) &&
				     !memcmp(field.value, forms[i].value, field.size)),
			  "form %zu: the value is \"%.*s\"", i, found ? (int)field.size : 0, found ? field.value : "");
	}
}

static const struct {
	const char *type, *body, *why; /* "": it is whole, and has no field `model` */
} refused[] = {
    {TYPE, NAMED("other", "a") "--xyz--", ""},
    {TYPE, NAMED("model", "a") NAMED("model", "b") "--xyz--", "twice"},
    {TYPE, NAMED("model", "a") "--xyz", "boundary at its end"},
    {TYPE, NAMED("model", "a"), "within a part"},
    {TYPE, "abc", "not in the body"},
    {"multipart/form-data", NAMED("model", "a") "--xyz--", "no boundary"},
};

Test(worker_multipart, a_refusal_says_why)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct md_multipart_field field;
		const char *why =
		    md_multipart_find(refused[i].type, refused[i].body, strlen(refused[i].body), "model", &field);
		cr_assert(*refused[i].why ? why && strstr(why, refused[i].why) : !why && !field.value,
			  "form %zu: \"%s\" instead of \"%s\"", i, why, refused[i].why);
	}
}

Test(worker_multipart, a_body_that_is_cut_off_is_read_no_further)
{
	static const char body[] = NAMED("other", "b") NAMED("model", "a value") "--xyz--\r\n";
	size_t whole = strlen(body) - strlen("\r\n"), most = strlen(body);
	for (size_t size = 0; size <= most; size++) {
		struct md_multipart_field field;
		char *copy = malloc(size + !size); /* a sanitizer sees what is read behind it */
		memcpy(copy, body, size);
		bool found = !md_multipart_find(TYPE, copy, size, "model", &field) && field.value;
		cr_assert_eq(found, size >= whole, "%zu of %zu bytes: found is %d", size, most, found);
		free(copy);
	}
}

Test(worker_multipart, a_value_is_replaced)
{
	static const char body[] = NAMED("model", "a") "--xyz--", wanted[] = NAMED("model", "longer") "--xyz--";
	struct md_multipart_field field;
	size_t size;
	cr_assert_null(md_multipart_find(TYPE, body, strlen(body), "model", &field), "the field was not found");
	char *made = md_multipart_replace(body, strlen(body), &field, "longer", &size);
	cr_assert_str_eq(made, wanted, "the form became \"%s\"", made);
	cr_assert_eq(size, strlen(wanted), "it has %zu bytes", size);
	free(made);
}
