/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches and numbers among the settings of the environment, each read by one rule. A value that fits no rule is named
 * in the log, once for each variable, with what is permitted and what happens instead.
 */
#ifndef MD_BASE_SETTING_H
#define MD_BASE_SETTING_H

#include <stdbool.h>
#include <stdint.h>

#define MD_SETTING_SWITCH "1, on, true, yes, 0, off, false, no"

/*
 * A switch: 1, on, true and yes are true, 0, off, false and no are false, in small letters and capitals. A variable that
 * is not set or empty is `otherwise`. Any other value is an error, and the answer is `unreadable`: what is safe, whoever
 * reads the variable. so: what the answer means then, for the log ("it is left out").
 */
bool md_setting_is_on(const char *name, bool otherwise, bool unreadable, const char *so);

/*
 * A whole number from least to most, decimal, or hexadecimal after 0x. A variable that is not set or empty is
 * `otherwise`, and so is one that holds anything else, which is an error.
 */
uint64_t md_setting_number(const char *name, uint64_t least, uint64_t most, uint64_t otherwise);
/* The same for a text that the caller has taken out of the variable. NULL: not set. */
uint64_t md_setting_number_in(const char *text, const char *name, uint64_t least, uint64_t most, uint64_t otherwise);

/* The rule alone, without the log. False: no such number. */
bool md_setting_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* Says once for each variable that its value is none of those that are wanted, and what happens instead. */
void md_setting_say_unreadable(const char *name, const char *value, const char *wanted, const char *so);

#endif
