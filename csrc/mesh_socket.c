/* Where a rank listens; whether the other end of a socket is alive, and whose it is.
 *
 * A machine that answers nothing for LIO_MESH_ANSWER_SECONDS is lost. The kernel probes connections of
 * TCP that are idle; where something is to be acknowledged, the thread asks lio_mesh_is_silent. No
 * limit of the kernel will do there: TCP_USER_TIMEOUT also ends those whose receiver is full, but
 * answers. Of a full receiver the kernel probes ever more rarely: every PROBE_AFTER_SECONDS from Linux
 * 6.15 on, and every two minutes before. There the connection the other way, by which nothing is written,
 * tells of its machine's end: a rank connects back to one that it hears.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mesh_part.h"

enum { PROBE_AFTER_SECONDS = 10, PROBE_EACH_SECONDS = 5 };
enum { PROBES = (LIO_MESH_ANSWER_SECONDS - PROBE_AFTER_SECONDS) / PROBE_EACH_SECONDS };
enum { CONNECT_RETRIES = 4 }; /* after 1, 2, 4 ... s, each: lost after about 30 s */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value,
                     sizeof value); /* where it fails, the default holds */
}

/* TCP finds out how much to have under way. A Unix socket holds 208 KiB by default: both ends are then
 * woken nine times as often, and rows travel at 0.8 of the rate. With 2 MiB and more they leave the cache. */
void lio_mesh_widen(int fd)
{
    set_option(fd, SOL_SOCKET, SO_SNDBUF, LIO_MESSAGE_BYTES);
}

unsigned lio_mesh_address(const lio_link *link, struct sockaddr_storage *out)
{
    static const uint8_t MAPPED[12] = {[10] = 0xff, [11] = 0xff}; /* before an address of IPv4 */
    struct sockaddr_in6 far = {.sin6_family = AF_INET6, .sin6_port = htons(link->port)};
    struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = htons(link->port)};
    bool is_old = memcmp(link->host, MAPPED, sizeof MAPPED) == 0;
    memcpy(&far.sin6_addr, link->host, sizeof far.sin6_addr);
    memcpy(&old.sin_addr, link->host + sizeof MAPPED, sizeof old.sin_addr);
    *out = (struct sockaddr_storage){0};
    memcpy(out, is_old ? (void *)&old : (void *)&far, is_old ? sizeof old : sizeof far);
    return is_old ? sizeof old : sizeof far;
}

void lio_mesh_keep_alive(int fd, bool writes_little)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_SECONDS);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EACH_SECONDS);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, PROBE_AFTER_SECONDS * 1000);
    set_option(fd, IPPROTO_TCP, TCP_SYNCNT, CONNECT_RETRIES);
    if (writes_little)
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, LIO_MESH_ANSWER_SECONDS * 1000);
}

bool lio_mesh_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool lio_mesh_is_silent(int fd, uint64_t since_ms)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    uint32_t heard_ms = info.tcpi_last_ack_recv < info.tcpi_last_data_recv
                            ? info.tcpi_last_ack_recv
                            : info.tcpi_last_data_recv;
    bool is_due = info.tcpi_probes > 0 ||
                  (info.tcpi_unacked > 0 && info.tcpi_last_data_sent < heard_ms);
    return is_due && heard_ms >= since_ms;
}
