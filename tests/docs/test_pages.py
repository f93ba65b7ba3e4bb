"""Every code block of README, CONTRIBUTING and the site runs, in the order of its page, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.blocks import blocks, name, pages
from docs.running import run_page

WITH_CODE = [page for page in pages() if re.search(r"^\s*```|^ {4}\S|<!--+ hidden:", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_page(page, monkeypatch)
    print(f"{name(page)}: " + ", ".join(f"{count} {what}" for what, count in sorted(done.items())))
    found = blocks(page.read_text(encoding="utf-8"))
    assert done.total() == sum(len(block.commands) or 1 for block in found)
    fences = re.findall(r"^[ \t]*(?:[-*] |\d+\. )?```", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(found) >= len(fences) / 2
