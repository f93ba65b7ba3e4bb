"""Equal but faster forms of fitted models: fused inference, and ONNX."""
