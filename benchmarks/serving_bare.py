"""A bare FastAPI handler around an ONNX file, to compare our server with: python serving_bare.py FILE --port PORT."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request

from density_regression.serve.run import bind


def make_app(path: str) -> FastAPI:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    app = FastAPI()

    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/")
    async def predict(request: Request) -> dict[str, Any]:
        rows = (await request.json())["inputs"]
        results = session.run(None, {"X": np.array(rows, dtype=np.float64)})
        return {name: values.ravel().tolist() for name, values in zip(names, results, strict=True)}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    listener = bind("127.0.0.1", args.port)
    about = {"message": "starting", "port": listener.getsockname()[1]}
    print(json.dumps(about), file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(make_app(args.file), log_level="error", access_log=False)).run([listener])
