"""What a run leaves for people: terminal summary, summary.md, report.html, and the tables behind them."""
