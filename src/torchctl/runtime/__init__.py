"""A Kubernetes controller runtime: client, informers, workqueue, controllers, leader election, metrics."""
