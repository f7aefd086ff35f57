/*
 * Is a link of a network namespace up? Asked through a netlink socket that was opened inside it: one RTM_GETLINK dump, which the
 * kernel answers within the call. See rtnetlink(7).
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

static int name_of(const struct nlmsghdr *message, char name[LEMNI_LINK_NAME]) {
    const struct ifinfomsg *link = NLMSG_DATA(message);
    int left = (int)IFLA_PAYLOAD(message);
    memset(name, 0, LEMNI_LINK_NAME);
    for (const struct rtattr *a = IFLA_RTA(link); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == IFLA_IFNAME) {
            size_t length = RTA_PAYLOAD(a) < LEMNI_LINK_NAME - 1 ? RTA_PAYLOAD(a) : LEMNI_LINK_NAME - 1;
            memcpy(name, RTA_DATA(a), length);
        }
    }
    return 1;
}

/*
 * 1: a link is up, and ``name`` is its name; 0: none is, but ``allowed``, or NULL, which may be; -errno: the kernel, or a
 * descriptor that is no netlink socket, said something else.
 */
int lemni_link_up(int netlink, const char *allowed, char *name) {
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } question = {{sizeof question, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {0}};
    union {
        struct nlmsghdr head;
        char bytes[16384]; /* a dump comes in messages of at most this size (rtnetlink's NLMSG_GOODSIZE is smaller) */
    } answer;
    struct timeval second = {1, 0}; /* for a descriptor that is none of the kernel's */
    if (setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second) < 0 ||
        send(netlink, &question, sizeof question, 0) < 0) {
        return -errno;
    }
    for (;;) {
        ssize_t got = recv(netlink, &answer, sizeof answer, MSG_TRUNC);
        if (got < 0) {
            return -errno;
        }
        if (got == 0 || (size_t)got > sizeof answer) {
            return -EPROTO;
        }
        size_t left = (size_t)got;
        for (const struct nlmsghdr *m = &answer.head; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_DONE) {
                return 0;
            }
            if (m->nlmsg_type == NLMSG_ERROR) {
                const struct nlmsgerr *error = NLMSG_DATA(m);
                return m->nlmsg_len < NLMSG_LENGTH(sizeof *error) || error->error >= 0 ? -EPROTO : error->error;
            }
            const struct ifinfomsg *link = NLMSG_DATA(m);
            if (m->nlmsg_type == RTM_NEWLINK && m->nlmsg_len >= NLMSG_LENGTH(sizeof *link) && link->ifi_flags & IFF_UP &&
                name_of(m, name) && (allowed == NULL || strcmp(name, allowed) != 0)) {
                return 1;
            }
        }
    }
}
