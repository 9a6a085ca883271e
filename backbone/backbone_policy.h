/* SPDX-License-Identifier: Apache-2.0 */
/* Which users may attach which backbones. */
#ifndef MD_BACKBONE_BACKBONE_POLICY_H
#define MD_BACKBONE_BACKBONE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

struct md_backbone_rule {
	bool any_user, fills; /* fills: may also fill it, and not only read */
	uid_t user;
	char *pattern; /* owned; as of a shell, for whole names */
};

struct md_backbone_policy {
	struct md_backbone_rule *rules; /* owned */
	size_t count;
};

/*
 * Lines "read USER PATTERN" and "fill USER PATTERN": USER is a name, a number or *. Empty lines and what follows # are
 * left out. MD_ERR_INVALID names file and line.
 */
enum md_status md_backbone_policy_read(const char *path, struct md_backbone_policy *policy, struct md_error *err);
void md_backbone_policy_finish(struct md_backbone_policy *policy);
/* The broker's own user and root may do everything; others what a rule says (NULL: nothing). */
bool md_backbone_policy_allows(const struct md_backbone_policy *policy, uid_t user, const char *name, bool fill);

#endif
