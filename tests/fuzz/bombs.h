/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that are made to take memory and time. */
#ifndef TESTS_FUZZ_BOMBS_H
#define TESTS_FUZZ_BOMBS_H

/* Into bombs/ of the directory, whose corpus/ has the good artifacts already. Exits when it cannot. */
void bombs_write(const char *directory);

#endif
