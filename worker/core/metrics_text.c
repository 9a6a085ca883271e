/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics_text.h"

void md_metrics_text_begin(FILE *out, const char *prefix, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, type);
}

void md_metrics_text_label(FILE *out, const char *value)
{
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			fputc(*value, out);
	}
}
