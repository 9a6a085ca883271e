/* SPDX-License-Identifier: Apache-2.0 */
#include "http/trust.h"

#include <arpa/inet.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* OpenSSL's types under names of our own, so that nobody else needs its headers. */
static SSL_CTX *context_of(struct md_http_trust *trust)
{
	return (SSL_CTX *)trust;
}

/* ---- files ---- */

static const char *tls_reason(unsigned long code)
{
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	if (ERR_SYSTEM_ERROR(code))
		return strerror(ERR_GET_REASON(code));
	return reason ? reason : "for a reason that OpenSSL does not name";
}

static bool is_given(const char *path)
{
	return path && *path;
}

static enum md_status refuse_file(const char *what, const char *path, struct md_error *err)
{
	return md_error_set(err, MD_ERR_IO, "TLS: %s %.200s: %s", what, path, tls_reason(ERR_get_error()));
}

/* Nobody is there to be asked: a key with a pass phrase can't be read. */
static int no_pass_phrase(char *room, int size, int writes, void *context)
{
	(void)room, (void)size, (void)writes, (void)context;
	return -1;
}

static enum md_status load_files(SSL_CTX *tls, const struct md_http_trust_files *files, struct md_error *err)
{
	const char *key = is_given(files->key) ? files->key : files->certificate;
	ERR_clear_error();
	SSL_CTX_set_default_passwd_cb(tls, no_pass_phrase);
	if (is_given(files->ca) && !SSL_CTX_load_verify_locations(tls, files->ca, NULL))
		return refuse_file("the certificates that are trusted,", files->ca, err);
	if (!is_given(files->certificate))
		return MD_OK;
	if (SSL_CTX_use_certificate_chain_file(tls, files->certificate) != 1)
		return refuse_file("the certificate", files->certificate, err);
	if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1 || !SSL_CTX_check_private_key(tls))
		return refuse_file("the key", key, err);
	return MD_OK;
}

static enum md_status create(const SSL_METHOD *method, const struct md_http_trust_files *files,
			     struct md_http_trust **made, struct md_error *err)
{
	SSL_CTX *tls = SSL_CTX_new(method);
	enum md_status status = MD_OK;
	if (!tls)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for TLS");
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	if (!SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) ||
	    (!is_given(files->ca) && !SSL_CTX_set_default_verify_paths(tls)))
		status = md_error_set(err, MD_ERR_IO, "TLS: the certificates that are trusted: %s",
				      tls_reason(ERR_get_error()));
	if (status == MD_OK)
		status = load_files(tls, files, err);
	if (status == MD_OK)
		*made = (struct md_http_trust *)tls;
	else
		SSL_CTX_free(tls);
	return status;
}

enum md_status md_http_trust_create(const struct md_http_trust_files *files, struct md_http_trust **made,
				    struct md_error *err)
{
	static const struct md_http_trust_files none;
	return create(TLS_client_method(), files ? files : &none, made, err);
}

/* Sessions are not taken up again: each connection shows its certificate, which may have expired since the last one. */
enum md_status md_http_trust_serve(const struct md_http_trust_files *files, struct md_http_trust **made,
				   struct md_error *err)
{
	if (!is_given(files->ca) || !is_given(files->certificate))
		return md_error_set(err, MD_ERR_INVALID, "TLS: a listener needs a certificate, and who is trusted");
	MD_FORWARD(create(TLS_server_method(), files, made, err));
	SSL_CTX *tls = context_of(*made);
	SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(tls, 0);
	SSL_CTX_set_client_CA_list(tls, SSL_load_client_CA_file(files->ca));
	return MD_OK;
}

void md_http_trust_destroy(struct md_http_trust *trust)
{
	SSL_CTX_free(context_of(trust));
}

/* ---- what certificates say ---- */

static int64_t expiry_of(const X509 *certificate)
{
	struct tm at = {0};
	return ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &at) ? timegm(&at) : 0;
}

enum md_status md_http_trust_expiry(const char *path, bool any, int64_t *expires, struct md_error *err)
{
	ERR_clear_error();
	BIO *file = BIO_new_file(path, "r");
	X509 *one = NULL;
	bool found = false;
	*expires = 0;
	while (file && (!found || any) && (one = PEM_read_bio_X509(file, NULL, no_pass_phrase, NULL))) {
		int64_t at = expiry_of(one);
		*expires = !found || at > *expires ? at : *expires;
		found = true;
		X509_free(one);
	}
	enum md_status status = found ? MD_OK : refuse_file("the certificate", path, err);
	ERR_clear_error();
	BIO_free(file);
	return status;
}

