"""The algorithm of GenEnv: rules, domains, engines, training and storage, without orchestration."""

from genenv_core.importing import check_ours

__version__ = "0.2.0"

check_ours("schemas")
