"""Messages: everything that crosses the socket, as frozen typed structures.

One MessagePack map in one ZeroMQ frame, `{"t": type, ...fields}`. `codec` validates each
frame before any other code sees the message. The modules are named for the peer that
exchanges their messages with hetd. Clients, launchers, workers and hetd import all of
them from this package, which imports none of its users.
"""

# Every public name of these modules is exported, so that no list repeats them.
from libtask.messages.base import *
from libtask.messages.client import *
from libtask.messages.codec import *
from libtask.messages.handshake import *
from libtask.messages.limits import *
from libtask.messages.records import *
from libtask.messages.worker import *