bool md_http_certificate_names(const struct md_http_certificate *certificate, const char *name)
{
	GENERAL_NAMES *names = X509_get_ext_d2i((const X509 *)certificate, NID_subject_alt_name, NULL, NULL);
	size_t size = strlen(name);
	bool found = false;
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);
		if (one->type == GEN_DNS && (size_t)ASN1_STRING_length(one->d.dNSName) == size)
			found = found || !memcmp(ASN1_STRING_get0_data(one->d.dNSName), name, size);
	}
	GENERAL_NAMES_free(names);
	return found;
}

bool md_http_trust_names(const struct md_http_trust *trust, const char *name)
{
	const X509 *own = SSL_CTX_get0_certificate((const SSL_CTX *)trust);
	return own && md_http_certificate_names((const struct md_http_certificate *)own, name);
}

/* ---- wires ---- */

static bool is_address(const char *host)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* Whose certificate is wanted; a server of several names is told which one is meant. */
static bool expect_host(SSL *tls, const char *host)
{
	if (is_address(host))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1;
	return SSL_set1_host(tls, host) == 1 && SSL_set_tlsext_host_name(tls, host) == 1;
}

static bool expect_name(SSL *tls, const char *name)
{
	SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	return X509_VERIFY_PARAM_set1_host(SSL_get0_param(tls), name, 0) == 1;
}

struct bufferevent *md_http_trust_call(struct md_http_trust *trust, struct event_base *base, const char *host,
				       const char *name)
{
	SSL *tls = SSL_new(context_of(trust));
	if (!tls || !(name ? expect_name(tls, name) : expect_host(tls, host))) {
		SSL_free(tls);
		return NULL;
	}
	return bufferevent_openssl_socket_new(base, -1, tls, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
}

static struct bufferevent *accept_wire(struct md_http_trust *trust, struct event_base *base, int fd)
{
	SSL *tls = SSL_new(context_of(trust));
	struct bufferevent *wire =
	    tls ? bufferevent_openssl_socket_new(base, fd, tls, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
		: NULL;
	if (!wire) {
		SSL_free(tls);
		close(fd);
	}
	return wire;
}

/* What to do about it, behind what OpenSSL calls it. */
static const char *advice(long verified)
{
	switch (verified) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return "; it must be renewed, unless a clock is wrong";
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
		return "; its authority is none that is trusted here";
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "; it is for others";
	default:
		return "";
	}
}

void md_http_trust_explain(struct bufferevent *wire, char *why, size_t size)
{
	SSL *tls = bufferevent_openssl_get_ssl(wire);
	unsigned long code = bufferevent_get_openssl_error(wire);
	long verified = SSL_get_verify_result(tls);
	if (verified != X509_V_OK)
		snprintf(why, size, "its certificate: %s%s", X509_verify_cert_error_string(verified), advice(verified));
	else if (code && code != SSL_ERROR_SYSCALL) /* which libevent says instead of the system's reason */
		snprintf(why, size, "TLS: %s", tls_reason(code));
}

/* OpenSSL reads on after a write that has failed, but where TLS itself has. */
ssize_t md_http_trust_read(struct bufferevent *wire, char *bytes, size_t size)
{
	SSL *tls = bufferevent_openssl_get_ssl(wire);
	ERR_clear_error();
	int got = SSL_read(tls, bytes, (int)size);
	bool closed = got <= 0 && SSL_get_error(tls, got) == SSL_ERROR_ZERO_RETURN;
	ERR_clear_error();
	return got > 0 ? got : closed ? 0 : -1;
}

static const struct md_http_certificate *certificate_of(struct bufferevent *wire)
{
	return (const struct md_http_certificate *)SSL_get0_peer_certificate(bufferevent_openssl_get_ssl(wire));
}

static void close_wire(struct bufferevent *wire)
{
	ERR_clear_error();
	SSL_shutdown(bufferevent_openssl_get_ssl(wire));
	ERR_clear_error();
}

const struct md_http_trust_ops md_http_trust_ops = {.accept = accept_wire,
						    .certificate = certificate_of,
						    .explain = md_http_trust_explain,
						    .close = close_wire,
						    .destroy = md_http_trust_destroy};
