"""Many images: sources, decoding, engines, what is kept on the way, and statistics over all of it."""
