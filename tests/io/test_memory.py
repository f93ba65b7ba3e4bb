"""Memory that is left: of the machine, or of the container."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from density_regression.io.memory import available_memory


def test_without_a_container_it_is_that_of_the_machine(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


@pytest.mark.parametrize(
    ("folder", "limit", "used", "cache"),
    [
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_container_has_its_own(tmp_path: Path, folder: str, limit: str, used: str, cache: str) -> None:
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    for name, text in ((limit, "9000000\n"), (used, "4000000\n"), ("memory.stat", f"cache 7\n{cache} 1000000\n")):
        (place / name).write_text(text)
    assert available_memory(tmp_path) == 6_000_000
    (place / used).write_text("99000000\n")
    assert available_memory(tmp_path) == 0
    (place / limit).write_text("max\n")
    assert available_memory(tmp_path) > 6_000_000
