"""The network: no family but local sockets, no link but one that is down, no name, no service."""
from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.errors import LaunchFailed
from supervisor.sandbox.launch import link_up
from support.attempts import attempt, jail, needs_sandbox

pytestmark = [pytest.mark.kernel, needs_sandbox]


async def test_every_other_family_is_unsupported() -> None:
    families = "2 10 16 17 38 40 44 21 29 31"
    async with jail() as box:
        script = f"for f in {families}; do for t in 1 2 3; do sock $f $t 0; done; done | sort -u"
        assert await attempt(box, script) == "EAFNOSUPPORT"
        said = await attempt(box, "for p in 0 4 9 12 15 16 21; do sock 16 3 $p; done | sort -u; sock 2 3 1; sock 2 2 1")
        assert said.split() == ["EAFNOSUPPORT"] * 3
        assert await attempt(box, "sock 1 1 0; sock 1 2 0") == "OPENED\nOPENED"


async def test_the_only_link_is_down_and_there_is_no_route() -> None:
    async with jail() as box:
        script = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l"
        assert await attempt(box, script) == "lo\n0"


async def test_names_fail_at_once() -> None:
    async with jail() as box:
        said = await attempt(box, "need getent timeout; timeout 2 getent hosts example.com; echo $?")
        assert said == "2"
        assert await attempt(box, "ls /run/systemd/resolve /var/run/nscd /var/lib/sss 2>&1 | grep -c 'No such'") == "3"


async def test_a_listener_of_the_host_hears_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        async with jail() as box:
            connect = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&1"
            said = await attempt(box, f"{connect} | grep -oE 'not supported|refused|unreachable' | sort -u")
        assert said == "not supported"
        with pytest.raises(TimeoutError):
            server.accept()


async def test_abstract_sockets_are_the_sandboxes_own() -> None:
    name = "\0lemni-test-abstract"
    listen = "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0lemni-test-abstract'); s.listen(); time.sleep(20)"
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0lemni-test-abstract')"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(name)
        outside.listen()
        async with jail() as one, jail() as two:
            await attempt(one, f'python3 -I -S -c "{listen}" >/dev/null 2>&1 & sleep 0.3')
            for box in (one, two):
                said = await attempt(box, f'python3 -I -S -c "{connect}" 2>&1 | tail -1')
                expected = "" if box is one else "refused"
                assert expected in said
                assert (said == "") is (box is one)


def test_the_outside_view_agrees_with_pyroute2() -> None:
    script = (
        f"import socket, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from pyroute2 import IPRoute\n"
        "from supervisor.sandbox.launch import link_up\n"
        "def ours(allowed=None):\n"
        "    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as opened: return link_up(opened.fileno(), allowed)\n"
        "with IPRoute() as route:\n"
        "    def theirs(): return sorted(x.get_attr('IFLA_IFNAME') for x in route.get_links() if x['flags'] & 1)\n"
        "    assert (ours(), theirs()) == (None, [])\n"
        "    route.link('set', index=1, state='up')\n"
        "    assert (ours(), theirs(), ours('lo'), ours('l')) == ('lo', ['lo'], None, 'lo')\n"
        "    route.link('set', index=1, state='down')\n"
        "    for n in range(60): route.link('add', ifname=f'fifteen-bytes{n:02}', kind='bridge')\n"  # several messages
        "    assert (ours(), theirs()) == (None, [])\n"
        "    last = route.link_lookup(ifname='fifteen-bytes59')[0]\n"
        "    route.link('set', index=last, state='up')\n"
        "    assert (ours(), theirs(), ours('lo')) == ('fifteen-bytes59', ['fifteen-bytes59'], 'fifteen-bytes59')\n"
    )
    done = subprocess.run(["unshare", "-rn", sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if "Operation not supported" in done.stderr:
        pytest.skip("the kernel has no bridges")
    assert done.returncode == 0, done.stderr


def test_what_is_no_netlink_socket_answers_nothing_and_is_an_error() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        errors = [struct.pack("=IHHIIi", 20, 2, 0, 1, 0, code) for code in (0, 5)]
        for answer in (b"", b"x", b"\0" * 40, struct.pack("=IHHII", 17, 3, 0, 1, 0), *errors):
            theirs.send(answer)
            theirs.send(b"")  # no more to be waited for
            with pytest.raises(LaunchFailed):
                link_up(ours.fileno())
    with pytest.raises(LaunchFailed):
        link_up(-1)
