"""An event loop in a thread of its own, for clients whose programs have none."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

Returned = TypeVar("Returned")


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in this thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """Whether it runs: a process that was forked off does not have it."""
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, Returned]) -> Future[Returned]:
        """Start a coroutine; return its future for other threads."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the loop, soon."""
        self.loop.call_soon_threadsafe(work, *arguments)

    def wait(
        self, work: Coroutine[Any, Any, Returned], timeout: float | None = None
    ) -> Returned:
        """Run a coroutine and wait for its result.

        Raises:
            RuntimeError: called from this very thread, which would wait for ever.

        """
        if self.is_current:
            work.close()
            raise RuntimeError("a callback of a task cannot ask the pool and wait")
        return self.start(work).result(timeout)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self.loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
