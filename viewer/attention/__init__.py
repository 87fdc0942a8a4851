"""The science: records of attention and what is measured on them. No Qt, no model code."""
