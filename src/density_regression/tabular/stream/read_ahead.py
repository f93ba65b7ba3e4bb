"""What an iterator gives, prepared in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final, TypeVar, cast

__all__ = ["read_ahead"]

T = TypeVar("T")

PATIENCE: Final = 0.1
"""Seconds after which a thread that waits looks whether anybody still reads."""

END: Final = object()


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """The items of an iterator; the next one is made in a thread while one is used, and one more may wait.

    Errors are raised where the item would have been. The thread ends with the generator.
    """
    made: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(maxsize=1)
    left = threading.Event()

    def put(item: object, error: BaseException | None = None) -> None:
        while not left.is_set():
            with suppress(queue.Full):
                made.put((item, error), timeout=PATIENCE)
                return

    def make() -> None:
        try:
            for item in items:
                put(item)
                if left.is_set():
                    return
            put(END)
        except BaseException as error:
            put(END, error)

    thread = threading.Thread(target=make, name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is END:
                return
            yield cast(T, item)
            # Before the next one is waited for, or three would be in memory.
            del item
    finally:
        left.set()
        thread.join()
