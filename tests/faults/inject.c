/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a process under test: the n-th allocation, or the n-th use of a file, of named objects fails. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/export.h"

/*
 * INJECT=WHAT:N       the N-th such call fails, and is named on stderr
 *        memory       malloc, calloc, realloc, strdup, strndup, asprintf, pthread_create: no memory
 *        file         open, read, write, mmap, fsync, rename and their kind: EMFILE, EIO, ENOSPC, ENOMEM
 *        short        read and write do half, and go on
 *        kill         SIGKILL before the N-th use of a file
 *        stop         SIGTERM
 *        close        before the N-th call that opens, looks at or reads a file: all descriptors from
 *                     100 on are closed (below are hostcuda's), and every free number becomes one of INJECT_OWN, a
 *                     file of the engine's. Not before a write: between a look at a descriptor and that, nothing can
 *                     be done within a process.
 *        net          accept, socket, connect, epoll_ctl, pipe, eventfd, readv, writev, posix_spawn: EMFILE, ENOMEM and their kind
 *        join         No call fails. A thread that has waited for a time, and then unlocks its mutex, goes on only when
 *                     another thread waits for its end.
 *        late         No call fails. The thread named INJECT_THREAD sleeps for 0.2 s after its N-th unlock of a mutex.
 *        With N = 0 none fails, and their number is said at the end.
 * INJECT_FROM=NAMES   file names of objects, with commas: calls from elsewhere are neither counted nor failed
 * INJECT_MAIN=1       only in the thread that the process began with, whose calls come in the same order each time
 * INJECT_PROGRAM=NAME only in the program of that name, not in what it starts
 */
enum what { NOTHING, MEMORY, FILES, SHORT, KILL, STOP, CLOSE, JOIN, NET, LATE };

static enum what what;
static unsigned long wanted, seen;
static bool main_only;
static char sources[512], program[4096];

__attribute__((constructor)) static void read_settings(void)
{
	static const char *const names[] = {
	    "", "memory:", "file:", "short:", "kill:", "stop:", "close:", "join:", "net:", "late:"};
	const char *setting = getenv("INJECT"), *from = getenv("INJECT_FROM"), *only = getenv("INJECT_PROGRAM");
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	const char *base = size > 0 ? strrchr(program, '/') + 1 : "";
	if (!setting || !from || (only && strcmp(only, base)))
		return;
	snprintf(sources, sizeof(sources), ",%s,", from);
	main_only = getenv("INJECT_MAIN") != NULL;
	for (int i = MEMORY; i <= LATE; i++) {
		size_t length = strlen(names[i]);
		if (!strncmp(setting, names[i], length)) {
			wanted = strtoul(setting + length, NULL, 10);
			what = (enum what)i;
		}
	}
}

__attribute__((destructor)) static void say_number(void)
{
	if (what != NOTHING && !wanted)
		dprintf(STDERR_FILENO, "inject: %lu calls\n", seen);
}

/* Without a lock and without memory: this is asked within the allocator. */
static const char *object_of(void *caller)
{
	struct dl_find_object found;
	if (_dl_find_object(caller, &found) != 0)
		return "";
	const char *path = *found.dlfo_link_map->l_name ? found.dlfo_link_map->l_name : program;
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_source(const char *object)
{
	size_t length = strlen(object);
	for (const char *at = sources; length && (at = strstr(at, object)); at++)
		if (at[-1] == ',' && at[length] == ',')
			return true;
	return false;
}

static void say(const char *call, void *caller)
{
	char line[256];
	struct dl_find_object found;
	int size = snprintf(line, sizeof(line), "inject: call %lu is %s of %s+0x%lx\n", wanted, call, object_of(caller),
			    _dl_find_object(caller, &found)
				? 0ul
				: (unsigned long)((char *)caller - (char *)found.dlfo_link_map->l_addr));
	ssize_t unused = write(STDERR_FILENO, line, (size_t)size); /* from here: counted for nobody */
	(void)unused;
}

/* By way of the system alone, so that nothing of it is counted. */
static void take_descriptors(void)
{
	static const char own[] = "the engine's own\n";
	const char *path = getenv("INJECT_OWN");
	if (syscall(SYS_close_range, 100, ~0u, 0))
		_exit(9);
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || syscall(SYS_write, fd, own, sizeof(own) - 1) < 0)
		_exit(9);
	for (int i = 0; i < 1100 && dup((int)fd) >= 0; i++)
		;
}

