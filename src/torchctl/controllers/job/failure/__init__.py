"""Decides the cause of a lost attempt and the budget that pays for it: evidence, rules, verdict, budgets."""
