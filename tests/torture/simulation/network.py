"""The network: connections between the daemon and its peers, frame by frame.

As with ZeroMQ over a local socket: on one connection frames stay in order, and none
comes twice; between connections there is no order. When an end dies, what it sent last
may be lost, what it sent before arrives. What is sent before the daemon listens waits,
and comes when it does, however late.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hetd.transport.router import BATCH, Envelope, Peer, Router
from libtask import messages as m
from libtask.errors import InputError
from torture.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.messages import Message
    from torture.simulation.processes import Process
    from torture.simulation.world import World

KNOCKING = 100 * MILLISECOND
"""Between two attempts to reach a daemon that does not listen."""


class Connection:
    """One connection of a process to the daemon.

    Args:
        heard: called with no argument when frames have come, or the daemon went away.

    Attributes:
        arrived: frames from the daemon that the process has not read.
        lost: the daemon went away; what had arrived before can still be read.

    """

    def __init__(
        self, network: Network, process: Process, heard: Callable[[], None]
    ) -> None:
        self.process = process
        self.network = network
        self.arrived: deque[bytes] = deque()
        self.lost = False
        self.closed = False
        self.route = b""
        self.router: SimulatedRouter | None = None
        self._heard = heard
        self._waiting: list[bytes] = []
        self._up_at = self._down_at = 0
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()
        network.world.after(network.delay(), self._knock)
        process.on_end.append(self._owner_died)

    def send(self, frame: bytes) -> None:
        """Send to the daemon, at once or when it listens."""
        if self.closed or self.lost:
            return
        if self.router is None:
            self._waiting.append(frame)
        else:
            self._lift(frame)

    def close(self) -> None:
        """Close in peace: what was sent arrives, if there is a daemon."""
        if not self.closed:
            self.closed = True
            self._hang_up(self._up_at)

    def drop(self) -> None:
        """Close at once: what is still on its way to the daemon is lost."""
        self._up.clear()
        self.close()

    # ------------------------------------------------------------ to the daemon

    def _knock(self) -> None:
        if self.closed:
            return
        if self.network.router is None or self.process.stopped:
            self.network.world.after(KNOCKING, self._knock)
            return
        self.router = self.network.router
        self.route = self.router.accept(self)
        for frame in self._waiting:
            self._lift(frame)
        self._waiting.clear()

    def _lift(self, frame: bytes) -> None:
        world = self.network.world
        self._up_at = max(self._up_at, world.now + self.network.delay())
        self._up.append(frame)
        world.after(self._up_at - world.now, self._arrive, self.router)

    def _arrive(self, router: SimulatedRouter) -> None:
        if self._up and self.router is router:
            router.take(self, self._up.popleft())

    def _owner_died(self, _status: int) -> None:
        """Lose what the process had not handed to the kernel yet."""
        if self.closed:
            return
        for _ in range(self.network.lost_of(len(self._up))):
            self._up.pop()
        self.arrived.clear()
        self.close()

    def _hang_up(self, at: int) -> None:
        if self.router is not None:
            world = self.network.world
            delay = max(at - world.now, 0) + self.network.delay()
            world.after(delay, self.router.forget, self.route)

    # ------------------------------------------------------------ from the daemon

    def deliver(self, frames: list[bytes]) -> None:
        """Take frames of the daemon to the process, all at one instant."""
        world = self.network.world
        self._down_at = max(self._down_at, world.now + self.network.delay())
        for frame in frames:
            self._down.append(frame)
            world.after(self._down_at - world.now, self._come)

    def _come(self) -> None:
        if self._down and not self.closed and not self.lost:
            self.arrived.append(self._down.popleft())
            self._tell()

    def _tell(self) -> None:
        self.process.after(self.network.reaction(), self._hear)

    def _hear(self) -> None:
        if not self.closed:
            self._heard()

    def break_off(self, *, losing: bool) -> None:
        """Let the daemon's end be gone.

        Args:
            losing: what it sent last may be lost.

        """
        if losing:
            for _ in range(self.network.lost_of(len(self._down))):
                self._down.pop()
        self.router = None
        self._up.clear()
        delay = max(self._down_at - self.network.world.now, 0) + self.network.delay()
        self.network.world.after(delay, self._notice)

    def _notice(self) -> None:
        if not self.closed:
            self.lost = True
            self._tell()


class Network:
    """The socket on which the daemon may listen.

    Attributes:
        slowness: longest delay of a frame, seconds.

    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.router: SimulatedRouter | None = None
        self.slowness = 0.001

    def delay(self) -> int:
        return self.world.some(20e-6, self.slowness)

    def reaction(self) -> int:
        """Between the arrival of frames and their reading."""
        return self.world.some(5e-6, 50e-6)

    def lost_of(self, frames: int) -> int:
        """Draw how many of the frames sent last are lost with their sender."""
        return self.world.chance.randint(0, frames) if frames else 0


