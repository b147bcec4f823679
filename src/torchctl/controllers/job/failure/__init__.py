"""Why an attempt was lost, and who pays for it: evidence, rules, verdict, budgets."""
