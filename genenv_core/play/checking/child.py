"""The other process that plays a domain: it prints the digest of the domain's answers."""

from __future__ import annotations

import json
import sys

from genenv_core.domains.registry import get_domain
from genenv_core.play.checking.domain_checks import answers_digest

if __name__ == "__main__":
    paths, name, options, base, heldout = json.loads(sys.argv[1])
    sys.path += [path for path in paths if path not in sys.path]
    print(answers_digest(get_domain(name, options), base, heldout))
