"""MLflow: track fits, losses and the exported model

**What you learn:** log settings, losses of each epoch and metrics of a fit to MLflow by a callback of a few lines, and
keep the model there as ONNX, without pickle.

MLflow is not one of this package's extras: `pip install mlflow`. Here runs go to a file, `runs.db`; with
`mlflow.set_tracking_uri` they go to your server. `mlflow ui --backend-store-uri sqlite:///runs.db` shows them in a
browser.

**How to read the figure:** losses as MLflow has them, of the training rows and of the rows held out. Where the latter
rise again, the network learns its training rows by heart. The weights that are kept are those of the lowest held-out
loss.
"""

# %%
import matplotlib.pyplot as plt
import mlflow
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor, metrics

mlflow.set_tracking_uri("sqlite:///runs.db")
mlflow.set_experiment("friedman")
X, y = make_friedman1(300, noise=1.0, random_state=0)

# %% [markdown]
# ## A callback
#
# Any object with `on_epoch` is one. It is told the name of the step, the epoch, and both losses.


# %%
class ToMLflow:
    def on_epoch(self, step, epoch, train_loss, held_out_loss):
        losses = {f"{step} training": train_loss, f"{step} held out": held_out_loss}
        mlflow.log_metrics({name: loss for name, loss in losses.items() if loss is not None}, step=epoch)


# %% [markdown]
# ## Two runs
#
# Only settings that differ from their defaults are worth a column. The ONNX file is an artifact of the run: it can be
# downloaded and run anywhere.

# %%
for hidden in ((16,), (100, 100)):
    with mlflow.start_run(run_name=f"hidden {hidden}"):
        settings = {"hidden": hidden, "members": 0, "epochs": 40, "random_state": 0}
        mlflow.log_params(settings)
        reg = DensityRegressor(**settings, callbacks=[ToMLflow()], verbose=False).fit(X[:200], y[:200])
        mean, std = reg.predict(X[200:], return_std=True)
        mlflow.log_metrics({"NLL": metrics.nll(y[200:], mean, std), "RMSE": metrics.rmse(y[200:], mean)})
        reg.to_onnx("model.onnx")
        mlflow.log_artifact("model.onnx")

# %% [markdown]
# ## Compare them

# %%
client = mlflow.MlflowClient()
(experiment,) = [each for each in client.search_experiments() if each.name == "friedman"]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained", num="Losses of both runs by epoch, read from MLflow")
for run in client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"]):
    found = ", ".join(f"{name} {run.data.metrics[name]:.2f}" for name in ("NLL", "RMSE"))
    print(f"{run.info.run_name}: {found}; kept: {client.list_artifacts(run.info.run_id)[0].path}")
    for name, line in (("pretrain training", "--"), ("pretrain held out", "-")):
        history = client.get_metric_history(run.info.run_id, name)
        epochs, losses = [each.step for each in history], [each.value for each in history]
        ax.plot(epochs, losses, line, label=f"{run.info.run_name}, {name.removeprefix('pretrain ')}")
ax.set(xlabel="epoch", ylabel="loss", ylim=(-1, 3))
ax.legend(fontsize="small")
plt.show()