class SimulatedRouter(Router):
    """The daemon's end of all connections.

    Args:
        wake: called when something has arrived.
        burn: called at each step of the daemon; it may crash there.

    """

    def __init__(
        self, network: Network, wake: Callable[[], None], burn: Callable[[str], None]
    ) -> None:
        # not as a socket: what `Router` opens is not there
        self._network = network
        self._wake = wake
        self._burn = burn
        self._inbox: deque[Envelope] = deque()
        self._connections: dict[bytes, Connection] = {}
        self._early = []
        self.dropped = 0
        self.full = set()
        self.bugs: list[str] = []
        """Errors that the daemon reported as its own bugs."""

    @property
    def strained(self) -> bool:
        return False

    # ------------------------------------------------------------ what the daemon does

    def receive(self, is_put_off: Callable[[int], bool] = bool) -> Iterator[Envelope]:
        del is_put_off
        self._burn("receive")
        for _ in range(min(BATCH, len(self._inbox))):
            yield self._inbox.popleft()

    def waiting(self) -> bool:
        return bool(self._inbox)

    def send(self, route: bytes, *messages: Message) -> bool:
        self._burn("send")
        connection = self._connections.get(route)
        if connection is None:
            for message in messages:
                self._network.world.note("hetd", "→ nobody", *told(message))
            self.dropped += 1
            return False
        for message in messages:
            self._note(connection, message)
        connection.deliver([m.encode(message) for message in messages])
        return True

    def close(self) -> None:
        self._end(losing=False)

    # ------------------------------------------------------------ what the world does

    def accept(self, connection: Connection) -> bytes:
        """Take a new connection; return its route, which nobody can foretell."""
        route = b"\0" + self._network.world.chance.randbytes(4)
        self._connections[route] = connection
        return route

    def take(self, connection: Connection, frame: bytes) -> None:
        """Take a frame that has arrived."""
        process = connection.process
        peer = Peer(connection.route, process.uid, process.pid)
        try:
            self._inbox.append(Envelope(peer, m.decode_to_daemon(frame)))
        except InputError as error:
            self._inbox.append(Envelope(peer, error))
        self._wake()

    def forget(self, route: bytes) -> None:
        """Notice that a peer has closed."""
        self._connections.pop(route, None)

    def break_one(self, connection: Connection) -> None:
        """Lose a connection while both ends live."""
        if self._connections.pop(connection.route, None) is not None:
            connection.break_off(losing=True)

    def crash(self) -> None:
        """End as the daemon does when it is killed."""
        self._end(losing=True)

    def connections(self) -> list[Connection]:
        return list(self._connections.values())

    def _end(self, *, losing: bool) -> None:
        if self._network.router is self:
            self._network.router = None
        for connection in self._connections.values():
            connection.break_off(losing=losing)
        self._connections.clear()
        self._inbox.clear()

    def _note(self, connection: Connection, message: Message) -> None:
        world, name = self._network.world, connection.process.name
        world.note("hetd", f"→ {name}", *told(message))
        if isinstance(message, m.Error) and message.code == "bug":
            self.bugs.append(f"{name}: {message.text}")


def told(message: Message) -> tuple[object, ...]:
    """Return what the trace says of a message."""
    fields = ("task", "id", "ids", "epoch", "state", "what", "name", "names", "text")
    known = [(name, getattr(message, name, None)) for name in fields]
    words = [f"{name}={value}" for name, value in known if value not in (None, "")]
    return (type(message).__name__, *words)
