"""Pictures in: decoding, and the preprocessing that a model asks for."""
