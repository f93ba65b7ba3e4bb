"""What all parts of the page need to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from density_regression.serve.page.asked import Asked
from density_regression.serve.page.fields import Field
from density_regression.serve.page.outlook import Outlook
from density_regression.serve.page.words import number, resolution
from density_regression.tabular.profile import Profile, TargetProfile

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A question, its answer, and the model.

    Attributes
    ----------
    served : Served
        The model: `name`, `version` and `scorer`.
    models : tuple of str
        Names of all models of the server.
    profile : Profile or None
        Of the training rows.
    fields : list of Field
        The columns that the model reads.
    asked : Asked
        The question.
    outlook : Outlook
        The answer.
    """

    served: Any
    models: tuple[str, ...]
    profile: Profile | None
    fields: list[Field]
    asked: Asked
    outlook: Outlook

    @property
    def bundle(self) -> Any:
        """What the server knows of the model."""
        return self.served.scorer.bundle

    @property
    def target(self) -> TargetProfile | None:
        """The training targets, if they are known."""
        return self.profile.targets[self.asked.target] if self.profile else None

    @property
    def target_names(self) -> list[str]:
        """A name for each target."""
        if self.profile is not None:
            return [target.name for target in self.profile.targets]
        count = self.bundle.targets
        return ["target"] if count == 1 else [f"target {i}" for i in range(count)]

    @property
    def target_name(self) -> str:
        """The name of the target that is shown."""
        return self.target_names[self.asked.target]

    @property
    def share(self) -> str:
        """The coverage of the interval, in words."""
        return f"{100 * self.asked.coverage:g} %"

    def in_units(self, value: float) -> str:
        """A value of the target, in as many digits as its standard deviation leaves meaning to."""
        return number(value, resolution(self.outlook.std))

    def to(self, low: float, high: float) -> str:
        """An interval of the target."""
        return f"{self.in_units(low)} to {self.in_units(high)}"
