"""The kit of all pages and summaries: wording, tables, charts, and templates for static HTML."""
