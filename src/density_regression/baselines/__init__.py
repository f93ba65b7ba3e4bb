"""The ten methods that Density-Regression is compared with."""

from density_regression.baselines.base import Baseline, fit_baseline
from density_regression.baselines.bayesian import BayesianNetwork, BayesianRegressor
from density_regression.baselines.deterministic import DeterministicNetwork, DeterministicRegressor
from density_regression.baselines.dropout import DropoutNetwork, MCDropoutRegressor
from density_regression.baselines.due import DUENetwork, DUERegressor
from density_regression.baselines.ensemble import DeepEnsembleRegressor, EnsembleNetwork
from density_regression.baselines.evidential import EvidentialNetwork, EvidentialRegressor
from density_regression.baselines.gaussian import GaussianNetwork, GaussianRegressor
from density_regression.baselines.natural_posterior import NaturalPosteriorNetwork, NaturalPosteriorRegressor
from density_regression.baselines.quantile import QuantileNetwork, QuantileRegressor
from density_regression.baselines.sngp import SNGPNetwork, SNGPRegressor

__all__ = [
    "Baseline",
    "BayesianNetwork",
    "BayesianRegressor",
    "DUENetwork",
    "DUERegressor",
    "DeepEnsembleRegressor",
    "DeterministicNetwork",
    "DeterministicRegressor",
    "DropoutNetwork",
    "EnsembleNetwork",
    "EvidentialNetwork",
    "EvidentialRegressor",
    "GaussianNetwork",
    "GaussianRegressor",
    "MCDropoutRegressor",
    "NaturalPosteriorNetwork",
    "NaturalPosteriorRegressor",
    "QuantileNetwork",
    "QuantileRegressor",
    "SNGPNetwork",
    "SNGPRegressor",
    "fit_baseline",
]
