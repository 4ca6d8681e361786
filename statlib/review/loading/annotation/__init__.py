"""Long-format annotation answers: one row per session and question, and what such exports have beside them."""
