"""How well models pick and predict, on measurements that they did not learn from."""
