"""The reports of a run: terminal summary, summary.md, report.html, and the tables behind them."""