static bool is_due(enum what kind, const char *call, void *caller)
{
	if (what != kind || !is_source(object_of(caller)) || (main_only && gettid() != getpid()) ||
	    __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) != wanted)
		return false;
	say(call, caller);
	if (kind == KILL || kind == STOP)
		kill(getpid(), kind == KILL ? SIGKILL : SIGTERM);
	if (kind == CLOSE)
		take_descriptors();
	return true;
}

#define CALLER __builtin_return_address(0)

/* The next definition of this name: the C library's, or a sanitizer's. */
#define REAL(type, name, ...)                                                                                          \
	static type (*real)(__VA_ARGS__);                                                                              \
	if (!real)                                                                                                     \
		real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

#define FAIL_MEMORY(call, result)                                                                                      \
	if (is_due(MEMORY, call, CALLER)) {                                                                            \
		errno = ENOMEM;                                                                                        \
		return result;                                                                                         \
	}
#define FAIL_FILE(call, code, result)                                                                                  \
	(void)(is_due(KILL, call, CALLER) || is_due(STOP, call, CALLER));                                              \
	if (is_due(FILES, call, CALLER)) {                                                                             \
		errno = code;                                                                                          \
		return result;                                                                                         \
	}
#define FAIL_NET(call, code, result)                                                                                   \
	if (is_due(NET, call, CALLER)) {                                                                               \
		errno = code;                                                                                          \
		return result;                                                                                         \
	}
#define TAKE(call) (void)is_due(CLOSE, call, CALLER);
#define HALVE(call, size)                                                                                              \
	if (size > 1 && is_due(SHORT, call, CALLER))                                                                   \
		size /= 2;

/* ---- memory ---- */

MD_EXPORT void *malloc(size_t size)
{
	REAL(void *, "malloc", size_t)
	FAIL_MEMORY("malloc", NULL)
	return real(size);
}

/* The loader's own dlsym asks for memory at times, and is not to be asked for calloc then. */
MD_EXPORT void *calloc(size_t count, size_t size)
{
	static char first[4096];
	static size_t used;
	static _Thread_local bool looking
	    __attribute__((tls_model("initial-exec"))); /* another thread is not to get this */
	if (looking) {
		size_t taken = (count * size + 15) & ~(size_t)15,
		       at = __atomic_fetch_add(&used, taken, __ATOMIC_RELAXED);
		return at + taken <= sizeof(first) ? first + at : NULL;
	}
	looking = true;
	REAL(void *, "calloc", size_t, size_t)
	looking = false;
	FAIL_MEMORY("calloc", NULL)
	return real(count, size);
}

MD_EXPORT void *realloc(void *old, size_t size)
{
	REAL(void *, "realloc", void *, size_t)
	FAIL_MEMORY("realloc", NULL)
	return real(old, size);
}

MD_EXPORT char *strdup(const char *text)
{
	REAL(char *, "strdup", const char *)
	FAIL_MEMORY("strdup", NULL)
	return real(text);
}

MD_EXPORT char *strndup(const char *text, size_t size)
{
	REAL(char *, "strndup", const char *, size_t)
	FAIL_MEMORY("strndup", NULL)
	return real(text, size);
}

MD_EXPORT int vasprintf(char **out, const char *format, va_list args)
{
	REAL(int, "vasprintf", char **, const char *, va_list)
	FAIL_MEMORY("vasprintf", -1)
	return real(out, format, args);
}

MD_EXPORT int asprintf(char **out, const char *format, ...)
{
	REAL(int, "vasprintf", char **, const char *, va_list)
	FAIL_MEMORY("asprintf", -1)
	va_list args;
	va_start(args, format);
	int size = real(out, format, args);
	va_end(args);
	return size;
}

MD_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
	FAIL_MEMORY("pthread_create", EAGAIN)
	return real(thread, attributes, run, argument);
}

/* ---- threads ---- */

static atomic_bool joining;
static _Thread_local bool woken;

MD_EXPORT int pthread_join(pthread_t thread, void **result)
{
	REAL(int, "pthread_join", pthread_t, void **)
	if (what == JOIN && is_source(object_of(CALLER)))
		atomic_store(&joining, true);
	return real(thread, result);
}

MD_EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
	REAL(int, "pthread_cond_timedwait", pthread_cond_t *, pthread_mutex_t *, const struct timespec *)
	woken = what == JOIN && is_source(object_of(CALLER));
	return real(condition, mutex, until);
}

static bool is_late_thread(void)
{
	char name[16] = "";
	const char *late = getenv("INJECT_THREAD");
	return late && prctl(PR_GET_NAME, name) == 0 && !strcmp(name, late);
}

