"""`genenv up`: the Prefect server, MLflow, a worker and the deployments on one machine."""
