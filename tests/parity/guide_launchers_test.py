# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The lines of docs/other_guides.md that start another launcher."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from other_guides_test import Launchers  # noqa: E402

__all__ = ["Launchers"]
