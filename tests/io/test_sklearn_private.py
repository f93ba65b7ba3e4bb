"""Private names of scikit-learn: all there, and in one file."""

import ast
import re
from pathlib import Path

import pytest

import density_regression
from density_regression.io import sklearn_private


def test_all_names_are_there() -> None:
    assert all(hasattr(sklearn_private, name) for name in sklearn_private.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sklearn_private.nothing


def private_imports(path: Path) -> list[str]:
    """Names of scikit-learn that begin with an underscore, or stand in a module that does, and are imported here."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
    return [name for name in found if re.match(r"sklearn\b.*\._(?!_)", name)]


def test_the_package_takes_them_from_here_only() -> None:
    package = Path(density_regression.__file__).parent
    found = {path: private_imports(path) for path in package.rglob("*.py")}
    assert {str(path.relative_to(package)) for path, names in found.items() if names} == {
        str(Path("io", "sklearn_private.py"))
    }


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("from sklearn.utils._param_validation import Interval", True),
        ("from sklearn.utils.validation import (\n    check_is_fitted,\n    _check_y,\n)", True),
        ("from sklearn.metrics import _scorer as scorer", True),
        ("import sklearn.metrics._scorer", True),
        ("import sklearn\nsklearn.utils._param_validation.Interval", True),
        ("from sklearn.utils.validation import check_is_fitted, validate_data", False),
        ("import sklearn\nsklearn.__version__", False),
    ],
)
def test_private_imports_are_found(line: str, private: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(line)
    assert bool(private_imports(tmp_path / "module.py")) is private