MD_EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	REAL(int, "pthread_mutex_unlock", pthread_mutex_t *)
	int result = real(mutex);
	if (woken && is_due(JOIN, "pthread_mutex_unlock", CALLER))
		while (!atomic_load(&joining))
			usleep(1000);
	if (what == LATE && is_late_thread() && is_due(LATE, "pthread_mutex_unlock", CALLER))
		usleep(200000);
	return result;
}

/* ---- files ---- */

MD_EXPORT int open(const char *path, int flags, ...)
{
	REAL(int, "open", const char *, int, ...)
	va_list args;
	va_start(args, flags);
	unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
	va_end(args);
	TAKE("open")
	FAIL_FILE("open", EMFILE, -1)
	return real(path, flags, mode);
}

MD_EXPORT int openat(int at, const char *path, int flags, ...)
{
	REAL(int, "openat", int, const char *, int, ...)
	va_list args;
	va_start(args, flags);
	unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
	va_end(args);
	FAIL_FILE("openat", EMFILE, -1)
	return real(at, path, flags, mode);
}

MD_EXPORT DIR *fdopendir(int fd)
{
	REAL(DIR *, "fdopendir", int)
	FAIL_FILE("fdopendir", ENOMEM, NULL)
	return real(fd);
}

MD_EXPORT int mkdirat(int at, const char *path, mode_t mode)
{
	REAL(int, "mkdirat", int, const char *, mode_t)
	FAIL_FILE("mkdirat", ENOSPC, -1)
	return real(at, path, mode);
}

MD_EXPORT int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	REAL(int, "renameat2", int, const char *, int, const char *, unsigned)
	FAIL_FILE("renameat2", ENOSPC, -1)
	return real(from_at, from, to_at, to, flags);
}

MD_EXPORT int unlinkat(int at, const char *path, int flags)
{
	REAL(int, "unlinkat", int, const char *, int)
	FAIL_FILE("unlinkat", EIO, -1)
	return real(at, path, flags);
}

MD_EXPORT int flock(int fd, int operation)
{
	REAL(int, "flock", int, int)
	FAIL_FILE("flock", ENOLCK, -1)
	return real(fd, operation);
}

MD_EXPORT int mkostemp(char *path, int flags)
{
	REAL(int, "mkostemp", char *, int)
	FAIL_FILE("mkostemp", EMFILE, -1)
	return real(path, flags);
}

MD_EXPORT FILE *fopen(const char *path, const char *mode)
{
	REAL(FILE *, "fopen", const char *, const char *)
	TAKE("fopen")
	FAIL_FILE("fopen", EMFILE, NULL)
	return real(path, mode);
}

MD_EXPORT FILE *fdopen(int fd, const char *mode)
{
	REAL(FILE *, "fdopen", int, const char *)
	FAIL_FILE("fdopen", ENOMEM, NULL)
	return real(fd, mode);
}

MD_EXPORT ssize_t read(int fd, void *out, size_t size)
{
	REAL(ssize_t, "read", int, void *, size_t)
	TAKE("read")
	FAIL_FILE("read", EIO, -1)
	HALVE("read", size)
	return real(fd, out, size);
}

MD_EXPORT ssize_t pread(int fd, void *out, size_t size, off_t at)
{
	REAL(ssize_t, "pread", int, void *, size_t, off_t)
	TAKE("pread")
	FAIL_FILE("pread", EIO, -1)
	HALVE("pread", size)
	return real(fd, out, size, at);
}

MD_EXPORT size_t fread(void *out, size_t size, size_t count, FILE *file)
{
	REAL(size_t, "fread", void *, size_t, size_t, FILE *)
	FAIL_FILE("fread", EIO, 0)
	return real(out, size, count, file);
}

MD_EXPORT char *fgets(char *out, int size, FILE *file)
{
	REAL(char *, "fgets", char *, int, FILE *)
	TAKE("fgets")
	FAIL_FILE("fgets", EIO, NULL)
	return real(out, size, file);
}

MD_EXPORT ssize_t getdelim(char **line, size_t *room, int end, FILE *file)
{
	REAL(ssize_t, "getdelim", char **, size_t *, int, FILE *)
	FAIL_FILE("getdelim", EIO, -1)
	return real(line, room, end, file);
}

/* What getline is compiled to. */
MD_EXPORT ssize_t __getdelim(char **line, size_t *room, int end, FILE *file);
MD_EXPORT ssize_t __getdelim(char **line, size_t *room, int end, FILE *file)
{
	REAL(ssize_t, "__getdelim", char **, size_t *, int, FILE *)
	FAIL_FILE("getline", EIO, -1)
	return real(line, room, end, file);
}

MD_EXPORT ssize_t write(int fd, const void *bytes, size_t size)
{
	REAL(ssize_t, "write", int, const void *, size_t)
	FAIL_FILE("write", ENOSPC, -1)
	HALVE("write", size)
	return real(fd, bytes, size);
}

