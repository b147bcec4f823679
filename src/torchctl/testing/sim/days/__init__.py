"""Random days of a simulated cluster: people, failures and outages drawn from a seed, and rules that always hold."""
