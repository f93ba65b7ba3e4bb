"""Code that needs an extra, for each of them; `smoke.py` runs it without the extra and with it.

All run in one folder, in this order. `model` is in it, and `onnx` prepares it for `serve`.
"""

from __future__ import annotations

__all__ = ["CORNERS", "SAVE_MODEL"]

SAVE_MODEL = """
from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
DensityRegressor(epochs=2, members=0).fit(*make_cubic(60, random_state=0)).save("model")
"""

SERVE = """
import re, socket, subprocess, sys, time, urllib.error, urllib.request

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
root = f"http://127.0.0.1:{port}/"
# Not by the script, which is where the wheel is: in the environment without extras.
server = subprocess.Popen([sys.executable, "-m", "density_regression", "serve", "model", "--port", str(port)])
page = ""
while not page and server.poll() is None:
    try:
        page = urllib.request.urlopen(root).read().decode()
    except urllib.error.URLError:
        time.sleep(0.2)
links = re.findall(r'(?:href|src)="/(page/[^"]+)"', page)
for link in links:
    urllib.request.urlopen(root + link).read()
server.terminate()
server.wait()
sys.exit(len(links) < 3)
"""

CORNERS = {
    "flow": """
import torch
from density_regression import FlowDensity
FlowDensity().fit(torch.randn(100, 2))
""",
    "gp": """
from density_regression.baselines import DUERegressor
from density_regression.datasets import make_cubic
DUERegressor(epochs=1).fit(*make_cubic(60, random_state=0))
""",
    "data": """
import pathlib
from density_regression.tabular.files import open_table
pathlib.Path("table.csv").write_text("a,b\\n1,x\\n2,y\\n")
assert len(open_table("table.csv").read()) == 2
""",
    "depth": """
import numpy as np
from density_regression.datasets.images import read_depth, write_depth
write_depth("depth.png", np.full((4, 4), 2.0))
assert read_depth("depth.png").max() == 2
""",
    "metrics": "import density_regression.metrics.accumulate",
    "onnx": """
import pathlib
from density_regression.serve.bundle import prepare
prepare(pathlib.Path("model"))
""",
    "serve": SERVE,
    "ray": """
from density_regression.io.cluster import connected
with connected(processors=1) as ray:
    assert ray.is_initialized()
""",
}
