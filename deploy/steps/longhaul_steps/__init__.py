"""A run's steps in experiment trackers: W&B and MLflow (docs/design/deployment.md)."""
