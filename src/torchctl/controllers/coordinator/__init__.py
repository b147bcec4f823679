"""The coordinator: lets gangs in, in a fair order and within quotas, if no gang scheduler does."""
