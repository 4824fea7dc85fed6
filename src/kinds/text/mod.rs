//! `summarize_text`: extractive summaries.
