-- Read once, when the database is made: the second one, for MLflow.
CREATE DATABASE mlflow;
