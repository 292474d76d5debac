"""The algorithm of GenEnv: rules, domains, engines, training and storage, without orchestration."""

__version__ = "0.1.0"
