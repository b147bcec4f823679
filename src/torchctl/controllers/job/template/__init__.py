"""The frozen template: queue and job merged into what every child is rendered from."""
