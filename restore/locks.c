/* SPDX-License-Identifier: Apache-2.0 */
/* The two locks of a restore. */
#include "restore/restore.h"

pthread_mutex_t md_restore_work = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t md_restore_lock = PTHREAD_MUTEX_INITIALIZER;
