# Flows, cheap stages, the Prefect server and worker, MLflow. CPU build of torch.
#   docker build -f infra/images/orchestrator.Dockerfile -t genenv-orchestrator:0.2.0 .
FROM python:3.11.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/genenv
COPY requirements.lock infra/torch-cpu.lock ./
RUN /opt/genenv/bin/pip install --no-deps --require-hashes -r torch-cpu.lock \
        --extra-index-url https://download.pytorch.org/whl/cpu \
    && /opt/genenv/bin/pip install --no-deps --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY flows flows
COPY tasks tasks
COPY genenv_core genenv_core
COPY schemas schemas
RUN /opt/genenv/bin/pip install --no-deps --no-build-isolation .

FROM python:3.11.13-slim-bookworm
LABEL org.opencontainers.image.title="genenv-orchestrator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/genenv /opt/genenv
ENV PATH=/opt/genenv/bin:$PATH HOME=/tmp/home PREFECT_HOME=/tmp/prefect \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    DO_NOT_TRACK=1 MLFLOW_DISABLE_TELEMETRY=true HF_HUB_DISABLE_TELEMETRY=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY=false \
    PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT=false
USER 10001:10001
WORKDIR /tmp
CMD ["genenv", "--help"]
