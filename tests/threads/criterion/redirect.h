/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests use of Criterion's redirections (see criterion.h beside it). */
#ifndef MD_TESTS_THREADS_REDIRECT_H
#define MD_TESTS_THREADS_REDIRECT_H

#include <stdio.h>

void cr_redirect_stdout(void);
void cr_redirect_stderr(void);
/* What was written since then, from its beginning. */
FILE *cr_get_redirected_stdout(void);
FILE *cr_get_redirected_stderr(void);

#endif
