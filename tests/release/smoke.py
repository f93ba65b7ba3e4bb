"""Smoke test of a wheel and sdist: `make dist` runs it, as it downloads and takes minutes.

    python tests/release/smoke.py dist constraints.txt [EXTRA ...]

The sdist must build the same wheel. The wheel is installed into an empty environment without extras, where the package
must be imported at once, `demo` must run, and what needs an extra must name it. Then each extra is installed by itself,
into an environment that sees the first, and what needs it must work.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from corners import CORNERS, SAVE_MODEL

MAX_IMPORT_SECONDS = 0.2
BROUGHT_BY_OTHERS = {"depth"}
"""Extras without which nothing is missing: matplotlib needs pillow too."""
TIME_IMPORT = """
import sys, time
start = time.perf_counter()
import density_regression
print(time.perf_counter() - start)
assert not {"torch", "sklearn", "scipy", "numpy"} & set(sys.modules)
"""


def main(dist: Path, constraints: Path, extras: list[str]) -> None:
    """Run all checks; the first that fails ends it."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        check_sdist(sdist, wheel, work)
        base = install(wheel, constraints, work / "base")
        check_base(base, work)
        for extra in extras:
            refused = run(base, CORNERS[extra], work, check=extra in BROUGHT_BY_OTHERS)
            if extra not in BROUGHT_BY_OTHERS and f"density-regression[{extra}]" not in refused.stderr:
                sys.exit(f"Without the extra {extra}, the error does not name it:\n{refused.stderr}")
        for extra in extras:
            run(install(wheel, constraints, work / f"with-{extra}", extra, base), CORNERS[extra], work)
            print(f"extra {extra}: works by itself", flush=True)


def check_sdist(sdist: Path, wheel: Path, work: Path) -> None:
    """Build a wheel from the sdist, with the hatchling that runs this, and compare all files of the two wheels."""
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "sdist", filter="data")
    (source,) = (work / "sdist").iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work / "wheel")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (again,) = (work / "wheel").glob("*.whl")
    if files(again) != files(wheel):
        differ = sorted(name for name, _ in files(again).items() ^ files(wheel).items())
        sys.exit(f"The wheel of the sdist differs in {', '.join(dict.fromkeys(differ))}.")
    sizes = (f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)" for path in (sdist, wheel))
    print(*sizes, sep=" builds ", flush=True)


def files(wheel: Path) -> dict[str, bytes]:
    """Name and content of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_base(python: Path, work: Path) -> None:
    """Without extras: import at once, `demo` with its figures, and a model to serve."""
    seconds = min(float(run(python, TIME_IMPORT, work).stdout) for _ in range(3))
    if seconds >= MAX_IMPORT_SECONDS:
        sys.exit(f"import density_regression takes {seconds:.2f} s, {MAX_IMPORT_SECONDS} s at most were promised.")
    print(f"import density_regression: {seconds:.3f} s", flush=True)
    subprocess.run([python.with_name("density-regression"), "demo", "--out", "demo"], cwd=work, check=True)
    assert (work / "demo" / "cubic.png").is_file()
    run(python, SAVE_MODEL, work)


def install(wheel: Path, constraints: Path, folder: Path, extra: str = "", base: Path | None = None) -> Path:
    """Make an environment with the wheel, and the packages of `base` if given; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    if base is not None:
        # pip takes what it finds there for installed, so that only what the extra adds is downloaded.
        where = "import sysconfig; print(sysconfig.get_path('purelib'), end='')"
        own, others = (run(each, where, folder).stdout for each in (python, base))
        (Path(own) / "base.pth").write_text(f"{others}\n")
    wanted = f"density-regression{f'[{extra}]' * bool(extra)} @ {wheel.resolve().as_uri()}"
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(constraints.resolve())]
    subprocess.run([python, *pip, wanted], check=True)
    return python


def run(python: Path, code: str, work: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run code in an environment, in the folder `work`; if `check`, an error of it ends this program."""
    done = subprocess.run([python, "-c", code], cwd=work, capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"{code}\nfailed:\n{done.stdout}{done.stderr}")
    return done


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or list(CORNERS))
