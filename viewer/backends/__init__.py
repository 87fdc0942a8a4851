"""A model file in, an attention record out: torch, ONNX, the sample, devices."""