MD_EXPORT size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file)
{
	REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *)
	FAIL_FILE("fwrite", ENOSPC, 0)
	return real(bytes, size, count, file);
}

MD_EXPORT int fputs(const char *text, FILE *file)
{
	REAL(int, "fputs", const char *, FILE *)
	FAIL_FILE("fputs", ENOSPC, EOF)
	return real(text, file);
}

MD_EXPORT int fprintf(FILE *file, const char *format, ...)
{
	FAIL_FILE("fprintf", ENOSPC, -1)
	va_list args;
	va_start(args, format);
	int size = vfprintf(file, format, args);
	va_end(args);
	return size;
}

MD_EXPORT int fflush(FILE *file)
{
	REAL(int, "fflush", FILE *)
	FAIL_FILE("fflush", ENOSPC, EOF)
	return real(file);
}

/* Closes it all the same, as close does when it reports that data was lost. */
MD_EXPORT int fclose(FILE *file)
{
	REAL(int, "fclose", FILE *)
	(void)(is_due(KILL, "fclose", CALLER) || is_due(STOP, "fclose", CALLER));
	bool fails = is_due(FILES, "fclose", CALLER);
	int result = real(file);
	if (fails)
		errno = ENOSPC;
	return fails ? EOF : result;
}

MD_EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	REAL(void *, "mmap", void *, size_t, int, int, int, off_t)
	FAIL_FILE("mmap", ENOMEM, MAP_FAILED)
	return real(at, size, protection, flags, fd, offset);
}

MD_EXPORT int fstat(int fd, struct stat *info)
{
	REAL(int, "fstat", int, struct stat *)
	TAKE("fstat")
	FAIL_FILE("fstat", EIO, -1)
	return real(fd, info);
}

MD_EXPORT int fsync(int fd)
{
	REAL(int, "fsync", int)
	TAKE("fsync")
	FAIL_FILE("fsync", EIO, -1)
	return real(fd);
}

MD_EXPORT int rename(const char *from, const char *to)
{
	REAL(int, "rename", const char *, const char *)
	TAKE("rename")
	FAIL_FILE("rename", EIO, -1)
	return real(from, to);
}

MD_EXPORT char *realpath(const char *path, char *out)
{
	REAL(char *, "realpath", const char *, char *)
	FAIL_FILE("realpath", EACCES, NULL)
	return real(path, out);
}

MD_EXPORT ssize_t readlink(const char *path, char *out, size_t size)
{
	REAL(ssize_t, "readlink", const char *, char *, size_t)
	FAIL_FILE("readlink", EACCES, -1)
	return real(path, out, size);
}

/* ---- connections, pipes, processes ---- */

MD_EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	REAL(int, "accept4", int, struct sockaddr *, socklen_t *, int)
	FAIL_NET("accept4", EMFILE, -1)
	return real(fd, address, size, flags);
}

MD_EXPORT int socket(int domain, int type, int protocol)
{
	REAL(int, "socket", int, int, int)
	FAIL_NET("socket", EMFILE, -1)
	return real(domain, type, protocol);
}

MD_EXPORT int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	REAL(int, "connect", int, const struct sockaddr *, socklen_t)
	FAIL_NET("connect", ENETUNREACH, -1)
	return real(fd, address, size);
}

MD_EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	REAL(int, "epoll_ctl", int, int, int, struct epoll_event *)
	if (operation == EPOLL_CTL_ADD) {
		FAIL_NET("epoll_ctl", ENOSPC, -1)
	}
	return real(epoll, operation, fd, event);
}

MD_EXPORT int pipe2(int ends[2], int flags)
{
	REAL(int, "pipe2", int *, int)
	FAIL_NET("pipe2", EMFILE, -1)
	return real(ends, flags);
}

MD_EXPORT int eventfd(unsigned count, int flags)
{
	REAL(int, "eventfd", unsigned, int)
	FAIL_NET("eventfd", EMFILE, -1)
	return real(count, flags);
}

MD_EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
	REAL(ssize_t, "readv", int, const struct iovec *, int)
	FAIL_NET("readv", ECONNRESET, -1)
	return real(fd, parts, count);
}

MD_EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	REAL(ssize_t, "writev", int, const struct iovec *, int)
	FAIL_NET("writev", EPIPE, -1)
	return real(fd, parts, count);
}

MD_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])
{
	REAL(int, "posix_spawnp", pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
	     char *const *, char *const *)
	FAIL_NET("posix_spawnp", EAGAIN, EAGAIN)
	return real(pid, file, actions, attributes, argv, environment);
}
