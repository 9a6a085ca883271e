/* SPDX-License-Identifier: Apache-2.0 */
/* Which lock guards what, in words that clang checks (`make tidy`) and that mean nothing to other compilers. */
#ifndef MD_BASE_GUARDED_H
#define MD_BASE_GUARDED_H

#include <pthread.h>

#ifdef MD_CHECK_LOCKS
#define MD_LOCKS(attribute) __attribute__((attribute))
/* The headers of the C library carry no annotations. */
int pthread_mutex_lock(pthread_mutex_t *mutex) MD_LOCKS(acquire_capability(*mutex));
int pthread_mutex_unlock(pthread_mutex_t *mutex) MD_LOCKS(release_capability(*mutex));
int pthread_mutex_trylock(pthread_mutex_t *mutex) MD_LOCKS(try_acquire_capability(0, *mutex));
#else
#define MD_LOCKS(attribute)
#endif

/* Behind a variable: it is read and written only while the lock is held. */
#define MD_GUARDED_BY(lock) MD_LOCKS(guarded_by(lock))
/* Behind a function's parameters: its caller holds the lock. */
#define MD_REQUIRES(...) MD_LOCKS(requires_capability(__VA_ARGS__))
/* Behind the parameters of a function that takes the lock, or releases it, for its caller. */
#define MD_ACQUIRES(lock) MD_LOCKS(acquire_capability(lock))
#define MD_RELEASES(lock) MD_LOCKS(release_capability(lock))
/* From here to the end of the function the lock is held, by means that clang does not see. */
#define MD_ASSERTS(lock) MD_LOCKS(assert_capability(lock))
/* On a function whose locking clang cannot follow; a comment says why. */
#define MD_LOCKS_UNCHECKED MD_LOCKS(no_thread_safety_analysis)

#endif
