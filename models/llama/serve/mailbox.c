/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists under one lock; the engine's thread waits for a condition, the HTTP thread for a descriptor. */
#include "models/llama/serve/mailbox.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum md_status serve_mailbox_init(struct serve_mailbox *mailbox, struct md_error *err)
{
	memset(mailbox, 0, sizeof(*mailbox));
	mailbox->fd = -1;
	mailbox->arrived_end = &mailbox->arrived;
	mailbox->news_end = &mailbox->news;
	pthread_mutex_init(&mailbox->lock, NULL);
	pthread_cond_init(&mailbox->wake, NULL);
	mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return mailbox->fd >= 0 ? MD_OK : md_error_set(err, MD_ERR_IO, "eventfd: %s", strerror(errno));
}

void serve_mailbox_finish(struct serve_mailbox *mailbox)
{
	if (mailbox->fd >= 0)
		close(mailbox->fd);
	pthread_cond_destroy(&mailbox->wake);
	pthread_mutex_destroy(&mailbox->lock);
}

void serve_mailbox_submit(struct serve_mailbox *mailbox, struct serve_request *request)
{
	pthread_mutex_lock(&mailbox->lock);
	request->next_arrived = NULL;
	*mailbox->arrived_end = request;
	mailbox->arrived_end = &request->next_arrived;
	pthread_cond_signal(&mailbox->wake);
	pthread_mutex_unlock(&mailbox->lock);
}

void serve_mailbox_poke(struct serve_mailbox *mailbox)
{
	pthread_mutex_lock(&mailbox->lock);
	mailbox->poked = true;
	pthread_cond_signal(&mailbox->wake);
	pthread_mutex_unlock(&mailbox->lock);
}

void serve_mailbox_stop(struct serve_mailbox *mailbox)
{
	pthread_mutex_lock(&mailbox->lock);
	mailbox->stopped = true;
	pthread_cond_signal(&mailbox->wake);
	pthread_mutex_unlock(&mailbox->lock);
}

bool serve_mailbox_hear(struct serve_mailbox *mailbox, struct serve_request **request, size_t *told,
			enum serve_finish *finish)
{
	pthread_mutex_lock(&mailbox->lock);
	struct serve_request *first = mailbox->news;
	if (first) {
		mailbox->news = first->next_news;
		if (!mailbox->news)
			mailbox->news_end = &mailbox->news;
		first->in_news = false;
		*request = first;
		*told = first->told;
		*finish = first->finish;
	}
	pthread_mutex_unlock(&mailbox->lock);
	return first != NULL;
}

struct serve_request *serve_mailbox_take(struct serve_mailbox *mailbox, bool wait, bool *stopped)
{
	pthread_mutex_lock(&mailbox->lock);
	while (wait && !mailbox->arrived && !mailbox->poked && !mailbox->stopped)
		pthread_cond_wait(&mailbox->wake, &mailbox->lock);
	struct serve_request *arrived = mailbox->arrived;
	mailbox->arrived = NULL;
	mailbox->arrived_end = &mailbox->arrived;
	mailbox->poked = false;
	*stopped = mailbox->stopped;
	pthread_mutex_unlock(&mailbox->lock);
	return arrived;
}

static void ring(const struct serve_mailbox *mailbox)
{
	uint64_t one = 1;
	/* a counter that is full rings as well */
	if (write(mailbox->fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
}

void serve_mailbox_tell(struct serve_mailbox *mailbox, struct serve_request *request, size_t made,
			enum serve_finish finish)
{
	pthread_mutex_lock(&mailbox->lock);
	bool first = !mailbox->news;
	request->told = made;
	request->finish = finish;
	if (!request->in_news) {
		request->in_news = true;
		request->next_news = NULL;
		*mailbox->news_end = request;
		mailbox->news_end = &request->next_news;
	}
	pthread_mutex_unlock(&mailbox->lock);
	if (first)
		ring(mailbox);
}
